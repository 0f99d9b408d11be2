"""`streamhouse watch` as a user runs it: in a terminal, in a pipe, as JSON."""

from __future__ import annotations

import codecs
import io
import json
import os
import pty
import select
import signal
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.processes import Command
from tests.waiting import DEADLINE_S, until

from streamhouse.cli.commands.watch import _print_json
from streamhouse.serve.feeds.feed import FeedChange
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn, RenameColumn, SetType


class Watching:
    """A running `streamhouse watch`, its output collected as it comes."""

    def __init__(self, arguments: list[str], terminal: bool, folder: Path) -> None:
        reader, writer = pty.openpty() if terminal else os.pipe()
        self._reader = reader
        # A character may come in two parts.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""
        self.errors = folder / "stderr"
        size = {"COLUMNS": "90", "LINES": "14", "TERM": "xterm-256color"}
        with self.errors.open("w") as errors:
            self.process = Command(["watch", *arguments], writer, errors.fileno(), size)
        os.close(writer)

    def until(self, condition: Callable[[str], bool]) -> str:
        """Read on until the text fulfils the condition; the text."""
        while not condition(self.text):
            seen = f"{self.text}\n{self.errors.read_text()}"
            assert select.select([self._reader], [], [], DEADLINE_S)[0], seen
            self.text += self._decoder.decode(os.read(self._reader, 1 << 16))
        return self.text

    def lines(self, count: int) -> list[dict[str, Any]]:
        """The first `count` lines, as the JSON objects they are."""
        text = self.until(lambda text: text.count("\n") >= count)
        return [json.loads(line) for line in text.splitlines()]

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_S)
        os.close(self._reader)


@pytest.fixture
def watch(shop: Any, tmp_path: Path) -> Iterator[Callable[..., Watching]]:
    running: list[Watching] = []

    def start(*arguments: str, terminal: bool = False) -> Watching:
        given = ["--warehouse", str(shop.path), *arguments]
        running.append(Watching(given, terminal, tmp_path))
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_json_lines_are_rows_then_changes(shop: Any, watch: Callable[..., Watching]) -> None:
    columns = (
        Column("id", "INT"),
        Column("price", "DECIMAL(20, 2)"),
        Column("at", "TIMESTAMP(3)"),
        Column("raw", "BYTES"),
        Column("snapshot", "DOUBLE"),
    )
    table = shop.create("types", columns, ["id"])
    big = Decimal("123456789012345678.90")
    first = shop.write(table, (1, big, 1_700_000_000_123, b"\xff\x00", float("nan")))
    watching = watch(table, "--format", "json")
    row = {
        "id": 1,
        "price": "123456789012345678.90",
        "at": "2023-11-14T22:13:20.123",
        "raw": "/wA=",
        "snapshot_": "NaN",
    }
    assert watching.lines(1) == [{"snapshot": first, "rowkind": "+I"} | row]
    second = shop.write(table, (1, None, None, None, 0.5), (2, None, None, None, None))
    empty = {"price": None, "at": None, "raw": None}
    assert watching.lines(4)[1:] == [
        {"snapshot": second, "rowkind": "-U"} | row,
        {"snapshot": second, "rowkind": "+U", "id": 1} | empty | {"snapshot_": 0.5},
        {"snapshot": second, "rowkind": "+I", "id": 2} | empty | {"snapshot_": None},
    ]
    third = shop.write(table, (2, None, None, None, None), kinds=["-D"])
    assert watching.lines(5)[4]["rowkind"] == "-D"
    assert watching.lines(5)[4]["snapshot"] == third
    assert watching.interrupt() == 130
    assert watching.errors.read_text() == ""


def test_columns_with_reserved_names_keep_their_values() -> None:
    columns = {"rowkind": "+I", "snapshot": 1, "snapshot_": 2}
    batch = pa.record_batch([[value] for value in columns.values()], names=list(columns))
    out = io.StringIO()
    _print_json(iter([FeedChange(7, 0, is_whole_table=True, rows=1, batches=[batch])]), out)
    row = {"snapshot": 7, "rowkind": "+I", "snapshot__": 1, "snapshot_": 2}
    assert json.loads(out.getvalue()) == row


def test_append_table_as_json(shop: Any, watch: Callable[..., Watching]) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", Decimal(1)))
    watching = watch(table, "--format", "json")
    watching.lines(1)
    shop.write(table, (2, 'a "b"\n', None))
    assert watching.lines(2)[1] == {
        "snapshot": 2,
        "rowkind": "+I",
        "id": 2,
        "item": 'a "b"\n',
        "price": None,
    }


def test_a_watch_continues_while_its_columns_change(
    shop: Any, watch: Callable[..., Watching]
) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 2, 2.5))
    watching = watch(table, "--format", "json")
    watching.lines(1)
    shop.warehouse.alter_table(
        table,
        AddColumn(Column("city", "STRING")),
        RenameColumn(("orders",), "sold"),
        SetType(("sold",), "STRING"),
    )
    shop.write(table, ("Chad", "3", 1.0, "Abéché"))
    lines = watching.lines(2)
    assert lines[0] == {"snapshot": 1, "rowkind": "+I", "country": "Peru", "orders": 2,
                        "revenue": 2.5}  # fmt: skip
    assert lines[1] == {"snapshot": 2, "rowkind": "+I", "country": "Chad", "sold": "3",
                        "revenue": 1.0, "city": "Abéché"}  # fmt: skip
    assert watching.interrupt() == 130


@pytest.mark.parametrize("fail", [False, True])
def test_an_append_table_with_expired_snapshots(
    shop: Any, watch: Callable[..., Watching], fail: bool
) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None))
    watching = watch(table, "--format", "json", *(["--fail-on-data-loss"] if fail else []))
    watching.lines(1)
    watching.process.send_signal(signal.SIGSTOP)
    lost = shop.write(table, (2, "nut", None))
    shop.write(table, (3, "nut", None))
    (shop.path / "shop.db" / "orders" / "snapshot" / f"snapshot-{lost}").unlink()
    watching.process.send_signal(signal.SIGCONT)
    if fail:
        assert watching.process.wait(DEADLINE_S) == 1
        assert f"snapshot {lost} is gone, " in watching.errors.read_text()
        return
    assert watching.lines(2)[1]["snapshot"] == lost + 1
    assert f"notice: snapshot {lost} of {table} expired" in watching.errors.read_text()
    assert watching.interrupt() == 130


def test_a_pipe_gets_one_plain_table_per_change(shop: Any, watch: Callable[..., Watching]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1_234, 1.5), ("Mali", 2, None))
    watching = watch(table)
    text = watching.until(lambda text: text.endswith("\n\n"))
    assert "shop.sales · snapshot 1 · 2 rows · committed 20" in text
    assert "│ Chad    │  1,234 │    1.50 │" in text
    assert "│ Mali    │      2 │    NULL │" in text
    shop.write(table, ("Chad", 1_234, 1.5))
    shop.write(table, ("Chad", 1_234, 1.5), kinds=["-D"])
    text = watching.until(lambda text: text.count("\n\n") == 2)
    assert "snapshot 2" not in text and "snapshot 3 · 1 row · " in text
    assert text.rstrip().endswith("removed: Chad")
    assert "\x1b" not in text


def test_terminal_marks_what_changed(shop: Any, watch: Callable[..., Watching]) -> None:
    table = shop.sales()
    shop.write(table, *((f"c{i:02d}", i, 0.25) for i in range(30)))
    watching = watch(table, terminal=True)
    text = watching.until(lambda text: "… and" in text)
    assert "… and 24 more rows" in text
    assert "c05" in text and "c06" not in text
    shop.write(table, ("c01", 777, 0.25), ("a00", 5, 1.0))
    text = watching.until(lambda text: "… and 25 more rows" in text)
    last = text[text.rindex("snapshot 2") :]
    assert "\x1b[1;30;43m777\x1b[0m" in last
    assert "\x1b[32ma00\x1b[0m" in last
    assert last.count("43m") == 1
    assert watching.interrupt() == 130


def test_empty_table_and_waiting(shop: Any, watch: Callable[..., Watching]) -> None:
    watching = watch("shop.later", "--wait")
    until(lambda: "waiting for table shop.later" in watching.errors.read_text())
    table = shop.sales("later")
    shop.write(table, ("Chad", 1, 1.0))
    assert "Chad" in watching.until(lambda text: text.endswith("\n\n"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop.sale"], "error: there is no table 'sale' in database 'shop'; did you mean 'sales'"),
        (["shpo.sales"], "did you mean 'shop'"),
        (["sales"], "error: 'sales' names no database; write database.table"),
        (["shop.sales", "--every", "soon"], "error: option '--every': 'soon' is not a duration"),
        (["shop.sales", "--every", "0s"], "the least is '1ms'"),
        (["shop.sales", "--option", "s3"], "error: --option takes KEY=VALUE"),
        (["shop.sales", "--warehouse", "/no/such"], "error: there is no warehouse at '/no/such'"),
    ],
)
def test_bad_input_is_one_message(
    shop: Any, watch: Callable[..., Watching], arguments: list[str], message: str
) -> None:
    shop.sales()
    watching = watch(*arguments)
    assert watching.process.wait(DEADLINE_S) == 1
    errors = watching.errors.read_text()
    assert message in errors
    assert errors.count("\n") == 1 and "Traceback" not in errors


def test_a_branch_is_followed(shop: Any, watch: Callable[..., Watching]) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    shop.tag(table, "one", 1)
    shop.branch(table, "b", "one")
    watching = watch(f"{table}$branch_b", "--format", "json")
    assert watching.lines(1)[0]["orders"] == 1
    shop.write(table, ("Chad", 5, 1.0))
    shop.write(f"{table}$branch_b", ("Chad", 2, 1.0))
    kinds = [(line["rowkind"], line["orders"]) for line in watching.lines(3)[1:]]
    assert kinds == [("-U", 1), ("+U", 2)]
    assert watching.interrupt() == 130


@pytest.mark.parametrize(
    ("as_of", "orders"), [("1", 1), ("one", 1), ("2", 2), ("2100-01-01", 2), ("0s ago", 2)]
)
def test_a_past_state_is_printed_once(
    shop: Any, watch: Callable[..., Watching], as_of: str, orders: int
) -> None:
    table = shop.sales()
    for number in (1, 2):
        shop.write(table, ("Chad", number, 1.0))
    shop.tag(table, "one", 1)
    watching = watch(table, "--as-of", as_of, "--format", "json")
    assert watching.process.wait(DEADLINE_S) == 0
    assert [line["orders"] for line in watching.lines(1)] == [orders]
    said = f"{table} as of {as_of} is a past state, which does not change\n"
    assert watching.errors.read_text() == said


def test_a_past_state_of_an_append_table_on_a_terminal(
    shop: Any, watch: Callable[..., Watching]
) -> None:
    table = shop.orders()
    for number in (1, 2):
        shop.write(table, (number, "x", None))
    watching = watch(table, "--as-of", "1")
    assert watching.process.wait(DEADLINE_S) == 0
    text = watching.until(lambda found: "snapshot 1 · 1 row · committed" in found)
    assert "│  1 │ x    │  NULL │" in text and "│  2 │" not in text
    watching = watch(table, "--as-of", "noon")
    assert watching.process.wait(DEADLINE_S) == 1
    assert "has no tag 'noon'" in watching.errors.read_text()


def test_a_view_is_watched(shop: Any, watch: Callable[..., Watching]) -> None:
    from streamhouse.paimon.catalog.views import Views
    from streamhouse.sql.plan import ViewInfo

    table = shop.sales()
    shop.write(table, ("Peru", 2, 1.0), ("Chad", 1, 1.0))
    query = "SELECT country FROM `shop`.`sales` WHERE orders > 1"
    Views(shop.warehouse).create(ViewInfo(("shop", "big"), (Column("country", "STRING"),), query))
    watching = watch("shop.big", "--format", "json")
    assert watching.lines(1) == [{"snapshot": 1, "rowkind": "+I", "country": "Peru"}]
    shop.write(table, ("Chad", 9, 1.0))
    assert watching.lines(2)[1] == {"snapshot": 2, "rowkind": "+I", "country": "Chad"}
    assert watching.interrupt() in (0, 130)
    named = watch("shop.big", "--consumer-id", "c1")
    assert named.process.wait(DEADLINE_S) == 1
    assert "only tables have consumers" in named.errors.read_text()


@pytest.mark.parametrize("keyed", [True, False])
def test_a_watch_resumes_where_the_last_one_with_its_consumer_id_stopped(
    shop: Any, watch: Callable[..., Watching], keyed: bool
) -> None:
    columns = (Column("id", "INT"), Column("v", "INT"))
    table = shop.create("followed", columns, ["id"] if keyed else [])
    shop.write(table, (1, 1))
    arguments = (table, "--format", "json", "--consumer-id", "screen")
    first = watch(*arguments)
    assert [line["id"] for line in first.lines(1)] == [1]
    consumer = shop.path / "shop.db" / "followed" / "consumer" / "consumer-screen"
    until(consumer.exists)
    first.interrupt()
    assert json.loads(consumer.read_text()) == {"nextSnapshot": 2}
    second = shop.write(table, (2, 2))
    row = {"snapshot": second, "rowkind": "+I", "id": 2, "v": 2}
    assert watch(*arguments).lines(1) == [row]
