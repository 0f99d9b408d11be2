"""The writers of a sync's task: each target by one thread, in order, with its own errors."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import DEADLINE_S, until

from streamhouse.errors import SchemaChangeError
from streamhouse.runtime.sync import task
from streamhouse.runtime.sync.task import TargetWriters


class Target:
    """A target whose writer is used by one thread only; fails at the value `fails_at`."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.rows: list[int] = []
        self.snapshot: int | None = 3
        self.open = False
        self.thread = 0
        self.may_write = threading.Event()
        self.may_write.set()

    def follow(self) -> Target:
        return self

    def latest_snapshot_id(self) -> int | None:
        return self.snapshot

    def opened(self) -> Target:
        self.open, self.thread, self.snapshot = True, threading.get_ident(), 9
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        assert self.open and threading.get_ident() == self.thread
        assert self.may_write.wait(DEADLINE_S)
        if self.fails_at in rows.column(0).to_pylist():
            raise SchemaChangeError("altered")
        self.rows += rows.column(0).to_pylist()

    def prepare(self) -> list[bytes]:
        assert self.open and threading.get_ident() == self.thread
        return [str(self.rows).encode()]

    def close(self) -> None:
        assert threading.get_ident() == self.thread
        self.open = False


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"id": list(values)})


def writers_of(targets: dict[str, Target], threads: int = 2) -> TargetWriters:
    address: Any = targets.__getitem__
    opened: Any = Target.opened
    return TargetWriters(address, opened, threads)


def test_each_target_has_its_rows_in_order() -> None:
    targets = {name: Target() for name in "abcde"}
    writers = writers_of(targets)
    for number in range(20):
        for at, name in enumerate(targets):
            writers.write(name, rows(100 * at + number))
    writers.flush()
    for name in targets:
        writers.prepare(name)
    for at, (name, target) in enumerate(targets.items()):
        expected = [100 * at + number for number in range(20)]
        assert writers.messages(name) == [str(expected).encode()]
        assert not target.open
    assert len({target.thread for target in targets.values()}) == 2
    assert writers.bases == dict.fromkeys(targets, 3)
    writers.close()


def test_a_target_without_rows_has_no_writer() -> None:
    writers = writers_of({"a": Target()})
    writers.prepare("a")
    assert writers.messages("a") == []
    assert writers.bases == {}
    writers.close()


def test_an_error_is_of_its_target_only() -> None:
    targets = {"a": Target(fails_at=2), "b": Target()}
    writers = writers_of(targets, 1)
    for name in targets:
        writers.write(name, rows(1))
        writers.write(name, rows(2))
        writers.prepare(name)
    with pytest.raises(SchemaChangeError):
        writers.messages("a")
    writers.discard("a")
    writers.write("a", rows(3))
    assert writers.messages("a") == []
    assert writers.messages("b") == [b"[1, 2]"]
    assert (targets["a"].rows, targets["a"].open) == ([1], False)
    assert writers.bases == {"b": 3}
    writers.close()


def test_rows_after_a_failed_write_raise_its_error() -> None:
    writers = writers_of({"a": Target(fails_at=1)})
    with pytest.raises(SchemaChangeError):
        for _ in range(10_000):
            writers.write("a", rows(1))
    writers.close()


def test_flush_raises_the_error_of_any_target() -> None:
    writers = writers_of({"a": Target(), "b": Target(fails_at=1)})
    writers.write("a", rows(1))
    writers.write("b", rows(1))
    with pytest.raises(SchemaChangeError):
        writers.flush()
    writers.close()


def test_close_drops_what_waits_and_closes_the_writers() -> None:
    target = Target()
    writers = writers_of({"a": target})
    writers.write("a", rows(1))
    writers.flush()
    target.may_write.clear()
    writers.write("a", rows(2))
    writers.write("a", rows(3))
    closing = threading.Thread(target=writers.close)
    closing.start()
    target.may_write.set()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
    assert not target.open
    assert target.rows[:1] == [1]


def test_few_bytes_of_rows_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    size = rows(1).nbytes
    monkeypatch.setattr(task, "_WAITING_BYTES", 2 * size)
    target = Target()
    target.may_write.clear()
    writers = writers_of({"a": target})
    sent: list[int] = []

    def send() -> None:
        for number in range(5):
            writers.write("a", rows(number))
            sent.append(number)

    sending = threading.Thread(target=send)
    sending.start()
    until(lambda: len(sent) >= 2)
    sending.join(0.2)
    assert sending.is_alive()
    assert sent == [0, 1]
    target.may_write.set()
    sending.join(DEADLINE_S)
    writers.flush()
    assert target.rows == [0, 1, 2, 3, 4]
    writers.close()


def test_a_large_target_is_closed_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_SMALL_BYTES", 0)
    target = Target()
    writers = writers_of({"a": target})
    writers.write("a", rows(1))
    writers.prepare("a")
    assert (target.rows, target.open) == ([1], False)
    writers.close()


def test_the_base_is_from_before_the_target_was_read() -> None:
    target = Target()
    writers = writers_of({"a": target})
    writers.read_at("a")
    target.snapshot = 5
    writers.write("a", rows(1))
    writers.flush()
    assert writers.bases == {"a": 3}
    writers.close()
