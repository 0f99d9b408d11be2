"""Which partitions a lookup joins, and what is read of them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError
from streamhouse.lookup import partitions
from streamhouse.lookup.partitions import Partition, PartitionRule
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

DAY_HOUR = (pa.field("dt", pa.date32()), pa.field("h", pa.int32()))
FOUND: list[Partition] = [("20454", "9"), ("20455", "10"), ("20455", "9"), ("20454", None)]
JAN = datetime.date(2026, 1, 1)


def rule(text: str, keys: tuple[str, ...] = ("dt", "h")) -> PartitionRule:
    return PartitionRule.parse(text, keys, "lookup of t")


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("max_pt()", [("20455", "10")]),
        (" MAX_PT() ", [("20455", "10")]),
        ("max_two_pt()", [("20455", "10"), ("20455", "9")]),
        ("dt=max_pt()", [("20455", "10"), ("20455", "9")]),
        ("dt=max_pt(), h=max_pt()", [("20455", "10")]),
        ("dt=2026-01-01,h=max_pt()", [("20454", "9")]),
        ("dt=2026-01-01,h=9; dt=20455,h=9", [("20454", "9"), ("20455", "9")]),
        ("dt=2026-01-01,h=__DEFAULT_PARTITION__", [("20454", None)]),
        ("dt=2025-12-31,h=1", []),
    ],
)
def test_choices(text: str, chosen: list[Partition]) -> None:
    assert rule(text).choose(FOUND, DAY_HOUR) == chosen
    assert rule(text).choose(reversed(FOUND), DAY_HOUR) == chosen


def test_texts_go_by_their_letters_and_numbers_by_their_value() -> None:
    found: list[Partition] = [("9",), ("10",), (None,)]
    newest = rule("max_pt()", ("h",))
    assert newest.choose(found, [pa.field("h", pa.int64())]) == [("10",)]
    assert newest.choose(found, [pa.field("h", pa.string())]) == [("9",)]
    assert newest.choose([(None,)], [pa.field("h", pa.string())]) == [(None,)]
    assert newest.choose([], [pa.field("h", pa.string())]) == []


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        ("max_pt()", (), "needs a table with partitions"),
        ("max_pt", ("dt",), "not a partition specification; write 'max_pt"),
        ("dd=max_pt()", ("dt",), "'dd' is not a partition key; did you mean 'dt'"),
        ("h=max_pt()", ("dt", "h"), "has no value for 'dt', which comes first"),
        ("dt=2026-01-01", ("dt", "h"), "has no value for h; write"),
        ("dt=max_pt();dt=1", ("dt",), "cannot be combined with ';'"),
    ],
)
def test_mistakes_are_reported(text: str, keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("(", r"\(")):
        rule(text, keys)


def test_a_text_that_is_no_day_is_reported() -> None:
    with pytest.raises(OptionError, match="partition key 'dt': 'new' is not a value of type date"):
        rule("dt=new,h=1").choose(FOUND, DAY_HOUR)


class Days:
    """A partitioned table in a warehouse; each write is a snapshot."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.options = {"warehouse": str(folder)}
        warehouse = Warehouse(self.options)
        warehouse.create_database("d", if_not_exists=True)
        columns = (Column("p", kind), Column("id", "INT"))
        warehouse.create_table("d", "t", columns, (), ("p",), {"bucket": "-1"})
        self.table: Table = warehouse.table("d.t")
        self.commits = 0

    def write(self, *rows: tuple[Any, int]) -> None:
        batch = pa.RecordBatch.from_pylist(
            [{"p": p, "id": number} for p, number in rows], schema=self.table.arrow_schema
        )
        writer = TableWriter(self.options, "d.t", "test")
        writer.write(batch)
        messages = writer.prepare(self.commits)
        writer.close()
        TableCommitter(self.options, "d.t", "test").commit(self.commits, messages)
        self.commits += 1

    def ids(self, snapshot: int | None, chosen: list[Partition] | None) -> list[int]:
        if snapshot is None or chosen == []:
            return []
        pruned = None if chosen is None else partitions.condition(self.table, chosen)
        rows = pa.Table.from_batches(
            self.table.read(["id", "p"], snapshot=snapshot, filter=pruned),
            schema=self.table.read_schema(["id", "p"]),
        )
        if chosen is not None:
            rows = rows.filter(partitions.mask(rows, self.table, chosen))
        found: list[int] = rows["id"].to_pylist()
        return sorted(found)


def test_days_are_read_by_partition_at_their_snapshot(tmp_path: Path) -> None:
    days = Days(tmp_path, "DATE")
    assert partitions.newest_snapshot(days.table) == (0, [])
    days.write((JAN, 1), (JAN + datetime.timedelta(1), 2), (None, 3))
    snapshot, found = partitions.newest_snapshot(days.table)
    assert (snapshot, sorted(found, key=str)) == (1, [("20454",), ("20455",), (None,)])
    days.write((JAN + datetime.timedelta(1), 4), (JAN, 5))
    assert days.ids(1, [("20455",)]) == [2]
    assert days.ids(2, [("20455",)]) == [2, 4]
    assert days.ids(2, [("20455",), (None,)]) == [2, 3, 4]
    assert days.ids(2, None) == [1, 2, 3, 4, 5]
    assert days.ids(2, []) == days.ids(None, None) == []


def test_texts_and_their_null_are_read_by_partition(tmp_path: Path) -> None:
    days = Days(tmp_path, "STRING")
    days.write(("a b", 1), ("x=/", 2), (None, 3))
    _, found = partitions.newest_snapshot(days.table)
    assert set(found) == {("a b",), ("x=/",), (None,)}
    assert days.ids(1, [("x=/",)]) == [2]
    assert days.ids(1, [(None,)]) == [3]
    assert days.ids(1, [(None,), ("a b",)]) == [1, 3]


def test_rows_stay_apart_after_the_table_was_altered(tmp_path: Path) -> None:
    days = Days(tmp_path, "INT")
    days.write((1, 1), (2, 2))
    Warehouse(days.options).alter_table("d.t", *_added("note"))
    days.table = Warehouse(days.options).table("d.t")
    assert days.ids(1, [("2",)]) == [2]


def _added(name: str) -> tuple[Any, ...]:
    from streamhouse.sql.statements.script import parse_script

    (statement,) = parse_script(f"ALTER TABLE t ADD {name} STRING;")
    return tuple(statement.changes)  # type: ignore[attr-defined]
