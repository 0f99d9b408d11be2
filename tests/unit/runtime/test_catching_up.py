"""Decides when a pipeline has caught up, and how often it checks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime import pipeline
from streamhouse.runtime.pipeline import Pipeline
from streamhouse.runtime.query_description import QueryProgress
from streamhouse.runtime.spark.settings import SparkOptions
from streamhouse.runtime.streaming.continuous_query import ContinuousQuery
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.runtime.sync.query import SyncQuery
from streamhouse.runtime.views.query import ViewQuery


class Reader:
    """A side of a pipeline that has work left for some checks."""

    reads: Sequence[TableAddress] = ()

    def __init__(self, busy: int, offsets: Sequence[int] = (1,)) -> None:
        self._busy, self._offsets = busy, list(offsets)
        self.checks = 0

    def step(self) -> None:
        pass

    def caught_up_offset(self) -> dict[str, Any] | None:
        self.checks += 1
        if self.checks <= self._busy:
            return None
        offset = self._offsets.pop(0) if len(self._offsets) > 1 else self._offsets[0]
        return {"snapshot": offset}

    def close(self) -> None:
        pass


def _run(*readers: Reader) -> None:
    Pipeline(SparkOptions("local"), stopped=lambda: False).run(True, readers)


def test_a_query_with_work_left_is_checked_alone() -> None:
    first, busy, last = readers = Reader(0), Reader(20), Reader(0)
    _run(*readers)
    # The first check, and those of the end.
    assert (first.checks, last.checks) == (4, 3)
    assert busy.checks == 23


def test_each_query_may_be_the_busy_one() -> None:
    readers = [Reader(3), Reader(5), Reader(0), Reader(2)]
    _run(*readers)
    assert [reader.checks for reader in readers] == [7, 9, 4, 5]


def test_offsets_must_stay_the_same() -> None:
    quiet, moving = Reader(0), Reader(0, [1, 2, 3, 4])
    _run(quiet, moving)
    assert moving.checks == quiet.checks == 6


def test_the_end_is_confirmed_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_TICK_S", 3600.0)
    reader = Reader(0)
    _run(reader)
    assert reader.checks == 3


def test_rows_that_become_visible_after_two_checks_are_read() -> None:
    # A compaction may end between the second look at the sources and the look for hidden rows.
    reader = Reader(0, [1, 1, 2, 2, 2])
    _run(reader)
    assert reader.checks == 5


@pytest.mark.parametrize("kind", [ContinuousQuery, ViewQuery, SyncQuery])
def test_a_query_has_work_left_while_a_batch_runs(kind: type[JobQuery]) -> None:
    query: Any = kind.__new__(kind)
    query.progress = QueryProgress({"batch": 1}, replayed=True)
    query.progress.planner = SimpleNamespace(caught_up=lambda offset: True)
    during: list[Any] = []
    query.commit = lambda sent: during.append(query.progress.caught_up_offset())
    query.run_batch(None)
    assert during == [None]
    assert query.progress.caught_up_offset() == {"batch": 1}
