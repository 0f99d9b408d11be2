"""Several tasks share a large file: each row is read exactly once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.runtime.test_batch_planner import ID, QUERY, Tables, numbers

from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming import batch_planner as planning
from streamhouse.runtime.streaming.batch_planner import BatchPlanner
from streamhouse.runtime.streaming.tasks import task_run as tasks_of
from streamhouse.runtime.streaming.tasks.task import run
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.source import Offset
from streamhouse.sql.plan import LookupJoin, LookupRetry, TableInfo

CHUNK = 10


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    monkeypatch.setattr(planning, "SHARED_ROWS", 30)
    monkeypatch.setattr(tasks_of, "CHUNK_ROWS", CHUNK)
    made = Tables(tmp_path)
    options = {"bucket": "-1", "read.batch-size": str(CHUNK)}
    warehouse = Warehouse(made.options)
    warehouse.create_table("d", "large", ID, options=options)
    warehouse.create_table("d", "dim", ID, ["id"], options={"bucket": "1"})
    made.spec = replace(made.spec, source=SourceSpec("paimon", {}, ID, made.address("large")))
    return made


def planned(tables: Tables, spec: QuerySpec, rows: int) -> list[SplitsInput]:
    """The tasks of a batch that reads so many rows of one file: 1000, 1001, …"""
    planner = BatchPlanner(spec)
    tables.write("large", numbers(1, 2))
    start: Offset = planner.latest_offset({})
    tables.write("large", numbers(*range(1000, 1000 + rows)))
    return planner.tasks(start, planner.latest_offset(start))


def done(tables: Tables, spec: QuerySpec, tasks: list[SplitsInput]) -> list[int]:
    """Run the tasks and commit what they wrote; how many rows each has read."""
    messages: dict[str, list[bytes]] = {}
    read = []
    for task in tasks:
        for record in pa.Table.from_batches(run(spec, task)).to_pylist():
            if record["report"] is not None:
                read.append(json.loads(record["report"])["rows"])
            else:
                messages.setdefault(record["table"], []).append(record["message"])
    for table, found in messages.items():
        TableCommitter(tables.options, table, spec.query_id).commit(tasks[0].batch, found)
    return read


def ids(tables: Tables, name: str) -> list[int]:
    table = Warehouse(tables.options).table(f"d.{name}")
    return sorted(row["id"] for batch in table.read(["id"]) for row in batch.to_pylist())


def test_each_row_of_a_large_file_is_taken_by_one_task(tables: Tables) -> None:
    spec = replace(tables.spec, query=QUERY)
    tasks = planned(tables, spec, 95)
    assert [(task.share, task.shares) for task in tasks] == [(0, 2), (1, 2)]
    assert tasks[0].splits == tasks[1].splits
    assert done(tables, spec, tasks) == [50, 45]
    assert ids(tables, "out") == list(range(1000, 1095))


def test_rows_that_miss_wait_once(tables: Tables) -> None:
    dim = TableInfo(("c", "d", "dim"), ID, primary_key=("id",))
    retry = LookupRetry(delay_ms=1000, max_attempts=3)
    lookup = LookupJoin(dim, "dim_0", ("id",), ("id",), False, retry)
    query = replace(
        tables.spec.query,
        lookups=(lookup,),
        rows=replace(QUERY.rows, sql="SELECT src.id FROM src JOIN dim_0 ON src.id = dim_0.id"),
        misses_sql="SELECT _row FROM src WHERE id NOT IN (SELECT id FROM dim_0)",
    )
    spec = replace(tables.spec, query=query, lookups=(tables.address("dim"),))
    there = [number for number in range(1000, 1095) if number % 7]
    tables.write("dim", numbers(*there))
    assert sum(done(tables, spec, planned(tables, spec, 95))) == 95
    assert ids(tables, "out") == there
    assert ids(tables, "out__pending") == [n for n in range(1000, 1095) if n % 7 == 0]


def test_what_is_small_is_one_task(tables: Tables) -> None:
    (task,) = planned(tables, tables.spec, 29)
    assert (task.share, task.shares) == (0, 1)


def test_what_has_an_order_is_one_task(tables: Tables) -> None:
    """The last value of a key wins, so that its rows stay in one task."""
    Warehouse(tables.options).create_table("d", "keyed", ID, ["id"], options={"bucket": "1"})
    spec = replace(tables.spec, query=QUERY, target=tables.address("keyed"))
    assert len(planned(tables, spec, 95)) == 1


def test_what_was_there_before_the_query_is_shared_too(tables: Tables) -> None:
    spec = replace(tables.spec, query=QUERY)
    tables.write("large", numbers(*range(95)))
    planner = BatchPlanner(spec)
    tasks = planner.tasks({}, planner.latest_offset({}))
    assert [(task.share, task.shares) for task in tasks] == [(0, 2), (1, 2)]
    assert sum(done(tables, spec, tasks)) == 95
    assert ids(tables, "out") == list(range(95))
