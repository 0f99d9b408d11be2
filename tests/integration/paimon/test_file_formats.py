"""Values of every type, written and compacted by either core, are read alike by both."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.paimon import java_rows, typed_values
from tests.integration.paimon.typed_values import TYPES, is_fine, normal, values

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import JAVA_OPTIONS, Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.file_formats import orc_values
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn, SetTableOption, SetType

FORMATS = ("parquet", "orc", "avro")
NOT_IN_AVRO = (
    "TIME(9)",
    "ARRAY<ROW<x DECIMAL(20, 2), y TIMESTAMP(6), z TIMESTAMP_LTZ(3)>>",
    "ROW<m MAP<STRING, ROW<f FLOAT, g BOOLEAN>>>",
)
_batches = itertools.count(1)
_tables = itertools.count()


class Rows:
    """A table with a column of each type, and what is in it."""

    def __init__(self, warehouse: Warehouse, java: Sidecar, format: str, types: list[str]) -> None:
        self._warehouse, self._java, self._format = warehouse, java, format
        self.types = {f"c{number}": kind for number, kind in enumerate(types)}
        columns = [Column("id", "INT"), *(Column(*column) for column in self.types.items())]
        name = f"t{next(_tables)}"
        self.identifier = f"db.{name}"
        options = {"bucket": "1", "file.format": format}
        if any(map(is_fine, types)):
            # As Flink would: such a table is not made here.
            warehouse._create(self.identifier, TableDeclaration(columns, ["id"], (), options))
        else:
            warehouse.create_table("db", name, columns, ["id"], options=options)
        wide = format != "orc" and not any(map(is_fine, types))
        self._values = {name: [*values(kind, wide), None] for name, kind in self.types.items()}
        self.count = max(map(len, self._values.values()))
        self.expected: dict[str, dict[str, Any]] = {}

    @property
    def table(self) -> Table:
        return self._warehouse.table(self.identifier)

    def texts(self, name: str, shift: int) -> list[Any]:
        """The values of a column, in rows that each have another one than before."""
        known = self._values[name]
        return [known[(number + shift) % len(known)] for number in range(self.count)]

    def write(self, shift: int, by_java: bool) -> None:
        columns = {name: self.texts(name, shift) for name in self.types}
        columns["id"] = [str(number) for number in range(self.count)]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        number = next(_batches)
        if by_java:
            java_rows.write(self._java, self.identifier, [("+I", row) for row in rows], number)
        else:
            kinds = {"id": "INT", **self.types}
            arrays = [typed_values.arrow(columns[name], kinds[name]) for name in columns]
            writer = TableWriter(self._warehouse.options, self.identifier, "we")
            writer.write(pa.RecordBatch.from_arrays(arrays, names=list(columns)))
            messages = writer.prepare(number)
            writer.close()
            TableCommitter(self._warehouse.options, self.identifier, "we").commit(number, messages)
        kinds_of = self.table.arrow_schema
        for row in rows:
            self.expected[row["id"]] = {
                name: self._kept(name, typed_values.of_java(row[name], kinds_of.field(name).type))
                for name in columns
            }

    def _kept(self, name: str, value: Any) -> Any:
        kind = self.types.get(name, "")
        return normal(without_padding(value) if self._format == "orc" and "CHAR" in kind else value)

    def check(self) -> None:
        schema = self.table.arrow_schema
        theirs = {
            row["id"]: {
                name: self._kept(name, typed_values.of_java(value, schema.field(name).type))
                for name, value in row.items()
            }
            for row in java_rows.read(self._java, self.identifier)
        }
        for name in self.types:
            context = f"{self._format} {self.types[name]}"
            self._same({key: row[name] for key, row in theirs.items()}, name, f"{context}, java")
        ours: dict[str, dict[str, Any]] = {}
        for batch in self.table.read():
            columns = [list(map(normal, typed_values.texts(column))) for column in batch.columns]
            for row in zip(*columns, strict=True):
                ours[row[0]] = dict(zip(batch.schema.names, row, strict=True))
        for name in self.types:
            context = f"{self._format} {self.types[name]}"
            self._same({key: row[name] for key, row in ours.items()}, name, f"{context}, ours")

    def _same(self, found: dict[str, Any], name: str, context: str) -> None:
        wanted = {key: row[name] for key, row in self.expected.items()}
        assert found == wanted, context


def without_padding(value: Any) -> Any:
    """CHAR as ORC files give it to the Java core."""
    if isinstance(value, list):
        return [without_padding(one) for one in value]
    return value.rstrip(" ") if isinstance(value, str) else value


@pytest.mark.parametrize("format", FORMATS)
def test_both_cores_read_the_same(warehouse: Warehouse, utc_java: Sidecar, format: str) -> None:
    types = [one for one in TYPES if not is_fine(one)]
    if format == "avro":
        types = [one for one in types if one not in NOT_IN_AVRO]
    rows = Rows(warehouse, utc_java, format, types)
    for shift, by_java in enumerate((False, True, False, True)):
        rows.write(shift, by_java)
        rows.check()
        if shift % 2:
            utc_java.compact(rows.identifier, full=True)
            rows.check()


@pytest.mark.parametrize("format", ("parquet", "orc"))
def test_fine_times_of_the_java_core_are_read(
    warehouse: Warehouse, utc_java: Sidecar, format: str
) -> None:
    rows = Rows(warehouse, utc_java, format, [one for one in TYPES if is_fine(one)])
    for shift in range(2):
        rows.write(shift, by_java=True)
        rows.check()
    utc_java.compact(rows.identifier, full=True)
    rows.check()
    with pytest.raises(TableError, match="more than 6 fractional digits"):
        rows.write(0, by_java=False)


def made(warehouse: Warehouse, kind: str, **options: str) -> Table:
    """A table of an id and one column, as Flink would make it."""
    name = f"db.t{next(_tables)}"
    given = {"bucket": "1", **{key.replace("_", "."): value for key, value in options.items()}}
    warehouse._create(
        name, TableDeclaration([Column("id", "INT"), Column("v", kind)], ["id"], (), given)
    )
    return warehouse.table(name)


def put(java: Sidecar, table: Table, *found: Any) -> None:
    rows = [("+I", {"id": str(number), "v": value}) for number, value in enumerate(found)]
    java_rows.write(java, table.identifier, rows, next(_batches))


def ours(table: Table, columns: list[str] | None = None) -> list[Any]:
    return [
        normal(value)
        for batch in table.read(columns)
        for value in typed_values.texts(batch.column(batch.num_columns - 1))
    ]


@pytest.mark.parametrize("kind", ("TIMESTAMP(9)", "ARRAY<ROW<a TIMESTAMP_LTZ(7)>>"))
def test_fine_times_are_not_written(warehouse: Warehouse, kind: str) -> None:
    with pytest.raises(TableError, match="more than 6 fractional digits, which can be read"):
        warehouse.create_table("db", "fine", [Column("v", kind)])
    warehouse.create_table("db", "plain", [Column("w", "TIMESTAMP(6)")], if_not_exists=True)
    with pytest.raises(
        TableError, match="column 'v' has timestamps with more than 6 fractional digits"
    ):
        warehouse.alter_table("db.plain", AddColumn(Column("v", kind)))
    with pytest.raises(
        TableError, match="column 'w' has timestamps with more than 6 fractional digits"
    ):
        warehouse.alter_table("db.plain", SetType(("w",), "TIMESTAMP(9)"))


@pytest.mark.parametrize("instant", ("1677-01-01 00:00:00", "2263-01-01 00:00:00"))
def test_fine_times_that_would_wrap_around_are_refused(
    warehouse: Warehouse, utc_java: Sidecar, instant: str
) -> None:
    table = made(warehouse, "ARRAY<TIMESTAMP(9)>")
    put(utc_java, table, ["2026-01-01 00:00:00.123456789"], None)
    assert ours(table) == [["2026-01-01 00:00:00.123456789"], None]
    put(utc_java, table, [instant, None])
    for _ in range(2):
        with pytest.raises(StreamhouseError, match="column 'v' has a timestamp before 1677-09-22"):
            ours(table)
    assert ours(table, ["id"]) == ["0", "1"]


@pytest.mark.parametrize(
    ("instant", "message"),
    [
        ("1677-01-01 00:00:00", "a timestamp before 1677-09-22 or after 2262-04-11"),
        ("9999-12-31 23:59:59.999", "set the table's 'file.format' to 'parquet'"),
        ("1969-12-31 23:59:59.500", "a timestamp within the last second before 1970"),
    ],
)
@pytest.mark.parametrize("kind", ("TIMESTAMP(3)", "TIMESTAMP_LTZ(6)", "ROW<a TIMESTAMP(3)>"))
def test_times_that_orc_files_do_not_give_back_are_not_written(
    warehouse: Warehouse, kind: str, instant: str, message: str
) -> None:
    name = f"t{next(_tables)}"
    columns = [Column("id", "INT"), Column("v", kind)]
    options = {"bucket": "1", "file.format": "orc"}
    warehouse.create_table("db", name, columns, ["id"], options=options)
    writer = TableWriter(warehouse.options, f"db.{name}", "we")
    value = {"a": instant} if kind.startswith("ROW") else instant
    values = typed_values.arrow([value], kind)
    try:
        with pytest.raises(TableError, match=message):
            writer.write(pa.RecordBatch.from_arrays([pa.array([1]), values], names=["id", "v"]))
    finally:
        writer.close()


def test_times_that_orc_files_do_not_give_back_are_not_read(
    warehouse: Warehouse, utc_java: Sidecar
) -> None:
    table = made(warehouse, "TIMESTAMP(3)", file_format="orc")
    put(utc_java, table, "9999-12-31 23:59:59")
    with pytest.raises(StreamhouseError, match="timestamp before 1677-09-22 or after 2262-04-11"):
        ours(table)


def test_orc_files_of_another_time_zone(warehouse: Warehouse) -> None:
    local = made(warehouse, "TIMESTAMP_LTZ(3)", file_format="orc")
    clock = made(warehouse, "TIMESTAMP(3)", file_format="orc")
    old = made(warehouse, "TIMESTAMP(3)", file_format="orc")
    both = made(warehouse, "ROW<a TIMESTAMP(3), b TIMESTAMP_LTZ(3)>", file_format="orc")
    warehouse.create_table(
        "db", "instants", [Column("id", "INT"), Column("v", "TIMESTAMP_LTZ(3)")], ["id"],
        options={"bucket": "1", "file.format": "orc"},
    )  # fmt: skip
    instants = warehouse.table("db.instants")
    assert instants.options[orc_values.LTZ_OPTION] == "false"
    zone = "-Duser.timezone=Asia/Shanghai"
    with Sidecar(warehouse.options, java_options=(*JAVA_OPTIONS, zone)) as java:
        for table in (local, clock, instants):
            put(java, table, "2026-02-28 12:00:00")
        put(java, old, "1890-02-28 12:00:00")
        put(java, both, {"a": None, "b": "2026-02-28 12:00:00"})
    assert ours(clock) == ["2026-02-28 12:00:00"]
    assert ours(instants) == ["2026-02-28 04:00:00"]
    with pytest.raises(
        StreamhouseError, match="was written in the time zone .unknown., and TIMESTAMP_LTZ in"
    ):
        ours(local)
    assert ours(local, ["id"]) == ["0"]
    with pytest.raises(StreamhouseError, match="was written in the time zone Asia/Shanghai"):
        list(both.read())
    with pytest.raises(StreamhouseError, match="an ORC file written in the time zone Asia/Shang"):
        ours(old)
    with java_rows.utc_sidecar(warehouse.options) as java:
        in_utc = made(warehouse, "TIMESTAMP_LTZ(3)", file_format="orc")
        put(java, in_utc, "2026-02-28 12:00:00")
    warehouse.alter_table(in_utc.identifier, SetTableOption(orc_values.LTZ_OPTION, "true"))
    assert ours(warehouse.table(in_utc.identifier)) == ["2026-02-28 12:00:00"]


def test_keys_that_orc_files_pad_are_refused(warehouse: Warehouse) -> None:
    columns = [Column("k", "CHAR(4)"), Column("v", "INT")]
    options = {"bucket": "1", "file.format": "orc"}
    with pytest.raises(TableError, match="the key 'k' is CHAR"):
        warehouse.create_table("db", "padded", columns, ["k"], options=options)
    warehouse._create("db.padded", TableDeclaration(columns, ["k"], (), options))
    with pytest.raises(TableError, match="the key 'k' is CHAR"):
        TableWriter(warehouse.options, "db.padded", "we")


def test_conditions_on_padded_columns_lose_no_row(warehouse: Warehouse, utc_java: Sidecar) -> None:
    table = made(warehouse, "CHAR(4)", file_format="orc")
    put(utc_java, table, "ab", "abcd")
    condition = {"method": "equal", "field": "v", "literals": ["ab"]}
    found = [row["v"] for batch in table.read(filter=condition) for row in batch.to_pylist()]
    assert "ab" in found


def test_rows_of_avro_files(warehouse: Warehouse, utc_java: Sidecar) -> None:
    table = made(warehouse, "ROW<a INT, r ROW<b STRING>>", file_format="avro")
    found = [None, {"a": "1", "r": None}, {"a": "2", "r": {"b": "x"}}, {"a": None, "r": {"b": "y"}}]
    put(utc_java, table, *found)
    assert ours(table) == found
    kinds = [row["rowkind"] for row in java_rows.ours(
        warehouse.readable(f"{table.identifier}$audit_log").read(["rowkind", "v"])
    )]  # fmt: skip
    assert kinds == ["+I"] * 4
    nested = "MAP<STRING, ROW<a INT>>"
    table = made(warehouse, nested, file_format="avro")
    put(utc_java, table, {"k": None, "l": {"a": "1"}})
    with pytest.raises(StreamhouseError, match="'v' cannot be read from Avro files"):
        ours(table)
    with pytest.raises(TableError, match="in column 'v', cannot be read from Avro files"):
        warehouse.create_table("db", "n", [Column("v", nested)], options={"file.format": "avro"})


def test_a_time_is_cut_to_the_digits_of_its_column(warehouse: Warehouse, utc_java: Sidecar) -> None:
    instant = "2026-02-28 12:34:56.987654"
    columns = [Column(f"c{digits}", f"TIMESTAMP({digits})") for digits in range(7)]
    warehouse.create_table("db", "cut", columns)
    values = typed_values.arrow([instant], "TIMESTAMP(6)")
    writer = TableWriter(warehouse.options, "db.cut", "we")
    names = [column.name for column in columns]
    writer.write(pa.RecordBatch.from_arrays([values] * len(names), names=names))
    TableCommitter(warehouse.options, "db.cut", "we").commit(1, writer.prepare(1))
    writer.close()
    (row,) = java_rows.read(utc_java, "db.cut")
    assert [normal(row[name]) for name in names] == [
        instant[: len("2026-02-28 12:34:56") + bool(digits) + digits] for digits in range(7)
    ]
