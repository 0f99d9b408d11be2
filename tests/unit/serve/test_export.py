"""Exported files: their contents, and when they are written."""

from __future__ import annotations

import csv
import io
import json
import threading
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.runtime.batch.progress_line import ProgressLine
from streamhouse.serve.export_files import ExportedFile, Exporter, ExportStopped, Extract
from streamhouse.serve.formats import row_formats
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.serve.queries.output import RowsOrigin
from streamhouse.sql.plan import Column

TIME_MS = 1_700_000_000_123
TYPES = (
    Column("id", "INT"), Column("b", "BOOLEAN"), Column("t", "TINYINT"), Column("n", "BIGINT"),
    Column("f", "FLOAT"), Column("d", "DOUBLE"), Column("price", "DECIMAL(20, 2)"),
    Column("word", "STRING"), Column("raw", "BYTES"), Column("day", "DATE"),
    Column("clock", "TIME(3)"), Column("p0", "TIMESTAMP(0)"), Column("p3", "TIMESTAMP(3)"),
    Column("p6", "TIMESTAMP(6)"), Column("z3", "TIMESTAMP_LTZ(3)"),
    Column("list", "ARRAY<STRING>"), Column("map", "MAP<STRING, INT>"),
    Column("row", "ROW<x INT, y TIMESTAMP(3)>"),
)  # fmt: skip
FULL = (
    1, True, -1, 2**60, 0.5, float("nan"), Decimal("123456789012345678.90"), 'a "b", ü\n',
    b"\xff\x00", 19_000, 3_723_004, TIME_MS // 1000, TIME_MS, TIME_MS * 1000 + 456, TIME_MS,
    ["x", None], [("k", 1)], {"x": 7, "y": TIME_MS},
)  # fmt: skip
EMPTY = (2, *[None] * (len(TYPES) - 1))


class Shown(ProgressLine):
    """A progress that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, int | None]] = []
        self.rows = 0

    def part(self, name: str, total: int | None) -> None:
        self.parts.append((name, total))

    def advance(self, rows: int) -> None:
        self.rows += rows


def export(shop: Any, folder: Path, table: str, format: RowFormat) -> Exporter:
    return Exporter(partial(Extract, shop.warehouse, table), table, format, folder)


def written(shop: Any, folder: Path, table: str, format: RowFormat) -> ExportedFile:
    done = export(shop, folder, table, format).write(Shown())
    assert done is not None and done.path == folder / f"{table}.{format}"
    assert done.path.stat().st_size == done.bytes
    return done


@pytest.fixture
def types(shop: Any) -> str:
    table: str = shop.create("types", TYPES, ["id"])
    shop.write(table, EMPTY, FULL)
    return table


def test_json(shop: Any, types: str, tmp_path: Path) -> None:
    done = written(shop, tmp_path, types, RowFormat.JSON)
    record = json.loads(done.path.read_text(encoding="utf-8"))
    time_ms = shop.warehouse.table(types).snapshot(1).time_ms
    assert list(record) == ["snapshot", "time", "rows"]
    assert (record["snapshot"], record["time"]) == (1, RowsOrigin("t", 1, time_ms).time)
    assert record["rows"] == [
        {
            "id": 1, "b": True, "t": -1, "n": 2**60, "f": 0.5, "d": "NaN",
            "price": "123456789012345678.90", "word": 'a "b", ü\n', "raw": "/wA=",
            "day": "2022-01-08", "clock": "01:02:03.004", "p0": "2023-11-14T22:13:20",
            "p3": "2023-11-14T22:13:20.123", "p6": "2023-11-14T22:13:20.123456",
            "z3": "2023-11-14T22:13:20.123Z", "list": ["x", None], "map": {"k": 1},
            "row": {"x": 7, "y": "2023-11-14T22:13:20.123"},
        },
        dict.fromkeys([column.name for column in TYPES]) | {"id": 2},
    ]  # fmt: skip


@pytest.mark.parametrize("format", [RowFormat.JSON, RowFormat.CSV])
def test_file_equals_http_response(
    shop: Any, serve: Any, types: str, tmp_path: Path, format: RowFormat
) -> None:
    answer = serve().get(f"/views/{types}", format=format.value)
    assert written(shop, tmp_path, types, format).path.read_bytes() == answer.content


def test_csv(shop: Any, types: str, tmp_path: Path) -> None:
    text = written(shop, tmp_path, types, RowFormat.CSV).path.read_bytes().decode()
    header, full, empty = csv.reader(io.StringIO(text, newline=""))
    assert header == [column.name for column in TYPES]
    assert full[:8] == ["1", "true", "-1", str(2**60), "0.5", "NaN", "123456789012345678.90",
                        'a "b", ü\n']  # fmt: skip
    assert full[14] == "2023-11-14T22:13:20.123Z"
    assert empty == ["2", *[""] * (len(TYPES) - 1)]
    assert text.count("\r\n") == 3


@pytest.mark.parametrize("format", [RowFormat.PARQUET, RowFormat.ARROW])
def test_parquet_and_arrow_keep_types_and_name_the_snapshot(
    shop: Any, types: str, tmp_path: Path, format: RowFormat
) -> None:
    path = written(shop, tmp_path, types, format).path
    table = (
        pq.read_table(path) if format is RowFormat.PARQUET else pa.ipc.open_file(path).read_all()
    )
    stored = {field.name: field.type for field in shop.warehouse.table(types).arrow_schema}
    if format is RowFormat.PARQUET:
        stored["p0"] = pa.timestamp("ms")
    assert {field.name: field.type for field in table.schema} == stored
    first, second = table.to_pylist()
    assert (first["price"], first["raw"], first["n"]) == (FULL[6], b"\xff\x00", 2**60)
    assert [first[name].isoformat() for name in ("clock", "p0", "p3", "p6", "z3")] == [
        "01:02:03.004000",
        "2023-11-14T22:13:20",
        "2023-11-14T22:13:20.123000",
        "2023-11-14T22:13:20.123456",
        "2023-11-14T22:13:20.123000+00:00",
    ]
    assert first["map"] == [("k", 1)] and first["row"]["x"] == 7
    assert set(second.values()) == {2, None}
    time_ms = shop.warehouse.table(types).snapshot(1).time_ms
    reported = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert reported["streamhouse.view"] == types and reported["streamhouse.snapshot"] == "1"
    assert reported["streamhouse.time"] == RowsOrigin(types, 1, time_ms).time


def test_duckdb_reads_exported_files(shop: Any, types: str, tmp_path: Path) -> None:
    for format in RowFormat:
        written(shop, tmp_path, types, format)
    name = f"{tmp_path}/{types}"
    reads = {
        "parquet": f"FROM read_parquet('{name}.parquet')",
        "csv": f"FROM read_csv('{name}.csv')",
        "json": f"FROM (SELECT unnest(rows, recursive := true) FROM read_json('{name}.json'))",
    }
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for kind, source in reads.items():
            sql = f"SELECT id, n, CAST(price AS DECIMAL(20, 2)), p6 {source} ORDER BY id"
            first, second = connection.sql(sql).fetchall()
            assert first[:3] == (1, 2**60, FULL[6]), kind
            assert str(first[3]).replace("T", " ") == "2023-11-14 22:13:20.123456"
            assert second == (2, None, None, None)


def test_many_rows_in_order_in_batches(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_formats, "ROW_GROUP_ROWS", 10_000)
    table = shop.sales()
    count = 150_000
    shop.write(table, *((f"c{i * 7919 % count:06d}", i, float(i)) for i in range(count)))
    displayed = Shown()
    done = export(shop, tmp_path, table, RowFormat.PARQUET).write(displayed)
    assert done is not None and done.rows == count
    file = pq.ParquetFile(done.path)
    assert file.metadata.num_row_groups > 1
    assert file.read().column("country").to_pylist() == [f"c{i:06d}" for i in range(count)]
    assert displayed.parts == [("reading", count), ("writing", None)]
    assert displayed.rows == 2 * count


def test_table_without_snapshot_gives_file_without_rows(shop: Any, tmp_path: Path) -> None:
    table = shop.sales()
    path = written(shop, tmp_path, table, RowFormat.JSON).path
    assert json.loads(path.read_text()) == {"snapshot": None, "time": None, "rows": []}
    assert written(shop, tmp_path, table, RowFormat.CSV).path.read_bytes() == (
        b"country,orders,revenue\r\n"
    )
    read = pq.read_table(written(shop, tmp_path, table, RowFormat.PARQUET).path)
    assert (read.num_rows, list(read.schema.metadata)) == (0, [b"streamhouse.view"])


def test_file_is_rewritten_for_a_new_snapshot(shop: Any, tmp_path: Path) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 2, 2.5))
    one = export(shop, tmp_path, table, RowFormat.JSON)
    first = one.write(Shown())
    assert first is not None and (first.snapshot, first.rows) == (1, 1)
    assert one.write(Shown()) is None
    shop.write(table, ("Chad", 1, 1.5))
    second = one.write(Shown())
    assert second is not None and (second.snapshot, second.rows) == (2, 2)
    rows = json.loads(one.path.read_text())["rows"]
    assert [row["country"] for row in rows] == ["Chad", "Peru"]


def test_error_keeps_the_old_file(shop: Any, tmp_path: Path) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None))
    one = export(shop, tmp_path, table, RowFormat.CSV)
    one.write(Shown())
    before = one.path.read_bytes()
    shop.write(table, (2, "nut", None))
    for file in (shop.path / "shop.db" / "orders" / "bucket-0").iterdir():
        file.unlink()
    with pytest.raises(DataLossError, match="is gone"):
        one.write(Shown())
    shop.warehouse.drop_table("shop", "orders")
    with pytest.raises(TableError, match="there is no table 'orders'"):
        one.write(Shown())
    assert one.path.read_bytes() == before
    assert [path.name for path in tmp_path.glob("*orders*")] == ["shop.orders.csv"]


def test_retry_if_snapshot_expires_while_read(shop: Any, tmp_path: Path) -> None:
    table = shop.orders()
    shop.write(table, (1, "nut", None))

    class Expiring(Shown):
        """Deletes the snapshot's files just before they are read, and commits a newer one."""

        def part(self, name: str, total: int | None) -> None:
            if not self.parts:
                for file in (shop.path / "shop.db" / "orders" / "bucket-0").iterdir():
                    file.unlink()
                shop.overwrite(table, (7, "fig", None))
            super().part(name, total)

    done = export(shop, tmp_path, table, RowFormat.JSON).write(Expiring())
    assert done is not None and done.snapshot == 2
    assert [row["id"] for row in json.loads(done.path.read_text())["rows"]] == [7]


@pytest.mark.parametrize("asked_at", [1, 3])
def test_stop_aborts_the_export(shop: Any, tmp_path: Path, asked_at: int) -> None:
    table = shop.sales()
    shop.write(table, *((f"c{i:06d}", i, 0.5) for i in range(70_000)))
    asked: list[int] = []
    lock = threading.Lock()

    def stopped() -> bool:
        with lock:
            asked.append(1)
            return len(asked) >= asked_at

    pin = partial(Extract, shop.warehouse, table)
    one = Exporter(pin, table, RowFormat.JSON, tmp_path / "out", stopped)
    with pytest.raises(ExportStopped):
        one.write(Shown())
    assert list((tmp_path / "out").iterdir()) == []


def test_folder_that_cannot_be_created(shop: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OptionError, match="cannot be a folder, since a file is in its place"):
            export(shop, folder, "shop.sales", RowFormat.CSV)
    with pytest.raises(TableError, match="cannot be the name of a file"):
        export(shop, tmp_path, "shop.sa/les", RowFormat.CSV)
