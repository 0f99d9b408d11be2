"""What CREATE and ALTER accept can be written and read; what they refuse names the nearest."""

from __future__ import annotations

import datetime
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.schema_cases import Case, generated

from streamhouse.errors import OptionError, SchemaChangeError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema
from streamhouse.paimon.schema.validation.schema_validation import check_schema
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.execute import execute
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetTableOption,
    SetType,
)

COLUMNS = (("id", "INT"), ("total", "INT"), ("at", "TIMESTAMP(3)"), ("tags", "ARRAY<STRING>"),
           ("name", "STRING"), ("amount", "DOUBLE"))  # fmt: skip
AGGREGATION = {"merge-engine": "aggregation"}
PARTIAL = {"merge-engine": "partial-update"}
REFUSED: list[tuple[dict[str, str], str]] = [
    ({"sequence.field": "ta"}, "names 'ta', which is not a column; did you mean 'tags'"),
    ({**AGGREGATION, "fields.totl.aggregate-function": "sum"}, "did you mean 'total'"),
    ({"fields.total.aggregate-function": "sum"}, "only has an effect with 'merge-engine' = 'agg"),
    ({**AGGREGATION, "fields.total.aggregate-function": "sun"}, "no function 'sun'; did you mean"),
    ({**AGGREGATION, "fields.name.aggregate-function": "sum"}, "cannot merge column 'name'"),
    ({**AGGREGATION, "fields.id.aggregate-function": "sum"}, "part of the primary key"),
    ({**AGGREGATION, "sequence.field": "at", "fields.at.aggregate-function": "max"}, "no effect"),
    ({"sequence.field": "at,at"}, "names column 'at' twice"),
    ({"sequence.field": "tags"}, "ARRAY, MAP, MULTISET and ROW values have no order"),
    ({"merge-engine": "first-row", "sequence.field": "at"}, "cannot be combined"),
    ({"merge-engine": "agregation"}, "'agregation' is not one of deduplicate, partial-update, agg"),
    ({**PARTIAL, "fields.at.sequence-group": "id,total"}, "part of the primary key"),
    ({**PARTIAL, "fields.at.sequence-group": "total,total"}, "names column 'total' twice"),
    (
        {**PARTIAL, "fields.at.sequence-group": "total", "fields.name.sequence-group": "total"},
        "in two sequence groups",
    ),
    ({**PARTIAL, "fields.at.sequence-group": "totl"}, "did you mean 'total'"),
    ({**AGGREGATION, "fields.at.sequence-group": "total"}, "with 'merge-engine' = 'partial"),
    ({**PARTIAL, "fields.total.aggregate-function": "sum"}, "needs a sequence group"),
    ({**PARTIAL, "partial-update.remove-record-on-sequence-group": "at"}, "no sequence group is"),
    ({"rowkind.field": "kind"}, "which is not a column"),
    ({"rowkind.field": "total"}, "needs one of STRING"),
    ({"record-level.expire-time": "1 d"}, "needs 'record-level.time-field'"),
    ({"record-level.time-field": "name"}, "needs one of INT, BIGINT, TIMESTAMP"),
    ({"changelog-producer": "lokup"}, "is not one of none, input"),
    ({"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "2"}, "must not be greater"),
    ({"file.format": "csv"}, "is not one of parquet, orc, avro"),
    ({"file-index.bloom-filter.columns": "nme"}, "did you mean 'name'"),
    ({"deletion-vectors.enabled": "yes"}, "neither 'true' nor 'false'"),
    ({"scan.snapshot-id": "3"}, "cannot be stored with a table"),
    ({"write-buffer-size": "much"}, "is not a size"),
]  # fmt: skip
NAMES = [
    ("rowkind", "reserved by Paimon"), ("_KEY_id", "reserved by Paimon"), ("_LEVEL", "reserved"),
    ("RowKind", "reserved"), ("ID", "differ only in case"), ("", "needs a name"),
]  # fmt: skip
VALUES: dict[str, tuple[Any, Any]] = {
    "BOOLEAN": (True, False), "FLOAT": (1.5, 2.5), "DOUBLE": (1.5, 2.5),
    "DECIMAL": (Decimal("1.00"), Decimal("2.00")), "DATE": (datetime.date(2020, 1, 1),) * 2,
    "TIMESTAMP": (datetime.datetime(2020, 1, 1),) * 2,
    "CHAR": ("a  ", "b  "), "VARCHAR": ("a", "b"), "STRING": ("a", "b"), "BINARY": (b"ab",) * 2,
    "BYTES": (b"a", b"b"), "VARBINARY": (b"a", b"b"), "ARRAY": ([], []), "MAP": ([], []),
    "ROW": ({"a": 1, "b": "x"}, {"a": 2, "b": "y"}),
}  # fmt: skip


def _create(warehouse: Warehouse, name: str, case: Case) -> None:
    columns = [Column(*column) for column in case.columns]
    warehouse.create_table("db", name, columns, case.primary_key, case.partition_keys, case.options)


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_fault_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(StreamhouseError) as caught:
        check_schema(DeclaredSchema("table t", COLUMNS, ("id",), (), options))
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "message"), NAMES)
def test_a_name_that_no_column_can_have_is_refused(
    warehouse: Warehouse, name: str, message: str
) -> None:
    columns = [Column("id", "INT"), Column(name, "INT")]
    with pytest.raises(TableError, match=message):
        warehouse.create_table("db", "t", columns, ["id"])
    assert warehouse.tables("db") == []
    warehouse.create_table("db", "t", columns[:1], ["id"], options={"bucket": "1"})
    with pytest.raises(TableError, match=message):
        warehouse.alter_table("db.t", AddColumn(columns[1]))
    warehouse.alter_table("db.t", AddColumn(Column("x", "INT")))
    with pytest.raises(TableError, match=message):
        warehouse.alter_table("db.t", RenameColumn(("x",), name))
    assert warehouse.table("db.t").schema_id == 1


def test_every_statement_checks(tmp_path: Path) -> None:
    lake = str(tmp_path)
    execute(lake, "CREATE DATABASE d; CREATE TABLE d.t (k INT, v INT, w INT, PRIMARY KEY (k) NOT "
                  "ENFORCED) WITH ('bucket' = '1', 'sequence.field' = 'v')")  # fmt: skip
    for statement, message in (
        ("CREATE TABLE d.u (k INT, rowkind INT)", "reserved"),
        ("CREATE TABLE d.u (k INT) WITH ('merge-engine' = 'aggregation')", "with a PRIMARY KEY"),
        ("CREATE TABLE d.u (k DOUBLE) PARTITIONED BY (k)", "of which no partition can be written"),
        ("ALTER TABLE d.t ADD _LEVEL INT", "reserved"),
        ("ALTER TABLE d.t SET ('sequence.field' = 'vv')", "did you mean 'v'"),
        ("ALTER TABLE d.t SET ('fields.w.aggregate-function' = 'sum')", "only has an effect with"),
        ("ALTER TABLE d.t DROP v", "names column 'v'"),
    ):
        with pytest.raises(StreamhouseError, match=message):
            execute(lake, statement)
    execute(lake, "ALTER TABLE d.t SET ('merge-engine' = 'aggregation', "
                  "'fields.w.aggregate-function' = 'sum')")  # fmt: skip
    with pytest.raises(OptionError, match="cannot merge column 'w', which is STRING"):
        execute(lake, "ALTER TABLE d.t MODIFY w STRING")


def test_faults_of_other_engines_do_not_prevent_other_changes(warehouse: Warehouse) -> None:
    before = DeclaredSchema("table t", COLUMNS, ("id",), (), {"sequence.field": "gone"})
    after = DeclaredSchema("table t", COLUMNS, ("id",), (), {**before.options, "bucket": "2"})
    check_schema(after, before)
    with pytest.raises(OptionError, match="is not a whole number"):
        check_schema(
            DeclaredSchema("table t", COLUMNS, ("id",), (), {**after.options, "num-levels": "x"}),
            before,
        )


def _row(columns: list[tuple[str, str]], key: tuple[str, ...], turn: int) -> dict[str, Any]:
    row = {}
    for name, text in columns:
        root = text.replace("TIMESTAMP_LTZ", "TIMESTAMP").split("(")[0].split("<")[0]
        row[name] = VALUES.get(root, (1, 2))[0 if name in key else turn]
    return row


def _write(warehouse: Warehouse, name: str, case: Case) -> int:
    """Write two rows of one key, in two commits; returns how many rows are read."""
    table = warehouse.table(name)
    columns = [(column.name, column.type) for column in table.columns]
    schema = pa.schema([(n, types.arrow_type(types.parse(text))) for n, text in columns])
    user, key = str(uuid.uuid4()), (*table.primary_key, *table.partition_keys)
    for turn in (0, 1):
        row = _row(columns, key, turn)
        if "rowkind.field" in table.options:
            row[table.options["rowkind.field"]] = "+I"
        if "rbm32" in str(table.options) or "hll" in str(table.options):
            row |= {field.name: None for field in schema if pa.types.is_binary(field.type)}
        writer = TableWriter(warehouse.options, name, user)
        batch = pa.RecordBatch.from_pylist([row], schema=schema)
        TableCommitter(warehouse.options, name, user).commit(turn, writer.write_all([batch], turn))
    return sum(batch.num_rows for batch in warehouse.table(name).read())


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.soak)], ids=len
)
def test_what_is_accepted_can_be_written_and_read(warehouse: Warehouse, seeds: range) -> None:
    """Random definitions, then random changes of those that are accepted."""
    accepted = altered = 0
    for seed in seeds:
        case = generated(seed, (0.02, 0.15)[seed % 2])
        name = f"t{seed}"
        try:
            _create(warehouse, name, case)
        except (OptionError, TableError):
            continue
        accepted += 1
        altered += sum(_alter(warehouse, f"db.{name}", seed))
        try:
            rows = _write(warehouse, f"db.{name}", case)
        except StreamhouseError as error:
            raise AssertionError(f"{case}, {warehouse.table(f'db.{name}').options}") from error
        options = warehouse.table(f"db.{name}").options
        hidden = options.get("merge-engine") == "first-row" or (
            options.get("deletion-vectors.enabled") == "true" and case.primary_key
        )
        assert rows == (1 if case.primary_key else 2) or hidden, case
    assert accepted > len(seeds) / 5 and altered > 0


def _alter(warehouse: Warehouse, name: str, seed: int) -> list[bool]:
    chance = random.Random(seed)
    columns = [column.name for column in warehouse.table(name).columns]
    odd = chance.choice(["rowkind", "x", "V1", "x2"])
    changes: list[SchemaChange] = [
        AddColumn(Column(odd, chance.choice(["INT", "STRING"]))),
        RenameColumn((chance.choice(columns),), chance.choice(["y", "_KEY_y", "v1"])),
        SetType((chance.choice(columns),), chance.choice(["BIGINT", "STRING"])),
        DropColumn((chance.choice(columns),)),
        SetTableOption(f"fields.{chance.choice(columns)}.aggregate-function", "sum"),
        SetTableOption("sequence.field", chance.choice(columns)),
        SetTableOption("merge-engine", chance.choice(["aggregation", "first-row"])),
    ]
    done = []
    for change in chance.sample(changes, 3):
        try:
            warehouse.alter_table(name, change)
            done.append(True)
        except (OptionError, TableError, SchemaChangeError):
            done.append(False)
    return done
