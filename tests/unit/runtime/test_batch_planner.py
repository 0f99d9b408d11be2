"""An offset determines a batch: planning it again gives the same tasks."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streamhouse.connectors.specs import SourceSpec
from streamhouse.lookup.storage import changed_keys
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import pending_rows
from streamhouse.runtime.streaming.batch_planner import BatchPlanner
from streamhouse.runtime.streaming.dimensions.versions import report_loaded
from streamhouse.source import Offset
from streamhouse.sql.plan import Column, LookupJoin, OutputRows, StreamQuery, StreamScan, TableInfo

ID = (Column("id", "INT"),)
QUERY = StreamQuery(
    StreamScan(TableInfo(("c", "d", "src"), ID), ("id",), changelog=False),
    (),
    OutputRows("SELECT id FROM src", ID),
    "f",
)


class Tables:
    """A source, a target and waiting rows, in one warehouse."""

    def __init__(self, path: Path) -> None:
        self.options = {"warehouse": str(path)}
        warehouse = Warehouse(self.options)
        warehouse.create_database("d")
        warehouse.create_table("d", "src", ID, options={"bucket": "-1"})
        warehouse.create_table("d", "out", ID, options={"bucket": "-1"})
        target = self.address("out")
        waiting, gone = target.auxiliary_table("pending"), target.auxiliary_table("unmatched")
        pending_rows.create_tables(waiting, gone, ID, changelog=False)
        source = SourceSpec("paimon", {}, ID, self.address("src"))
        query = replace(QUERY, misses_sql="SELECT _row FROM src WHERE false")
        self.spec = QuerySpec(query, source, (), target, "q", 2)
        self.commits = 0

    def address(self, name: str) -> TableAddress:
        return TableAddress(self.options, f"d.{name}")

    def write(self, name: str, rows: pa.Table) -> None:
        identifier = f"d.{name}"
        writer = TableWriter(self.options, identifier, "test")
        for batch in rows.to_batches():
            writer.write(batch)
        messages = writer.prepare(self.commits)
        writer.close()
        TableCommitter(self.options, identifier, "test").commit(self.commits, messages)
        self.commits += 1

    def put_off(self, query: str, due_ms: int) -> None:
        """One row of a query that waits until a time."""
        rows = pa.table({"id": pa.array([1], pa.int32())})
        attempts = pa.array([0], pa.int32())
        waiting = pending_rows.as_waiting(rows, query, pa.array([f"r{due_ms}"]), due_ms, attempts)
        self.write("out__pending", waiting)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int32())})


def test_nothing_new_is_no_batch(tables: Tables) -> None:
    planner = BatchPlanner(tables.spec)
    assert planner.latest_offset({}) == {}
    tables.write("src", numbers(1, 2))
    first = planner.latest_offset({})
    assert (first["batch"], first["pending"]) == (0, 0)
    assert planner.latest_offset(first) == first
    assert planner.caught_up(first)
    tables.write("src", numbers(3))
    assert not planner.caught_up(first)
    assert planner.latest_offset(first)["batch"] == 1


def test_a_due_row_starts_a_batch_and_one_that_is_not_due_does_not(tables: Tables) -> None:
    planner = BatchPlanner(tables.spec)
    tables.put_off("other", now_ms() - 1)
    assert planner.latest_offset({}) == {}
    tables.put_off("q", now_ms() + 3_600_000)
    assert planner.latest_offset({}) == {}
    assert not planner.caught_up({})
    tables.put_off("q", now_ms() - 1)
    end = planner.latest_offset({})
    assert (end["batch"], end["pending"]) == (0, 3)
    (task,) = planner.tasks({}, end)
    assert (task.due, task.splits) == (True, ())
    rows = pending_rows.PendingRows(tables.address("out__pending"), "q")
    before = rows.read(end["pending"])
    # More rows that come due later change nothing in the batch as planned.
    tables.put_off("q", end["now"] - 5)
    assert rows.read(end["pending"]) == before


def test_a_planned_batch_is_the_same_in_another_process(tables: Tables) -> None:
    tables.write("src", numbers(1))
    tables.write("src", numbers(2))
    end = BatchPlanner(tables.spec).latest_offset({})
    tables.write("src", numbers(3))
    again = BatchPlanner(tables.spec)
    source = again.source
    read = [
        row
        for task in again.tasks({}, end)
        for split in task.splits
        for batch in source.read(split)
        for row in batch.column("id").to_pylist()
    ]
    assert sorted(read) == [1, 2]


def test_the_time_of_batches_grows_even_if_the_clock_does_not(tables: Tables) -> None:
    tables.write("src", numbers(1))
    planner = BatchPlanner(tables.spec)
    ahead = {**planner.latest_offset({}), "now": now_ms() + 60_000}
    tables.write("src", numbers(2))
    assert planner.latest_offset(ahead)["now"] == ahead["now"] + 1


def test_queries_without_retry_look_at_no_pending_table(tables: Tables) -> None:
    tables.put_off("q", now_ms() - 1)
    planner = BatchPlanner(replace(tables.spec, query=QUERY))
    assert planner.latest_offset({}) == {}
    assert planner.caught_up({})


def test_what_is_coming_is_joined_once_all_tasks_have_it(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 0)
    Warehouse(tables.options).create_table("d", "dim", ID, options={"bucket": "-1"})
    dim = TableInfo(("c", "d", "dim"), ID, options={"lookup.refresh.async": "true"})
    lookup = LookupJoin(dim, "dim_0", ("id",), ("id",), False)
    query = replace(QUERY, lookups=(lookup,))
    spec = replace(tables.spec, query=query, lookups=(tables.address("dim"),))
    folder = tmp_path / "run"
    folder.mkdir()
    tables.write("dim", numbers(1))
    start: Offset = {}
    seen = []
    reported: list[list[list[str]]] = [[["dim_0"]], [["dim_0"], []], [["dim_0"], ["dim_0"]], [[]]]
    for loaded in reported:
        tables.write("src", numbers(1))
        # Each in another process, as Spark may do it.
        end = BatchPlanner(spec, folder).latest_offset(start)
        assert BatchPlanner(spec).latest_offset(start)["dims"] == start.get("dims", end["dims"])
        seen.append((end["dims"]["dim_0"], end.get("coming")))
        report_loaded(folder, end, [{"loaded": one} for one in loaded])
        if not start:
            tables.write("dim", numbers(2))
        start = end
    is_coming = {"dim_0": {"snapshot": 2}}
    assert seen == [(1, None), (1, is_coming), (1, is_coming), (2, None)]
