"""Known errors of the installed Rust core; a failure here means that a workaround can go.

Each test reads or writes past the workaround. It passes as long as the core has the fault.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pytest
from pypaimon_rust.datafusion import SQLContext
from tests.core_differences import CORE_VERSION, DIFFERENCES
from tests.integration.paimon import java_rows, typed_values

from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import JAVA_OPTIONS, Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.table_writer import writable
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn

BY_NAME = {difference.name: difference for difference in DIFFERENCES}
_tables, _batches = itertools.count(), itertools.count(1)
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
KINDS = ("+I", "-U", "+U", "-D")
_tested: set[str] = set()


class Lab:
    """Tables of an id and a column `v`, as Flink makes and writes them, and the bare Rust core."""

    def __init__(self, warehouse: Warehouse, java: Sidecar) -> None:
        self.warehouse, self.java = warehouse, java

    def table(self, kind: str, **options: str) -> Table:
        name = f"db.t{next(_tables)}"
        given = {"bucket": "1", **{key.replace("__", "."): v for key, v in options.items()}}
        given = {key.replace("_", "-"): value for key, value in given.items()}
        columns = [Column("id", "INT"), Column("v", kind)]
        self.warehouse._create(name, TableDeclaration(columns, ["id"], (), given))
        return self.warehouse.table(name)

    def put(
        self, table: Table, *values: Any, kind: str = "+I", java: Sidecar | None = None
    ) -> None:
        rows = [(kind, {"id": str(number), "v": value}) for number, value in enumerate(values)]
        java_rows.write(java or self.java, table.identifier, rows, next(_batches))

    def write(self, table: Table, *values: Any) -> None:
        """By the Rust core, past the checks of Streamhouse."""
        arrays = [pa.array(range(len(values)), pa.int32()), pa.array(values)]
        kinds = pa.schema([field.with_nullable(True) for field in table.arrow_schema])
        batch = pa.RecordBatch.from_arrays(arrays, names=["id", "v"]).cast(kinds)
        builder = table.rust.new_stream_write_builder().with_commit_user("rust")
        writer = builder.new_write()
        writer.write_arrow(batch.cast(table.arrow_schema))
        number = next(_batches)
        builder.new_commit().filter_and_commit({number: writer.prepare_commit(True, number)})
        writer.close()

    def raw(
        self,
        table: Table,
        columns: Sequence[str] = ("v",),
        filter: Mapping[str, Any] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """The texts of the last column as the bare core reads it."""
        builder = table.rust.new_read_builder(dict(options or {})).with_projection(list(columns))
        if filter is not None:
            builder = builder.with_filter(dict(filter))
        splits = builder.new_scan().plan().splits()
        return [
            typed_values.normal(value)
            for batch in builder.new_read().read_arrow(splits)
            for value in typed_values.texts(batch.column(batch.num_columns - 1))
        ]

    def audit_log(self, table: Table) -> list[dict[str, Any]]:
        context = SQLContext()
        context.register_catalog("paimon", dict(self.warehouse.options), "")
        database, name = table.identifier.split(".")
        batches = context.sql(f'SELECT * FROM "paimon"."{database}"."{name}$audit_log"')
        return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("differences")))
    warehouse.create_database("db")
    with java_rows.utc_sidecar(warehouse.options) as java:
        yield Lab(warehouse, java)


Fault = Callable[[Lab], bool]
_faults: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    def register(found: Fault) -> Fault:
        _faults[name] = found
        return found

    return register


def fails(work: Callable[[], object]) -> bool:
    """Whether the core raises something, be it a panic."""
    try:
        work()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return True
    return False


@pytest.mark.parametrize("name", BY_NAME)
def test_the_core_still_has_the_fault(lab: Lab, name: str) -> None:
    difference = BY_NAME[name]
    assert _faults[name](lab), (
        f"mended in pypaimon-rust {version('pypaimon-rust')}: it no longer {difference.behavior}. "
        f"Remove the workaround ({difference.workaround}), this test, and its entry in "
        "tests/core_differences.py"
    )


def test_the_differences_are_those_of_the_installed_core() -> None:
    assert version("pypaimon-rust") == CORE_VERSION, "run these tests, then change CORE_VERSION"
    assert list(_faults) == list(BY_NAME)


@fault("obsolete levels")
def _(lab: Lab) -> bool:
    table = lab.table("BIGINT", **SUMS, changelog_producer="lookup")
    lab.put(table, *["1"] * 600)
    lab.java.compact(table.identifier)
    lab.put(table, "1")
    lab.java.compact(table.identifier)
    return "3" in lab.raw(table)


@fault("audit log")
def _(lab: Lab) -> bool:
    removed = lab.table("BIGINT", **SUMS, aggregation__remove_record_on_delete="true")
    hidden = lab.table("BIGINT", deletion_vectors__enabled="true")
    for table in (removed, hidden):
        lab.put(table, "1")
    lab.put(removed, "1", kind="-D")
    return not lab.audit_log(removed) and len(lab.audit_log(hidden)) == 1


@fault("nanosecond timestamps written")
def _(lab: Lab) -> bool:
    table = lab.table("TIMESTAMP(9)")
    lab.write(table, 1_700_000_000_123_456_789)
    (row,) = java_rows.read(lab.java, table.identifier)
    return bool(typed_values.normal(row["v"]) != "2023-11-14 22:13:20.123456789")


@fault("nanosecond timestamps read")
def _(lab: Lab) -> bool:
    table = lab.table("TIMESTAMP(9)")
    lab.put(table, "9999-12-31 23:59:59")
    return lab.raw(table) != ["9999-12-31 23:59:59"]


@fault("orc range")
def _(lab: Lab) -> bool:
    table = lab.table("TIMESTAMP(3)", file__format="orc")
    lab.put(table, "9999-12-31 23:59:59")
    return fails(lambda: lab.raw(table))


def in_shanghai(lab: Lab, kind: str, value: str) -> list[Any]:
    table = lab.table(kind, file__format="orc")
    zone = "-Duser.timezone=Asia/Shanghai"
    with Sidecar(lab.warehouse.options, java_options=(*JAVA_OPTIONS, zone)) as java:
        lab.put(table, value, java=java)
    return lab.raw(table)


@fault("orc timestamps before 1900")
def _(lab: Lab) -> bool:
    return in_shanghai(lab, "TIMESTAMP(3)", "1890-01-01 12:00:00") != ["1890-01-01 12:00:00"]


@fault("orc instants")
def _(lab: Lab) -> bool:
    return in_shanghai(lab, "TIMESTAMP_LTZ(3)", "2026-01-01 12:00:00") != ["2026-01-01 04:00:00"]


@fault("orc padding")
def _(lab: Lab) -> bool:
    table = lab.table("CHAR(4)", file__format="orc")
    lab.put(table, "ab")
    return lab.raw(table) == ["ab  "]


@fault("orc writer")
def _(lab: Lab) -> bool:
    table = lab.table("TIMESTAMP(3)", file__format="orc")
    return fails(lambda: lab.write(table, 1_700_000_000_123))


def with_vectors(lab: Lab) -> Table:
    """3,000 rows in one ORC file, two of them deleted by a vector."""
    table = lab.table(
        "STRING", file__format="orc", deletion_vectors__enabled="true", changelog_producer="lookup"
    )
    lab.put(table, *(f"row {number} {number * 7919 % 3001}" for number in range(3_000)))
    lab.java.compact(table.identifier, full=True)
    gone = [("-D", {"id": number, "v": None}) for number in ("7", "1500")]
    java_rows.write(lab.java, table.identifier, gone, next(_batches))
    lab.java.compact(table.identifier)
    return table


@fault("orc vectors")
def _(lab: Lab) -> bool:
    return len(lab.raw(with_vectors(lab), options={"read.batch-size": "4"})) > 2_998


@fault("orc vectors and conditions")
def _(lab: Lab) -> bool:
    table = with_vectors(lab)
    only = {"method": "in", "field": "id", "literals": [6, 7, 8]}
    return fails(lambda: lab.raw(table, ["v", "id"], only))


@fault("avro rows")
def _(lab: Lab) -> bool:
    table = lab.table("ROW<a INT>", file__format="avro")
    lab.put(table, None, {"a": "1"})
    return lab.raw(table) == [None, {"a": None}]


@fault("kinds of other versions")
def _(lab: Lab) -> bool:
    table = lab.table("BIGINT")
    lab.put(table, "1", kind="-D")
    lab.warehouse.alter_table(table.identifier, AddColumn(Column("w", "INT")))
    table = lab.warehouse.table(table.identifier)
    builder = table.rust.new_read_builder({}).with_include_row_kind(True)
    splits = builder.new_incremental_scan(0, 1, "delta").plan().splits()
    return fails(lambda: list(builder.new_read().read_arrow(splits)))


@fault("columns of a snapshot")
def _(lab: Lab) -> bool:
    table = lab.table("BIGINT")
    lab.put(table, "1")
    lab.warehouse.alter_table(table.identifier, AddColumn(Column("w", "INT")))
    table = lab.warehouse.table(table.identifier)
    return fails(lambda: lab.raw(table, ["w"], options={"scan.snapshot-id": "1"}))


@fault("partitions of a snapshot")
def _(lab: Lab) -> bool:
    name = f"t{next(_tables)}"
    columns = [Column("p", "INT"), Column("v", "INT")]
    lab.warehouse.create_table("db", name, columns, (), ["p"])
    for number in "12":
        row = {"p": number, "v": number}
        java_rows.write(lab.java, f"db.{name}", [("+I", row)], next(_batches))
    then = lab.warehouse.table(f"db.{name}").copy({"scan.snapshot-id": "1"})
    return len(then.rust.list_partitions()) != 1


@fault("options of a branch")
def _(lab: Lab) -> bool:
    table = lab.table("BIGINT")
    lab.put(table, "1")
    from pypaimon import CatalogFactory

    official = CatalogFactory.create(dict(lab.warehouse.options)).get_table(table.identifier)
    official.create_tag("then", 1)
    official.branch_manager().create_branch("b", "then")
    context = SQLContext()
    context.register_catalog("paimon", dict(lab.warehouse.options), "")
    name = f"{table.identifier.split('.')[1]}$branch_b$options"
    batches = context.sql(f'SELECT key FROM "paimon"."db"."{name}"')
    keys = {row["key"] for batch in batches for row in batch.to_pylist()}
    branch = lab.warehouse.table(f"{table.identifier}$branch_b")
    text = branch.files.read_text(f"{branch.root}/schema/schema-{branch.schema_id}")
    assert text is not None
    return keys != set(json.loads(text)["options"])


@fault("retractions merged in memory")
def _(lab: Lab) -> bool:
    columns = [Column("id", "INT"), Column("w", "INT"), Column("v", "BIGINT")]
    options = {"bucket": "1", "merge-engine": "partial-update"}
    options |= {"fields.w.sequence-group": "v", "fields.v.aggregate-function": "sum"}
    name = f"db.t{next(_tables)}"
    lab.warehouse._create(name, TableDeclaration(columns, ["id"], (), options))
    table = lab.warehouse.table(name)
    builder = table.rust.new_stream_write_builder().with_commit_user("rust")
    for changes in ([("+I", 1, 6)], [("-U", 1, 6), ("+U", 2, 14)]):
        kinds, instants, values = (list(column) for column in zip(*changes, strict=True))
        rows = pa.table({"id": [1] * len(kinds), "w": instants, "v": values})
        rows = rows.cast(table.arrow_schema).append_column(
            "_VALUE_KIND", pa.array([KINDS.index(kind) for kind in kinds], pa.int8())
        )
        writer, number = builder.new_write(), next(_batches)
        writer.write_arrow(rows.to_batches()[0])
        builder.new_commit().filter_and_commit({number: writer.prepare_commit(True, number)})
        writer.close()
    return lab.raw(table) == ["20"]


@fault("ignored deletes")
def _(lab: Lab) -> bool:
    table = lab.table("BIGINT", write_only="true")
    lab.put(table, "1", "2")
    lab.put(table, "1", kind="-D")
    return lab.raw(table, options={"ignore-delete": "true"}) == ["2"]


@fault("manifests")
def _(lab: Lab) -> bool:
    table = writable(lab.table("BIGINT", manifest__merge_min_count="2"))
    for number in range(6):
        lab.write(table, number)
    text = table.files.read_text(f"{table.root}/snapshot/snapshot-6")
    assert text is not None
    manifests = [name for name, _ in table.files.names(f"{table.root}/manifest")]
    return len([name for name in manifests if not name.startswith("manifest-list")]) == 6
