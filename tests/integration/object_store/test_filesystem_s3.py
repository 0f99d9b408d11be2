"""The `filesystem` connector in an object store: each row once after any failure."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy, Request
from tests.integration.runtime.conftest import Shop
from tests.integration.runtime.conftest import shop as shop
from tests.integration.runtime.test_filesystem import MADE
from tests.unit.connectors.test_filesystem import COLUMNS, ROWS, batch, insert
from tests.unit.connectors.test_filesystem import read as rows_of

from streamhouse.connectors.base import WrittenBatch
from streamhouse.connectors.filesystem.connector import FilesystemSource
from streamhouse.connectors.filesystem.sink import FilesCommitter
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.demo.s3_server import S3Server
from streamhouse.errors import DataLossError, StoreError
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

QUERY = "0123456789abcdef01234567"


@pytest.fixture
def objects(lake: str) -> ObjectFiles:
    return ObjectFiles(lake, {})


def names(objects: ObjectFiles, lake: str) -> list[str]:
    return sorted(name for name, _, _ in objects.entries(lake) if not name.startswith("."))


def read(lake: str, name: str = "json", by: tuple[str, ...] = ()) -> list[Any]:
    return rows_of(cast(Path, lake), name, by)


def written(to: SinkSpec, number: int, attempt: str, rows: list[Any]) -> WrittenBatch:
    writer = to.open().writer(QUERY, number, attempt)
    writer.write(batch(to, rows))
    messages = writer.prepare()
    writer.close()
    return WrittenBatch(number, messages)


def nothing() -> None:
    pass


def spec(lake: str, name: str = "json", by: tuple[str, ...] = (), **more: str) -> SinkSpec:
    return SinkSpec(
        "filesystem", {"path": lake, "format": name, **more}, COLUMNS, partitioned_by=by
    )


@pytest.mark.parametrize("name", ["json", "csv", "parquet"])
@pytest.mark.parametrize("by", [(), ("day", "name")])
def test_rows_are_read_as_they_were_written(
    lake: str, objects: ObjectFiles, name: str, by: tuple[str, ...]
) -> None:
    to = spec(lake, name, by)
    insert(to, batch(to, ROWS), batch(to, ROWS[:0]))
    assert read(lake, name, by) == sorted(ROWS, key=str)
    assert [one.count("/") for one in names(objects, lake)] == [len(by)] * (3 if by else 1)
    assert [name for name, _, _ in objects.entries(lake) if name.startswith(".")] == []
    assert objects.uploads(lake) == []


def test_a_source_reads_each_object_once(lake: str, objects: ObjectFiles) -> None:
    for name in ("a.json", "_hidden/x.json", "sub/.c.json", "sub/c.json"):
        objects.write_text(f"{lake}/{name}", '{"id": 1}')
    given = {"path": lake, "format": "json"}
    source = FilesystemSource(SourceSpec("filesystem", given, COLUMNS))
    end = source.latest_offset({})
    assert sorted(name for name, *_ in end["files"]) == ["a.json", "sub/c.json"]
    assert source.latest_offset(end) == end and source.finished(end)
    assert sum(b.num_rows for p in source.partitions({}, end, 4) for b in source.read(p)) == 2
    objects.write_text(f"{lake}/a.json", "{}")
    with pytest.raises(DataLossError, match=rf"{lake}/a\.json has 2 bytes, but 9 when it was list"):
        list(source.read(source.partitions({}, end, 1)[0]))
    single = FilesystemSource(
        SourceSpec("filesystem", {**given, "path": f"{lake}/a.json"}, COLUMNS)
    )
    assert [name for name, *_ in single.latest_offset({})["files"]] == [""]


@pytest.mark.parametrize("completed", [0, 1, 2])
def test_a_commit_that_was_cut_off_is_completed(
    lake: str, objects: ObjectFiles, monkeypatch: pytest.MonkeyPatch, completed: int
) -> None:
    to = spec(lake, by=("name",), **{"sink.partition-commit.policy.kind": "success-file"})
    made = written(to, 3, "a", ROWS[:2])
    left = iter([True] * completed)
    complete = ObjectFiles.complete_upload

    def cut_off(self: ObjectFiles, path: str, upload: str) -> bool:
        if not next(left, False):
            raise InterruptedError
        return complete(self, path, upload)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "complete_upload", cut_off)
        if completed < 2:
            with pytest.raises(InterruptedError):
                to.open().committer(QUERY).commit(lambda: made, nothing)
        else:
            patch.setattr(FilesCommitter, "_record", _once(FilesCommitter._record))
            with pytest.raises(InterruptedError):
                to.open().committer(QUERY).commit(lambda: made, nothing)
    committer = to.open().committer(QUERY)
    assert committer.remove_leftovers(3) == 0
    assert len(read(lake, by=("name",))) == 2
    again = written(to, 3, "b", ROWS[:2])
    written(to, 4, "dead", ROWS)
    assert not committer.commit(lambda: again, nothing)
    assert committer.remove_leftovers(4) == 3 and objects.uploads(lake) == []
    found = names(objects, lake)
    assert len(found) == 4 and sum(name.endswith("/_SUCCESS") for name in found) == 2
    # Others may move committed files away.
    for name in found:
        objects.delete_object(f"{lake}/{name}")
    to.open().committer(QUERY)


def _once(record: Any) -> Any:
    """The method that is cut off at its second call."""
    calls = iter([True])

    def called(self: FilesCommitter, batch: int, files: Any) -> None:
        if not next(calls, False):
            raise InterruptedError
        record(self, batch, files)

    return called


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.port) as running:
        yield running


def test_faults_of_the_store_lose_and_double_nothing(
    lake: str, s3: S3Server, proxy: FaultyProxy
) -> None:
    to = spec(lake, "json", (), **s3.options(proxy.url))
    chance = random.Random(5)
    faults = [fault for fault in Fault if fault is not Fault.SLOW]

    def choose(request: Request) -> Fault | None:
        return chance.choice(faults) if chance.random() < 0.15 else None

    proxy.choose = choose
    for number in range(20):
        row = {"id": number, "name": "x", "day": None}
        for attempt in range(30):
            try:
                made = written(to, number, f"a{attempt}", [row])
                to.open().committer(QUERY).commit(
                    partial(WrittenBatch, number, made.messages), nothing
                )
                break
            except StoreError:
                continue
        else:
            raise AssertionError(f"batch {number} failed 30 times")
    proxy.choose = lambda request: None
    assert len(proxy.injected) > 10
    assert sorted(row["id"] for row in read(lake)) == list(range(20))


@pytest.mark.usefixtures("in_threads")
def test_a_query_writes_each_row_once(
    shop: Shop, lake: str, s3: S3Server, objects: ObjectFiles
) -> None:
    # Spark of this process may have started before this test set AWS's variables.
    store = ", ".join(f"'{key}' = '{value}'" for key, value in s3.options().items())
    script = MADE.replace("600000", "60000") + (
        "CREATE TEMPORARY TABLE kept (id INT, part INT) PARTITIONED BY (part) WITH ("
        f"'connector' = 'filesystem', 'path' = '{lake}', 'format' = 'json', {store});"
        "INSERT INTO kept SELECT id, id % 3 FROM made;"
    )
    for point in ("batch-written:0", "target-committed:0"):
        with shop.failing_here(script, point):
            pass
    shop.settle_here(script)
    found = [
        json.loads(line)["id"]
        for name in names(objects, lake)
        for line in (objects.read_text(f"{lake}/{name}") or "").splitlines()
    ]
    assert sorted(found) == list(range(1, 60_001))
    assert objects.uploads(lake) == []
