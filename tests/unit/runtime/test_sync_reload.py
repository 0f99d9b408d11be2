"""Reloads of a target: the differences between MySQL's rows and those of the table."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import SchemaChangeError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.sync import reload
from streamhouse.runtime.sync.reload import check_reloadable, reloaded
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

TYPES = {
    "id": "INT", "code": "VARCHAR(9)", "n": "DECIMAL(20, 0)", "d": "DOUBLE", "b": "BOOLEAN",
    "raw": "VARBINARY(4)", "bits": "BINARY(2)", "day": "DATE", "at": "TIMESTAMP(6)",
    "clock": "TIME(3)", "tags": "ARRAY<STRING>", "text": "STRING",
}  # fmt: skip
ROW = {
    "id": 1, "code": "ä", "n": Decimal(2**64 - 1), "d": 0.5, "b": True, "raw": b"\0\1",
    "bits": b"ab", "day": datetime.date(2024, 2, 29),
    "at": datetime.datetime(2024, 1, 2, 3, 4, 5, 678901), "clock": datetime.time(1, 2, 3, 4000),
    "tags": ["x", "y"], "text": "t",
}  # fmt: skip
OTHER = {
    "n": Decimal(7), "d": float("nan"), "b": None, "raw": b"", "bits": None, "day": None,
    "at": datetime.datetime(2024, 1, 2, 3, 4, 5, 678902), "clock": None, "tags": [], "text": "",
}  # fmt: skip


def table(folder: Path, options: dict[str, str] | None = None) -> Table:
    warehouse = Warehouse(str(folder))
    warehouse.create_database("d")
    columns = [Column(name, kind, name not in ("id", "code")) for name, kind in TYPES.items()]
    how = {"bucket": "2", **(options or {})}
    warehouse.create_table("d", "t", columns, ["id", "code"], [], how)
    return warehouse.table("d.t")


def filled(folder: Path, rows: list[dict[str, Any]]) -> Table:
    made = table(folder)
    writer = TableWriter({"warehouse": str(folder)}, "d.t", "u")
    writer.write(pa.RecordBatch.from_pylist(rows, made.read_schema()))
    TableCommitter({"warehouse": str(folder)}, "d.t", "u").commit(0, writer.prepare(0))
    writer.close()
    return Warehouse(str(folder)).table("d.t")


def changes(
    made: Table, new: list[dict[str, Any]], kept: set[str] | None = None, deletes: bool = True
) -> list[dict[str, Any]]:
    schema = pa.schema([one for one in made.read_schema() if one.name not in (kept or set())])
    rows = (pa.RecordBatch.from_pylist([row], schema) for row in new)
    written = reloaded(made, rows, kept or set(), len(new), deletes)
    found = [row for batch in written for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["id"], row["code"], row[ROW_KIND] == "+U"))


@pytest.mark.parametrize("share", [250_000, 3])
def test_only_differences_are_written(
    tmp_path: Path, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "_SHARE_ROWS", share)
    old = [{**ROW, "id": number} for number in range(40)]
    made = filled(tmp_path, old)
    assert changes(made, old) == []
    new = [row for row in old if row["id"] != 7]
    for number, (name, value) in enumerate(OTHER.items()):
        new[number] = {**new[number], name: value}
    new += [{**ROW, "id": 50}, {**ROW, "id": 50, "text": "last"}]
    found = changes(made, new)
    assert [(row["id"], row[ROW_KIND]) for row in found if row["id"] in (7, 50)] == [
        (7, "-D"), (50, "+I")
    ]  # fmt: skip
    assert found[-1]["text"] == "last"
    updates = [row for row in found if row[ROW_KIND] == "+U"]
    assert len(updates) == len(OTHER)
    assert [row for row in changes(made, new, deletes=False) if row["id"] == 7] == []


def test_columns_that_mysql_does_not_have_keep_their_values(tmp_path: Path) -> None:
    made = filled(tmp_path, [{**ROW, "id": number} for number in range(3)])
    plain = {name: value for name, value in ROW.items() if name not in ("text", "at")}
    new = [{**plain, "id": 0}, {**plain, "id": 1, "d": 9.0}, {**plain, "id": 9}]
    found = changes(made, new, {"text", "at"})
    assert [(row[ROW_KIND], row["id"], row["d"], row["text"], row["at"]) for row in found] == [
        ("-U", 1, 0.5, "t", ROW["at"]), ("+U", 1, 9.0, "t", ROW["at"]),
        ("-D", 2, 0.5, "t", ROW["at"]), ("+I", 9, 0.5, None, None),
    ]  # fmt: skip


def test_tables_that_merge_rows_otherwise_are_refused(tmp_path: Path) -> None:
    merging = table(tmp_path, {"merge-engine": "partial-update"})
    with pytest.raises(SchemaChangeError, match="'TRUNCATE t'.*merge-engine is partial-update"):
        check_reloadable(merging, "TRUNCATE t")
