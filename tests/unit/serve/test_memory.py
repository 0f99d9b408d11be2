"""The memory limit for all tables with subscribers, and its errors."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.serving import Serving, problem
from tests.unit.serve.test_view_feed import keep

from streamhouse.errors import BusyError, TooLargeError
from streamhouse.serve.feeds.feed import FeedMemory
from streamhouse.serve.settings import StreamSettings
from streamhouse.sql.plan import Column

WIDE = (Column("id", "INT"), Column("text", "STRING"))
SETTINGS = StreamSettings(every_ms=5, heartbeat_s=60.0, linger_s=0.0, table_bytes=100_000)


class Keeper:
    """Something that keeps rows."""


def rows(count: int, first: int = 0) -> list[tuple[int, str]]:
    """Rows of ten thousand bytes each."""
    return [(number, "x" * 10_000) for number in range(first, first + count)]


def test_bytes_count_until_they_are_freed() -> None:
    memory, one, other = FeedMemory(100), Keeper(), Keeper()
    memory.reserve(one, 60, "shop.a")
    memory.reserve(one, 70, "shop.a")
    with pytest.raises(BusyError, match="leave no memory for shop.b; try"):
        memory.reserve(other, 31, "shop.b")
    memory.reserve(other, 30, "shop.b")
    memory.release(one)
    with pytest.raises(BusyError):
        memory.reserve(one, 71, "shop.a")
    memory.reserve(one, 70, "shop.a")
    del other
    memory.reserve(one, 100, "shop.a")


def test_collecting_stops_at_the_limit() -> None:
    batch = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    taken = []

    def batches() -> Any:
        for number in range(1_000):
            taken.append(number)
            yield batch

    with pytest.raises(TooLargeError, match="shop.a is larger than"):
        FeedMemory(10 * batch.nbytes).collect(batches(), batch.schema, "shop.a")
    assert len(taken) == 11
    whole = FeedMemory(10 * batch.nbytes).collect([batch] * 10, batch.schema, "shop.a")
    assert whole.num_rows == 100


@pytest.fixture
def server(serve: Any, shop: Any) -> Serving:
    shop.write(shop.create("wide", WIDE, ["id"]), *rows(20))
    shop.write(shop.create("narrow", WIDE, ["id"]), *rows(6))
    keep(shop.warehouse, "all_of_it", "SELECT id, text FROM shop.wide", "id", "text")
    started: Serving = serve(streams=SETTINGS)
    return started


def test_too_large_table_is_rejected(server: Serving) -> None:
    for name in ("shop.wide", "shop.all_of_it"):
        answer = server.get(f"/views/{name}/changes")
        message = problem(answer, 413, "too_large")
        assert f"{name} is larger than" in message and "columns=" in message
    with server.stream("/views/shop.wide/changes?columns=id") as events:
        assert len(next(events)["rows"]) == 20
    # What it has can be read.
    assert len(server.rows("shop.wide")) == 20


def test_tables_share_the_limit(server: Serving, shop: Any) -> None:
    other = shop.create("other", WIDE, ["id"])
    shop.write(other, *rows(6))
    with server.stream("/views/shop.narrow/changes") as events:
        assert len(next(events)["rows"]) == 6
        message = problem(server.get(f"/views/{other}/changes"), 503, "busy")
        assert f"no memory for {other}" in message
        with server.stream("/views/shop.narrow/changes") as more:
            assert len(next(more)["rows"]) == 6


def test_stream_ends_if_its_table_grows_too_large(server: Serving, shop: Any) -> None:
    with server.stream("/views/shop.narrow/changes") as events:
        next(events)
        shop.write("shop.narrow", *rows(10, first=100))
        last = next(events)
        assert last["event"] == "error" and last["error"]["code"] == "expired"
        assert "exceeds the limits on memory" in json.dumps(last)
        assert list(events) == []
    assert problem(server.get("/views/shop.narrow/changes"), 413, "too_large")
