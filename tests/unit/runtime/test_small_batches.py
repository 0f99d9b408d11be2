"""Small batches skip the bucket shuffle."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streamhouse.connectors.specs import SourceSpec
from streamhouse.lookup.strategies.selection import BUCKET, Choice
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.batch_planner import BatchPlanner
from streamhouse.runtime.streaming.shuffle import blocks
from streamhouse.runtime.streaming.shuffle.shuffle import run
from streamhouse.runtime.streaming.tasks import worker_resources
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_protocol import RESULT
from streamhouse.source import Offset
from streamhouse.sql.plan import Column, LookupJoin, OutputRows, StreamQuery, StreamScan, TableInfo

ID = (Column("id", "INT"),)
PERSON = (Column("id", "INT", nullable=False), Column("name", "STRING"))


class Joined:
    """Clicks that look up people by bucket, and what a run of the query keeps."""

    def __init__(self, path: Path, least_rows: int) -> None:
        self.options = {"warehouse": str(path / "warehouse")}
        warehouse = Warehouse(self.options)
        warehouse.create_database("d")
        warehouse.create_table("d", "clicks", ID, options={"bucket": "-1"})
        warehouse.create_table("d", "out", PERSON, ["id"], options={"bucket": "1"})
        warehouse.create_table("d", "people", PERSON, ["id"], options={"bucket": "2"})
        keys = "SELECT id FROM src"
        people = LookupJoin(
            TableInfo(("c", "d", "people"), PERSON, primary_key=("id",)),
            "dim_0",
            ("id", "name"),
            ("id",),
            False,
            options={"lookup.bucket.shuffle-min-rows": str(least_rows)},
            key_columns=("id",),
            keys_sql=keys,
            row_keys_sql="SELECT _row, id FROM src",
        )
        query = StreamQuery(
            StreamScan(TableInfo(("c", "d", "clicks"), ID), ("id",), changelog=False),
            (people,),
            OutputRows(
                "SELECT s.id, d.name FROM src s JOIN dim_0 d USING (id)",
                PERSON,
                "SELECT s.id, d.name, s._row FROM src s JOIN dim_0 d USING (id)",
            ),
            path.name,
        )
        source = SourceSpec("paimon", {}, ID, self.address("clicks"))
        addresses = (self.address("people"),)
        spec = QuerySpec(query, source, addresses, self.address("out"), path.name, 2)
        choice = Choice(BUCKET, "set by hint", 2)
        self.spec = replace(spec, choices=(choice,), gathered=True)
        self.folder = path / "run"
        self.folder.mkdir()
        self.planner = BatchPlanner(self.spec, self.folder)
        self.commits = 0

    def address(self, name: str) -> TableAddress:
        return TableAddress(self.options, f"d.{name}")

    def write(self, name: str, rows: pa.Table) -> None:
        writer = TableWriter(self.options, f"d.{name}", "test")
        for batch in rows.to_batches():
            writer.write(batch)
        messages = writer.prepare(self.commits)
        writer.close()
        TableCommitter(self.options, f"d.{name}", "test").commit(self.commits, messages)
        self.commits += 1

    def click(self, *ids: int) -> None:
        self.write("clicks", pa.table({"id": pa.array(ids, pa.int32())}))

    def batch(self, start: Offset) -> tuple[Offset, list[SplitsInput]]:
        end = self.planner.latest_offset(start)
        return end, self.planner.tasks(start, end)


def people(*ids: int) -> pa.Table:
    names = [f"p{one}" for one in ids]
    return pa.table({"id": pa.array(ids, pa.int32()), "name": names})


def test_a_small_batch_is_joined_where_it_is_read(tmp_path: Path) -> None:
    shop = Joined(tmp_path, 10)
    shop.write("people", people(1, 2, 3))
    shop.click(1)
    first, tasks = shop.batch({})
    assert [task.shuffled for task in tasks] == [True]
    assert not first["whole"]
    shop.click(3, 7, 2)
    second, tasks = shop.batch(first)
    assert [task.shuffled for task in tasks] == [False]
    assert second["whole"]
    (result,) = run(shop.spec, tasks[0])
    assert result.schema == RESULT and result.column("task").null_count == result.num_rows
    rows = result.to_pylist()
    messages = [row["message"] for row in rows if row["message"] is not None]
    assert rows[-1]["report"] is not None and len(messages) == len(rows) - 1 > 0
    # What it has opened is also that of batches whose rows are gathered.
    opened = worker_resources._open[os.getpid(), shop.spec.query_id]
    assert worker_resources.resources_of(shop.spec) is opened
    TableCommitter(shop.options, "d.out", "q").commit(1, messages)
    found = pa.Table.from_batches(shop.address("out").open().read()).to_pylist()
    assert found == [{"id": 2, "name": "p2"}, {"id": 3, "name": "p3"}]


def test_batches_of_more_rows_are_spread(tmp_path: Path) -> None:
    shop = Joined(tmp_path, 3)
    shop.write("people", people(1, 2))
    shop.click(1)
    first, _ = shop.batch({})
    shop.click(1, 2, 3)
    shop.click(4)
    second, tasks = shop.batch(first)
    assert {task.shuffled for task in tasks} == {True} and not second["whole"]
    shop.click(5, 6)
    _, tasks = shop.batch(second)
    assert [task.shuffled for task in tasks] == [False]


def test_large_dimensions_are_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Joined(tmp_path, 10)
    shop.write("people", people(1, 2))
    shop.click(1)
    first, _ = shop.batch({})
    monkeypatch.setattr(blocks, "_DIMENSION_ROWS", 1)
    shop.click(2)
    second, tasks = shop.batch(first)
    assert {task.shuffled for task in tasks} == {True}
    monkeypatch.setattr(blocks, "_DIMENSION_ROWS", 2)
    shop.click(2)
    assert [task.shuffled for task in shop.batch(second)[1]] == [False]


def test_an_empty_first_batch_has_no_task(tmp_path: Path) -> None:
    shop = Joined(tmp_path, 10)
    assert shop.batch({}) == ({}, [])
