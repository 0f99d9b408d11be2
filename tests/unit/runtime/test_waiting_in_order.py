"""Pending rows of a changelog keep the order of each key, for any order of events."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.batch_query import BatchQuery
from tests.unit.sql.conftest import Catalog

from streamhouse.connectors.bad_records import (
    DeadLetterReplays,
    SkippingSource,
    create_tables,
)
from streamhouse.connectors.specs import SourceSpec
from streamhouse.lookup.strategies.selection import IN_ORDER
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.runtime.audit.recompute import Recomputation
from streamhouse.runtime.audit.recorded_batches import RecordedBatches
from streamhouse.runtime.query_operator import numbered
from streamhouse.runtime.query_spec import QuerySpec, unshuffled
from streamhouse.runtime.state import pending_rows
from streamhouse.runtime.state.recorded_query import definition_json
from streamhouse.runtime.streaming.tasks import task_run as tasks_of
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.runtime.streaming.tasks.waiting import Waiting
from streamhouse.source import BAD_RECORDS, ROW_KIND

TABLES = """
CREATE TABLE src (id INT PRIMARY KEY NOT ENFORCED, note STRING, ref INT);
CREATE TABLE dim (id INT PRIMARY KEY NOT ENFORCED, name STRING);
CREATE TABLE out_ (id INT PRIMARY KEY NOT ENFORCED, ref INT, name STRING);
"""
SQL = """
INSERT INTO out_ SELECT /*+ LOOKUP('table'='d', 'retry-predicate'='lookup_miss',
  'retry-strategy'='fixed_delay', 'fixed-delay'='{delay}', 'max-attempts'='{attempts}') */
  s.id, s.ref, d.name FROM src AS s {join} JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d
  ON s.ref = d.id
"""
INT = pa.int32()
SRC = pa.schema([("id", INT), ("note", pa.string()), ("ref", INT), (ROW_KIND, pa.string())])
DIM = pa.schema([("id", INT), ("name", pa.string())])
REFS = 4


class Query(BatchQuery):
    """One query over a keyed table, run batch by batch in this process."""

    def __init__(self, folder: Path, join: str = "", delay: str = "1ms", attempts: int = 1000):
        super().__init__(folder)
        catalog = Catalog()
        catalog.add(TABLES)
        for name, table in catalog.tables.items():
            bucket = {"bucket": "1"}
            self.warehouse.create_table(
                "default", name, table.columns, table.primary_key, (), bucket
            )
        query = catalog.stream(SQL.format(join=join, delay=delay, attempts=attempts))
        assert unshuffled(query, catalog.tables["out_"]) == IN_ORDER
        source = SourceSpec("paimon", {}, query.source.columns, self._address("src"))
        target = self._address("out_")
        waiting, lost = target.auxiliary_table("pending"), target.auxiliary_table("unmatched")
        pending_rows.create_tables(waiting, lost, query.source.columns, changelog=True)
        dimension = (self._address("dim"),)
        self._start(QuerySpec(query, source, dimension, target, "q", 2))
        assert self.spec.waits_in_order
        self.current: dict[int, tuple[str, int]] = {}
        self.names: dict[int, str] = {}

    def put(self, key: int, ref: int) -> None:
        """Insert or update a row of the source."""
        note = f"n{self._commits}"
        row = {"id": key, "note": note, "ref": ref, ROW_KIND: "+I"}
        self._write("src", [row], SRC)
        self.current[key] = (note, ref)

    def delete(self, key: int) -> None:
        note, ref = self.current.pop(key)
        self._write("src", [{"id": key, "note": note, "ref": ref, ROW_KIND: "-D"}], SRC)

    def name(self, ref: int) -> None:
        """The row of the dimension arrives."""
        self.names[ref] = f"name {ref}"
        self._write("dim", [{"id": ref, "name": self.names[ref]}], DIM)

    def found(self) -> dict[int, tuple[int, str | None]]:
        return {row["id"]: (row["ref"], row["name"]) for row in self.rows("out_")}

    def recomputed(self) -> dict[int, tuple[int, str | None]]:
        """The target as the audit computes it."""
        there: dict[int, tuple[int, str | None]] = {}
        definitions = {"f": definition_json(self.spec)}
        audit = Recomputation(RecordedBatches(self.spec.target, (), definitions))
        for step in audit.steps(self._batches):
            for row in step.rows.to_pylist():
                if row[ROW_KIND] in ("-U", "-D"):
                    there.pop(row["id"], None)
                else:
                    there[row["id"]] = (row["ref"], row["name"])
        waiting = 0 if audit.waiting is None else len(audit.waiting.states)
        assert waiting == len(self.rows("out___pending"))
        return there

    @property
    def matched(self) -> dict[int, tuple[int, str | None]]:
        """The rows of the source now whose lookups have a row."""
        there = {key: ref for key, (_, ref) in self.current.items() if ref in self.names}
        return {key: (ref, self.names[ref]) for key, ref in there.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tasks_of, "CHUNK_ROWS", 2)
    yield tmp_path


def test_a_row_that_was_replaced_while_it_waited_does_not_come_back(folder: Path) -> None:
    query = Query(folder)
    query.name(1)
    query.put(7, 0)
    assert query.batch()
    assert (query.found(), len(query.rows("out___pending"))) == ({}, 1)
    query.put(7, 1)
    query.batch()
    assert query.found() == {7: (1, "name 1")}
    assert query.rows("out___pending") == []
    query.name(0)
    query.batch()
    assert query.found() == query.recomputed() == {7: (1, "name 1")}


def test_a_retraction_does_not_wait_for_a_match_that_is_gone(folder: Path) -> None:
    query = Query(folder)
    query.name(0)
    query.name(1)
    query.put(7, 0)
    query.put(8, 0)
    query.batch()
    gone = {"id": 0, "name": "name 0", ROW_KIND: "-D"}
    query._write("dim", [gone], DIM.append(pa.field(ROW_KIND, pa.string())))
    query.put(7, 1)
    query.delete(8)
    query.batch()
    assert query.found() == query.recomputed() == {7: (1, "name 1")}
    assert query.rows("out___pending") == []


def test_rows_behind_one_that_waits_do_not_overtake_it(folder: Path) -> None:
    """A row of another key's lookup may have a match at once; those of one key stay in order."""
    query = Query(folder)
    query.name(1)
    query.put(9, 1)
    end = query._planner.latest_offset({})
    run = TaskRun(query.spec, query._planner.tasks({}, end)[0])
    run.bind()
    waiting = Waiting(run)
    rows = [(7, 0, "+I"), (7, 1, "+U"), (8, 1, "+I"), (6, 0, "+I"), (6, 0, "-D")]
    columns = [{"id": id_, "note": "", "ref": ref, ROW_KIND: kind} for id_, ref, kind in rows]
    passed = waiting.take(numbered(pa.Table.from_pylist(columns, SRC), 0))
    assert passed.column("id").to_pylist() == [8]
    messages = [message for _, message in waiting.finish() if isinstance(message, bytes)]
    pending = query.spec.target.auxiliary_table("pending")
    TableCommitter(pending.warehouse, pending.identifier, "q").commit(0, messages)
    left = [(row["id"], row["ref"], row["_attempts"]) for row in query.rows("out___pending")]
    assert left == [(7, 0, 0), (7, 1, -1)]


def test_rows_behind_one_without_attempts_left_follow_at_once(folder: Path) -> None:
    query = Query(folder, attempts=1)
    query.name(1)
    query.put(7, 0)
    query.put(8, 1)
    query.batch()
    time.sleep(0.01)
    query.batch()
    assert [row["id"] for row in query.rows("out___unmatched")] == [7]
    assert query.found() == query.recomputed() == {8: (1, "name 1")}


def test_no_batch_is_planned_for_rows_that_are_not_due(folder: Path) -> None:
    query = Query(folder, delay="1h")
    query.put(7, 0)
    assert query.batch() and not query.batch()
    query.put(7, 0)
    query.put(8, 0)
    assert query.batch() and not query.batch()
    assert query.found() == query.recomputed() == {}


class FaultySource(PaimonSource, SkippingSource):
    """A source that leaves out one bad record of each partition."""

    def __init__(self, source: Any, replayed: list[DeadLetterReplays]) -> None:
        self.__dict__.update(source.__dict__)
        self._replayed, self._bad = replayed, 0

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        self._bad += 1

    def bad_records(self) -> pa.Table:
        bad, self._bad = self._bad, 0
        record = {"position": "offset 5", "reason": "why", "value": b"bad", "headers": []}
        return pa.Table.from_pylist([record] * bad, BAD_RECORDS)

    def replay_from(self, replays: DeadLetterReplays) -> None:
        self._replayed.append(replays)

    def changes_read(self) -> dict[str, int]:
        return {"+I": 1}


def test_bad_records_are_stored_while_rows_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[DeadLetterReplays] = []
    opened = SourceSpec.open

    def faulty(spec: SourceSpec, names: Sequence[str] | None = None) -> Any:
        return FaultySource(opened(spec, names), replayed)

    monkeypatch.setattr(SourceSpec, "open", faulty)
    query = Query(folder)
    dead_letters = query.spec.target.auxiliary_table("bad")
    create_tables(dead_letters)
    query.spec = replace(query.spec, dead_letters=dead_letters)
    query.put(7, 0)
    assert query.batch()
    (bad,) = query.rows("out___bad")
    assert (bad["position"], bad["value"], bad["batch"]) == ("offset 5", b"bad", 0)
    assert query.reports[0]["bad"] == 1
    assert query.reports[0]["changes"] == {"+I": 1}
    assert len(replayed) == 1


@pytest.mark.parametrize(
    ("join", "seed"),
    [
        *(("", 0), ("LEFT", 1)),
        *(
            pytest.param(join, seed, marks=pytest.mark.soak)
            for join in ("", "LEFT")
            for seed in range(60)
        ),
    ],
)
def test_all_orders_of_changes_lookups_and_batches(folder: Path, join: str, seed: int) -> None:
    draw = random.Random(seed)
    attempts = draw.choice((2, 1000, 1000))
    query = Query(folder, join, draw.choice(("1ms", "1ms", "20ms")), attempts)
    for _ in range(30):
        action = draw.choice(("put", "put", "put", "delete", "name", "batch", "batch"))
        key = draw.randrange(3)
        if action == "put":
            query.put(key, draw.randrange(REFS))
        elif action == "delete" and key in query.current:
            query.delete(key)
        elif action == "name":
            query.name(draw.randrange(REFS))
        elif action == "batch":
            query.batch()
    assert query.found() == query.recomputed()
    for ref in range(REFS):
        query.name(ref)
    for _ in range(50):
        time.sleep(0.021)
        if not query.batch() and not query.rows("out___pending"):
            break
    assert query.rows("out___pending") == []
    assert query.found() == query.recomputed()
    if attempts == 1000:
        assert query.found() == query.matched
