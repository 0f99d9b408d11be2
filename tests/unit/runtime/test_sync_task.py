"""The tasks of a sync: each target is written by one thread, in order, with its own errors."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import DEADLINE_S

from streamhouse.connectors.mysql_cdc.database.part_reader import TableRows
from streamhouse.errors import SchemaChangeError
from streamhouse.runtime.sync import task as module
from streamhouse.runtime.sync.task import SyncTask
from streamhouse.source import ROW_KIND
from streamhouse.state import segment


class Target:
    """A target, its writer, and the only table in MySQL that is written to it.

    `snapshot`: the table's rows, before `read_error` ends their reading. `fails_at`: a value that
    cannot be written. `barrier`: the first write waits for those of other targets.
    """

    def __init__(
        self,
        name: str,
        snapshot: Iterable[int] = (),
        fails_at: int | None = None,
        read_error: Exception | None = None,
        barrier: threading.Barrier | None = None,
    ) -> None:
        self.name, self.fails_at, self.read_error = name, fails_at, read_error
        self.barrier = barrier
        table = SimpleNamespace(id=name, target=name, full_name=name, columns=(), rows=0)
        self.part = SimpleNamespace(table=table, chunks=snapshot, reload=None)
        self.version, self.rows, self.thread = 3, list[int](), 0

    def open(self) -> Target:
        return self

    def follow(self) -> Target:
        return self

    def latest_snapshot_id(self) -> int:
        return self.version

    def write(self, rows: pa.RecordBatch) -> None:
        assert threading.get_ident() == self.thread
        if self.barrier is not None and not self.rows:
            self.barrier.wait(DEADLINE_S)
        if self.fails_at in rows.column(0).to_pylist():
            raise SchemaChangeError("altered")
        self.rows += rows.column(0).to_pylist()

    def prepare(self) -> list[bytes]:
        assert threading.get_ident() == self.thread
        return [json.dumps(self.rows).encode()]

    def close(self) -> None:
        assert threading.get_ident() == self.thread
        self.thread = 0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a task for targets with changes; returns the rows in their messages, and the report.

    A change has the index of a target and a value; they are given by stretch of the binlog.
    """

    def run(
        targets: Sequence[Target], stretches: Sequence[Sequence[tuple[int, int]]] = ()
    ) -> tuple[dict[str, list[int]], dict[str, Any]]:
        errors = {target.name: target.read_error for target in targets}

        class Reader:
            def __init__(self, *_: object) -> None: ...

            def changes(self, parts: Any, end: object) -> Iterator[list[TableRows]]:
                for stretch in stretches:
                    yield [
                        TableRows(parts[at].table, rows(value), [1], [value])
                        for at, value in stretch
                    ]

            def snapshot(self, part: Any) -> Iterator[TableRows]:
                for value in part.chunks:
                    yield TableRows(part.table, rows(value), None)
                error = errors[part.table.id]
                if error is not None:
                    raise error

            def close(self) -> None: ...

        def opened(target: Target, *_: object) -> Target:
            target.thread, target.version = threading.get_ident(), 9
            return target

        monkeypatch.setattr(module, "PartReader", Reader)
        monkeypatch.setattr(module, "sink_writer", opened)
        whole = SimpleNamespace(rows=lambda batch, seconds: batch)
        monkeypatch.setattr(module, "TargetRows", lambda *_: whole)
        address = {target.name: target for target in targets}.__getitem__
        options = SimpleNamespace(mysql=None, name="ods", address=address)
        spec: Any = SimpleNamespace(options=options, server=None, relay=None, query_id="q")
        source = {"table_set": 1, "file": "bin.000001", "pos": 4}
        parts = [target.part for target in targets]
        task: Any = SimpleNamespace(
            parts=parts, zone="UTC", start={}, end={"source": source}, batch=7, now_ms=0
        )
        (batch,) = SyncTask(spec, task).run()
        assert not any(target.thread for target in targets)
        found = batch.to_pylist()
        messages = {row["table"]: json.loads(row["message"]) for row in found[:-1]}
        return messages, json.loads(found[-1]["report"])

    return run


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"id": list(values), ROW_KIND: ["+I"] * len(values)})


def test_each_target_has_its_changes_in_order_and_then_its_snapshot(run: Any) -> None:
    targets = [Target(name, [1000 + at]) for at, name in enumerate("abcde")]
    stretches = [[(at, 100 * at + number) for at in range(5)] for number in range(20)]
    messages, report = run(targets, stretches)
    assert messages == {
        name: [*(100 * at + number for number in range(20)), 1000 + at]
        for at, name in enumerate("abcde")
    }
    assert report["bases"] == dict.fromkeys("abcde", 3)
    assert report["changes"] == dict.fromkeys("abcde", 20)
    assert report["snapshot"] == dict.fromkeys("abcde", 1)


def test_many_changes_wait_in_files(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[pa.Table] = []

    def spilled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        files.append(segment.spilled(schema, batches))
        return files[-1]

    monkeypatch.setattr(module, "_MEMORY_BYTES", 8 * rows(1).nbytes)
    monkeypatch.setattr(module, "_FILE_BYTES", 0)
    monkeypatch.setattr(module, "spilled", spilled)
    messages, _ = run([Target("a"), Target("b")], [[(0, n), (1, n)] for n in range(2, 9)])
    assert messages == dict.fromkeys("ab", list(range(2, 9)))
    assert len(files) == 6


def test_two_targets_are_written_at_once(run: Any) -> None:
    barrier = threading.Barrier(2)
    messages, _ = run([Target(name, [1], barrier=barrier) for name in "ab"])
    assert messages == {"a": [1], "b": [1]}


def test_one_large_target_is_written_at_a_time(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALL_BYTES", 0)
    writing = threading.Lock()

    class Large(Target):
        def write(self, rows: pa.RecordBatch) -> None:
            if not self.rows:
                assert writing.acquire(blocking=False)
            super().write(rows)

        def close(self) -> None:
            super().close()
            writing.release()

    messages, _ = run([Large(name, [1, 2]) for name in "abcd"])
    assert messages == dict.fromkeys("abcd", [1, 2])


def test_a_target_without_rows_has_no_message(run: Any) -> None:
    assert run([Target("a")])[0] == {}


@pytest.mark.parametrize("fails", ["read", "written"])
def test_a_target_whose_snapshot_is_lost_is_left_out(run: Any, fails: str) -> None:
    error = SchemaChangeError("altered") if fails == "read" else None
    lost = Target("a", [1, 2], 2 if fails == "written" else None, error)
    messages, report = run([lost, Target("b", [5])], [[(0, 3), (1, 4)]])
    assert messages == {"b": [4, 5]}
    assert report["unread"] == ["a"]
    assert report["bases"] == {"b": 3}


def test_an_error_ends_the_reading_of_other_targets(run: Any) -> None:
    endless = itertools.count(1)
    with pytest.raises(SchemaChangeError):
        run([Target("a", endless), Target("b", fails_at=2)], [[(1, 2)]])
    assert next(endless) > 1


def test_a_change_that_cannot_be_written_ends_the_task(run: Any) -> None:
    with pytest.raises(SchemaChangeError):
        run([Target("a", [1], fails_at=3), Target("b", [5])], [[(0, 2), (0, 3)]])
