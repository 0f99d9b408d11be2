"""Distinct values counted over generated changes, against a plain model; without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.single_stream import analyze_stream

import streamhouse
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state.distinct_counts import create_table
from streamhouse.runtime.streaming.batch_planner import BatchPlanner
from streamhouse.runtime.streaming.tasks.task import Task
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.source import Offset
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Insert

TARGET = """CREATE TABLE {target} (v_month STRING PRIMARY KEY NOT ENFORCED, members BIGINT,
  fresh BIGINT, prices BIGINT, orders BIGINT, amount BIGINT, seen TIMESTAMP(3)) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation',
  'fields.default-aggregate-function' = 'sum',
  'fields.seen.aggregate-function' = 'last_non_null_value')"""
SOURCE = """CREATE TABLE {source} (id INT{key}, v_month STRING, member INT, kind STRING,
  price DOUBLE, seen TIMESTAMP(3)) WITH ('bucket' = '{bucket}'{more})"""
QUERY = """INSERT INTO {target} SELECT v_month, COUNT(DISTINCT member),
  COUNT(DISTINCT CASE WHEN kind = 'new' THEN member END),
  COUNT(DISTINCT price) FILTER (WHERE kind <> 'void'),
  COUNT(*), SUM(member), LAST_VALUE(seen) FROM {source}
  WHERE member <> 9 GROUP BY v_month"""
Row = tuple[str, int | None, str, float]
_numbers = itertools.count()


class World:
    """One query over one source, its batches run and committed in this process."""

    def __init__(self, folder: Path, keyed: bool, raw: bool = False) -> None:
        self.options = {"warehouse": str(folder)}
        number = next(_numbers)
        names = {"target": f"t{number}", "source": f"s{number}"}
        shape = {
            "key": " PRIMARY KEY NOT ENFORCED" if keyed else "",
            "bucket": "1" if keyed else "-1",
            "more": ", 'changelog-producer' = 'input'" if keyed else "",
        }
        ddl = f"{TARGET};{SOURCE}".format(**names, **shape)
        streamhouse.execute(str(folder), ddl)
        session = Session(self.options)
        if raw:
            names["source"] += " /*+ OPTIONS('scan.remove-normalize'='true') */"
        (insert,) = parse_script(QUERY.format(**names))
        assert isinstance(insert, Insert)
        query = analyze_stream(insert.query, session, session.table(insert.target))
        target = session.endpoints.address(session.table(insert.target))
        values = target.auxiliary_table("distinct")
        self.spec = QuerySpec(
            query,
            (session.endpoints.source(query),),
            (),
            target,
            f"q{number}",
            2,
        )
        assert query.distinct is not None
        create_table(values, query.distinct, target)
        self.planner = BatchPlanner(self.spec)
        self.source = f"default.s{number}"
        self.at: Offset = {}

    def write(self, number: int, rows: list[dict[str, Any]]) -> None:
        if rows:
            writer = TableWriter(self.options, self.source, "test")
            writer.write(pa.RecordBatch.from_pylist(rows))
            messages = writer.prepare(number)
            writer.close()
            TableCommitter(self.options, self.source, "test").commit(number, messages)

    def batch(self) -> bool:
        """Run what is new as one batch; whether there was anything."""
        start, end = self.at, self.planner.latest_offset(self.at)
        if start == end:
            return False
        (task,) = self.planner.tasks(start, end)
        messages, written = self.run(task)
        self.commit(task, messages, self.spec.target)
        # A driver that died here has the batch done again.
        again, rewritten = self.run(task)
        assert rewritten == written
        self.commit(task, again, self.spec.target)
        assert self.spec.distinct is not None
        self.commit(task, again, self.spec.distinct)
        assert self.run(task)[1] == written
        self.at = end
        return True

    def run(self, task: SplitsInput) -> tuple[list[tuple[str, bytes]], Any]:
        written: dict[str, list[dict[str, Any]]] = {}
        write_table = TaskRun.write_table

        def recorded(run: TaskRun, address: TableAddress, tables: Sequence[pa.Table]) -> Any:
            rows = [row for table in tables for row in table.to_pylist()]
            ordered = sorted(rows, key=lambda row: [str(value) for value in row.values()])
            written[address.identifier] = ordered
            return write_table(run, address, tables)

        with patch.object(TaskRun, "write_table", recorded):
            (batch,) = Task(self.spec, task).run()
        rows = [(row["table"], row["message"]) for row in batch.to_pylist() if row["table"]]
        return rows, written

    def commit(
        self, task: SplitsInput, messages: list[tuple[str, bytes]], address: TableAddress
    ) -> None:
        own = [message for table, message in messages if table == address.identifier]
        committer = TableCommitter(self.options, address.identifier, self.spec.query_id)
        committer.commit(task.batch, own)

    def counts(self) -> dict[str, tuple[int, ...]]:
        table = self.spec.target.open()
        if table.latest_snapshot_id() is None:
            return {}
        rows = [row for batch in table.read() for row in batch.to_pylist()]
        columns = ("members", "fresh", "prices", "orders", "amount")
        found = {row["v_month"]: tuple(row[name] or 0 for name in columns) for row in rows}
        return {month: counts for month, counts in found.items() if any(counts)}


def expected(rows: Mapping[int, Row]) -> dict[str, tuple[int, ...]]:
    kept = [row for row in rows.values() if row[1] is not None and row[1] != 9]
    found = {}
    for month in {row[0] for row in kept}:
        own = [row for row in kept if row[0] == month]
        found[month] = (
            len({member for _, member, _, _ in own}),
            len({member for _, member, kind, _ in own if kind == "new"}),
            len({price for _, _, kind, price in own if kind != "void"}),
            len(own),
            sum(member or 0 for _, member, _, _ in own),
        )
    return {month: counts for month, counts in found.items() if any(counts)}


def record(key: int, row: Row, kind: str) -> dict[str, Any]:
    names = ("v_month", "member", "kind", "price")
    return {"id": key, **dict(zip(names, row, strict=True)), "seen": None, "rowkind": kind}


MEMBERS = st.one_of(st.none(), st.integers(1, 3), st.just(9))
ROWS = st.tuples(
    st.sampled_from(["2026-01", "2026-02"]), MEMBERS, st.sampled_from(["new", "old", "void"]),
    st.sampled_from([0.0, -0.0, 1.5]),
)  # fmt: skip
STEPS = st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), ROWS)), max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distinct")


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(STEPS, min_size=1, max_size=4))
def test_counts_are_right_after_every_batch(folder: Path, batches: list[Any]) -> None:
    world, rows = World(folder, keyed=True), dict[int, Row]()
    for number, steps in enumerate(batches):
        changes = []
        for key, row in steps:
            if key in rows:
                changes.append(record(key, rows[key], "-D" if row is None else "-U"))
            if row is not None:
                changes.append(record(key, row, "+U" if key in rows else "+I"))
                rows[key] = row
            else:
                rows.pop(key, None)
        world.write(number, changes)
        world.batch()
        assert world.counts() == expected(rows)


def test_an_append_table_is_counted_across_batches(folder: Path) -> None:
    world, rows = World(folder, keyed=False), dict[int, Row]()
    for number in range(3):
        for key in range(number * 4, number * 4 + 4):
            rows[key] = ("2026-01", key % (number + 2) + 1, "new" if key % 2 else "old", key / 4)
        own = {key: row for key, row in rows.items() if key >= number * 4}
        world.write(number, [record(k, r, "+I") for k, r in own.items()])
        assert world.batch()
        assert world.counts() == expected(rows)


def test_the_table_of_values_counts_each(folder: Path) -> None:
    world = World(folder, keyed=True)
    rows: dict[int, Row] = {1: ("2026-01", 1, "new", 1.0), 2: ("2026-01", 1, "old", 1.0)}
    world.write(0, [record(key, row, "+I") for key, row in rows.items()])
    world.batch()
    world.write(1, [record(2, rows[2], "-D")])
    world.batch()
    assert world.spec.distinct is not None
    read = [row for batch in world.spec.distinct.open().read() for row in batch.to_pylist()]
    assert {(row["_column"], row["_value"], row["_count"]) for row in read} == {
        ("members", "1", 1), ("fresh", "1", 1), ("prices", "1.0", 1),
    }  # fmt: skip
    assert {row["_query"] for row in read} == {world.spec.query_id}


def test_a_value_that_was_never_counted_is_reported(folder: Path) -> None:
    world = World(folder, keyed=True, raw=True)
    world.write(0, [record(1, ("2026-01", 1, "new", 1.0), "+I")])
    world.batch()
    world.write(1, [record(1, ("2026-01", 2, "new", 1.0), "-D")])
    message = r"the value '2' of column '.*' \(v_month = 2026-01\) is retracted 1 time"
    with pytest.raises(StreamhouseError, match=message):
        world.batch()
    assert world.counts() == {"2026-01": (1, 1, 1, 1, 1)}
