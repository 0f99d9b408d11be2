"""ORC files with deleted rows are read as the Java core reads them, however far these are apart."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.java_reads import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.rust_core import batch_size
from streamhouse.paimon.read.rust_core.batch_size import Group
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

ROWS = 3_000
GONE, CHANGED = (7,), (25, 26, 1_500, 2_999)
"""Ids that are deleted and changed later; longer runs of others than a batch between them."""
OPTIONS = {
    "bucket": "1",
    "deletion-vectors.enabled": "true",
    "changelog-producer": "lookup",
    "file.format": "orc",
    "read.batch-size": "4",
}
INSTANT = datetime.datetime(2026, 6, 1, 12, 30, 15, 250_000)
TYPES: dict[str, Callable[[int], Any]] = {
    "BOOLEAN": lambda n: n % 2 == 0,
    "TINYINT": lambda n: n % 240 - 120,
    "INT": lambda n: n * 2_654_435_761 % (1 << 31),
    "BIGINT": lambda n: n << 40,
    "FLOAT": lambda n: n / 4,
    "DOUBLE": lambda n: n / 8,
    "DECIMAL(12, 2)": lambda n: Decimal(n).scaleb(-2),
    "DECIMAL(30, 4)": lambda n: Decimal(n * 10**20).scaleb(-4),
    "STRING": lambda n: f"row {n}" * (n % 3 + 1),
    "BYTES": lambda n: bytes([n % 256, 0, 255]),
    "DATE": lambda n: INSTANT.date() + datetime.timedelta(days=n),
    "TIMESTAMP(3)": lambda n: INSTANT + datetime.timedelta(seconds=n),
    "TIMESTAMP(6)": lambda n: INSTANT + datetime.timedelta(microseconds=n),
    "ARRAY<INT>": lambda n: list(range(n % 4)),
}
_batches = itertools.count()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder: Path = tmp_path_factory.mktemp("orc") / "warehouse"
    return Warehouse(str(folder))


@pytest.fixture(scope="module")
def java(warehouse: Warehouse) -> Iterator[Sidecar]:
    warehouse.create_database("db")
    with Sidecar(warehouse.options) as sidecar:
        yield sidecar


def write(warehouse: Warehouse, table: Table, rows: list[dict[str, Any]], kind: str) -> None:
    schema = table.read_schema(row_kind=True)
    batch = pa.RecordBatch.from_pylist([{**row, "rowkind": kind} for row in rows], schema)
    writer = TableWriter(warehouse.options, table.identifier, "writer")
    writer.write(batch)
    number = next(_batches)
    TableCommitter(warehouse.options, table.identifier, "writer").commit(
        number, writer.prepare(number)
    )
    writer.close()


def row(types: list[str], number: int, shift: int = 0) -> dict[str, Any]:
    """Every third value of a column is null, each column's at other rows."""
    values: dict[str, Any] = {"id": number}
    for place, kind in enumerate(types):
        values[f"c{place}"] = None if (number + place) % 3 == 0 else TYPES[kind](number + shift)
    return values


def made(
    warehouse: Warehouse, java: Sidecar, name: str, types: list[str], options: Mapping[str, str]
) -> Table:
    """A table with a large file of all first rows, some of which a deletion vector hides."""
    columns = [Column(f"c{place}", kind) for place, kind in enumerate(types)]
    given = {**OPTIONS, **options}
    warehouse.create_table("db", name, [Column("id", "BIGINT"), *columns], ["id"], options=given)
    table = warehouse.table(f"db.{name}")
    for shift in (2, 0):
        # What is written once stays in the writer's format: it only goes up a level.
        write(warehouse, table, [row(types, number, shift) for number in range(ROWS)], "+I")
        java.compact(table.identifier, full=True)
    write(warehouse, table, [row(types, number) for number in GONE], "-D")
    write(warehouse, table, [row(types, number, 1) for number in CHANGED], "+I")
    java.compact(table.identifier)
    return table


def read(table: Any, columns: list[str] | None = None) -> list[dict[str, Any]]:
    rows = [row for batch in table.read(columns) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("form", ["orc", "parquet"])
def test_deleted_rows_do_not_reappear(warehouse: Warehouse, java: Sidecar, form: str) -> None:
    table = made(warehouse, java, f"all_{form}", list(TYPES), {"file.format": form})
    splits = table.splits()
    assert any(b"index-" in split for split in splits), "no deletion vector, so nothing is tried"
    assert all((b".orc" in split) == (form == "orc") for split in splits)
    assert not any(b".parquet" in split for split in splits if form == "orc")
    expected = [
        row(list(TYPES), number, int(number in CHANGED))
        for number in range(ROWS)
        if number not in GONE
    ]
    assert [one["id"] for one in read(table)] == [one["id"] for one in expected]
    assert read(table) == expected
    theirs = java_rows(java, table.identifier).to_pylist()
    assert sorted(theirs, key=lambda row: int(row["id"])) == expected
    assert all(batch.num_rows <= 4 for batch in table.read())


def test_also_in_each_stripe_and_by_a_condition(warehouse: Warehouse, java: Sidecar) -> None:
    """A stripe's rows are taken by its own part of the vector; conditions bring nothing back."""
    options = {"orc.stripe.row.count": "1000", "orc.row.index.stride": "1000"}
    table = made(warehouse, java, "stripes", ["INT"], options)
    left = [number for number in range(ROWS) if number not in GONE]
    assert [one["id"] for one in read(table, ["id"])] == left
    wanted = {"method": "in", "field": "id", "literals": [6, 7, 8, 25, 2_000]}
    more = {"method": "greaterThan", "field": "id", "literals": [6]}
    for only in (wanted, {"method": "and", "children": [wanted, more]}):
        for columns in (["id"], ["c0"], ["id", "c0"]):
            found = list(table.read(columns, filter=only))
            assert sum(batch.num_rows for batch in found) <= len(left)
            if "id" in columns:
                ids = [one for batch in found for one in batch["id"].to_pylist()]
                assert sorted(ids) in ([6, 8, 25, 2_000], [8, 25, 2_000])


def test_the_audit_log_has_no_row_twice(warehouse: Warehouse, java: Sidecar) -> None:
    table = made(warehouse, java, "audited", ["INT"], {})
    log = warehouse.readable("db.audited$audit_log")
    assert [(one["rowkind"], one["id"]) for one in read(log)] == [
        ("+I", one["id"]) for one in read(table)
    ]


def test_only_splits_that_need_it_are_read_in_larger_batches(
    warehouse: Warehouse, java: Sidecar
) -> None:
    table = made(warehouse, java, "grouped", ["INT"], {})
    (before,), (split,) = table.splits(snapshot=4), table.splits()
    (found,) = batch_size.groups([split], 1)
    assert found.rows >= ROWS - len(GONE) - len(CHANGED)
    many = [before, split, split, before]
    assert list(batch_size.groups(many, 1)) == [
        Group((before,), 1, unfiltered=False),
        Group((split, split), found.rows, unfiltered=True),
        Group((before,), 1, unfiltered=False),
    ]
    assert list(batch_size.groups([split], 10_000)) == [Group((split,), 10_000, unfiltered=True)]
