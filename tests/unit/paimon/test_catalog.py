from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.options.table_options import check_table_options, unknown_key
from streamhouse.sql.plan import Column

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

NESTED = "ROW<`a b` INT NOT NULL, l ARRAY<MAP<STRING, DECIMAL(5, 1)>>>"


def test_a_table_is_read_back_as_created(warehouse: Warehouse) -> None:
    columns = [
        Column("id", "BIGINT"),
        Column("name", "VARCHAR(20)", nullable=False, comment="as signed"),
        Column("at", "TIMESTAMP_LTZ(3)"),
        Column("r", NESTED),
    ]
    options = {"bucket": "4", "fields.name.stats-mode": "none"}
    warehouse.create_table("db", "t", columns, ["id", "name"], ["name"], options, "people")
    table = warehouse.table("db.t")
    assert [(column.name, column.nullable) for column in table.columns] == [
        ("id", False),
        ("name", False),
        ("at", True),
        ("r", True),
    ]
    assert table.columns[1].comment == "as signed"
    assert (table.columns[1].type, table.columns[2].type) == ("VARCHAR(20)", "TIMESTAMP_LTZ(3)")
    assert (table.primary_key, table.partition_keys) == (("id", "name"), ("name",))
    assert (table.bucket, table.options["fields.name.stats-mode"]) == (4, "none")
    assert table.arrow_schema.field("at").type == pa.timestamp("ms", "UTC")
    assert warehouse.tables("db") == ["t"]


def test_keys_may_be_options(warehouse: Warehouse) -> None:
    columns = [Column("id", "BIGINT"), Column("dt", "STRING"), Column("n", "INT")]
    options = {"primary-key": "dt, id", "partition": "dt", "bucket": "2"}
    warehouse.create_table("db", "t", columns, options=options)
    table = warehouse.table("db.t")
    assert (table.primary_key, table.partition_keys) == (("dt", "id"), ("dt",))
    assert [column.nullable for column in table.columns] == [False, False, True]
    assert not {"primary-key", "partition"} & set(table.options)
    with pytest.raises(OptionError, match="both PRIMARY KEY and the option 'primary-key'"):
        warehouse.create_table("db", "u", columns, ["id"], options=options)
    with pytest.raises(OptionError, match="both PARTITIONED BY and the option 'partition'"):
        warehouse.create_table("db", "u", columns, (), ["dt"], {"partition": "dt"})
    with pytest.raises(TableError, match="primary key 'uid' is not a column; did you mean 'id'"):
        warehouse.create_table("db", "u", columns, options={"primary-key": "uid"})


def test_a_key_of_many_partitions_needs_buckets_that_are_looked_up(warehouse: Warehouse) -> None:
    columns = [Column("id", "BIGINT"), Column("dt", "STRING")]
    with pytest.raises(TableError, match="a key could have a row in each partition; declare"):
        warehouse.create_table("db", "t", columns, ["id"], ["dt"], {"bucket": "2"})
    for name, options in (("t", {}), ("u", {"bucket": "-1"})):
        warehouse.create_table("db", name, columns, ["id"], ["dt"], options)


@pytest.mark.parametrize(
    "options",
    [
        {
            "merge-engine": "aggregation",
            "aggregation.remove-record-on-delete": "true",
            "fields.v.aggregate-function": "max",
            "fields.v.ignore-retract": "true",
        },
        {
            "merge-engine": "partial-update",
            "partial-update.remove-record-on-delete": "true",
            "fields.v.sequence-group": "w",
        },
        {
            "merge-engine": "partial-update",
            "partial-update.remove-record-on-delete": "true",
            "ignore-delete": "true",
        },
    ],
    ids=lambda options: list(options)[-1],
)
def test_a_record_is_not_removed_in_part(warehouse: Warehouse, options: dict[str, str]) -> None:
    columns = [Column("id", "INT"), Column("v", "INT"), Column("w", "INT")]
    with pytest.raises(OptionError, match=f"'{list(options)[-1]}' exclude each other"):
        warehouse.create_table("db", "t", columns, ["id"], options=options)
    assert warehouse.tables("db") == []


def test_what_exists_or_is_missing_is_reported(lab: Lab) -> None:
    warehouse = lab.warehouse
    lab.make("orders")
    with pytest.raises(TableError, match="did you mean 'orders'"):
        warehouse.table("db.order")
    with pytest.raises(TableError, match="there is no database 'dc'"):
        warehouse.table("dc.orders")
    with pytest.raises(TableError, match="already exists"):
        lab.make("orders")
    with pytest.raises(TableError, match="still has tables"):
        warehouse.drop_database("db")
    with pytest.raises(TableError, match="partition key 'vv' is not a column"):
        warehouse.create_table("db", "x", [Column("v", "INT")], partitioned_by=["vv"])
    warehouse.create_table("db", "orders", [Column("x", "INT")], if_not_exists=True)
    assert warehouse.table("db.orders").arrow_schema.names == ["id", "v"]
    warehouse.drop_table("db", "orders")
    assert not warehouse.exists("db", "orders")
    warehouse.drop_table("db", "orders", if_exists=True)
    warehouse.drop_database("db")
    assert warehouse.databases() == []


@pytest.mark.parametrize("kind", ["ARRAY<STRING>", "MAP<STRING, INT>", "ROW<a INT>"])
def test_keys_of_nested_types_are_refused(warehouse: Warehouse, kind: str) -> None:
    columns = [Column("id", "INT"), Column("k", kind)]
    with pytest.raises(TableError, match="primary key 'k' is an array, a map or a row"):
        warehouse.create_table("db", "t", columns, ["id", "k"])
    with pytest.raises(TableError, match="partition key 'k' is an array"):
        warehouse.create_table("db", "t", columns, (), ["k"])


@pytest.mark.parametrize("name", [*"#%&'*,:;<=>?@[]^{|}~\"ä日", "a.b", "--", "DROP TABLE t; --"])
def test_names_with_signs_are_found_again(warehouse: Warehouse, name: str) -> None:
    warehouse.create_table("db", name, [Column("id", "INT")], ["id"])
    assert warehouse.tables("db") == [name]
    assert warehouse.table(f"db.{name}").primary_key == ("id",)


@pytest.mark.parametrize(
    "name", ["a$b", "a/b", "../b", "a\\b", "a`b`c", "a\tb", ".", "..", " a", "a "]
)
def test_names_that_no_folder_has_are_refused(warehouse: Warehouse, name: str) -> None:
    columns = [Column("id", "INT")]
    with pytest.raises(TableError, match="a name (with|cannot)"):
        warehouse.create_table("db", name, columns)
    with pytest.raises(TableError, match="a name (with|cannot)"):
        warehouse.create_database(name)
    warehouse.create_table("db", "a", columns)
    with pytest.raises(TableError, match="a name (with|cannot)"):
        warehouse.rename_table("db.a", f"db.{name}")
    assert warehouse.tables("db") == ["a"] and warehouse.databases() == ["db"]


def test_a_table_is_not_renamed_into_a_folder_that_exists(lab: Lab) -> None:
    lab.make("a")
    folder = Path(lab.warehouse.table("db.a").location).parent / "b"
    folder.mkdir()
    with pytest.raises(TableError, match="b exists, and is no table of the catalog; remove it"):
        lab.warehouse.rename_table("db.a", "db.b")
    folder.rmdir()
    lab.warehouse.rename_table("db.a", "db.b")
    assert lab.warehouse.tables("db") == ["b"]


def test_a_recreated_table_is_reopened(lab: Lab) -> None:
    lab.make("t")
    assert lab.warehouse.table("db.t") is lab.warehouse.table("db.t")
    lab.warehouse.drop_table("db", "t")
    lab.warehouse.create_table("db", "t", [Column("other", "INT")])
    assert lab.warehouse.table("db.t").arrow_schema.names == ["other"]


def test_a_table_created_while_it_is_opened(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.make("other")
    exists = Warehouse.exists

    def created_meanwhile(self: Warehouse, database: str, name: str) -> bool:
        monkeypatch.setattr(Warehouse, "exists", exists)
        self.create_table(database, name, [Column("v", "INT")])
        return self.exists(database, name)

    monkeypatch.setattr(Warehouse, "exists", created_meanwhile)
    assert lab.warehouse.table("db.t").arrow_schema.names == ["v"]


def test_the_newest_snapshot_is_found_despite_a_wrong_hint(lab: Lab) -> None:
    table = lab.make("t")
    assert (table.latest_snapshot_id(), table.earliest_snapshot_id()) == (None, None)
    for batch in range(1, 4):
        lab.write(table, batch, [(batch, batch)])
    hint = f"{table.location}/snapshot/LATEST"
    for text in ("1", "9", "", "x"):
        with open(hint, "w", encoding="utf-8") as file:
            file.write(text)
        assert table.latest_snapshot_id() == 3
    os.remove(hint)
    assert table.latest_snapshot_id() == 3
    os.remove(f"{table.location}/snapshot/snapshot-1")
    assert table.earliest_snapshot_id() == 2


@pytest.mark.parametrize(
    "key",
    ["bucket", "fields.v.aggregate-function", "fields.a,b.sequence-group", "lookup.cache",
     "fields.default-aggregate-function", "file-index.bloom-filter.columns",
     "parquet.compression.codec.zstd.level", "snapshot.num-retained.max"],
)  # fmt: skip
def test_options_that_paimon_knows_pass(key: str) -> None:
    assert unknown_key(key, "table t") is None


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("changelog-produser", "did you mean 'changelog-producer'"),
        ("fields.v.aggregate-functions", "did you mean 'aggregate-function'"),
        ("connector", "unknown table option 'connector'"),
        ("snapshot.num-retained", "did you mean 'snapshot.num-retained.m"),
    ],
)
def test_options_that_paimon_does_not_know_are_named(key: str, hint: str) -> None:
    with pytest.raises(OptionError, match=hint):
        check_table_options({key: "x"}, "table t")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("int", "INT"),
        ("INTEGER NOT NULL", "INT NOT NULL"),
        ("NUMERIC(10)", "DECIMAL(10, 0)"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP_LTZ(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        ("VARCHAR", "STRING"),
        ("VARCHAR(1)", "VARCHAR(1)"),
    ],
)
def test_types_in_flinks_spelling(text: str, parsed: str) -> None:
    assert types.parse(text) == parsed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DECIMAL(50, 2)", "needs 1 <= p <= 38 and 0 <= s <= p"),
        ("ARRAY<DECIMAL(50, 2)>", "needs 1 <= p <= 38"),
        ("DECIMAL(10, 12)", "0 <= s <= p"),
        ("NUMERIC(0)", "needs 1 <= p <= 38"),
        ("TIMESTAMP(10)", "the size of TIMESTAMP must be from 0 to 9, not 10"),
        ("TIMESTAMP_LTZ(10)", "the size of TIMESTAMP_LTZ must be from 0 to 9, not 10"),
        ("TIMESTAMP(10) WITH LOCAL TIME ZONE", "the size of TIMESTAMP must be from 0 to 9, not 10"),
        ("TIME(10)", "the size of TIME must be from 0 to 9, not 10"),
        ("VARCHAR(0)", "the size of VARCHAR must be from 1 to 2147483647, not 0"),
        ("ROW<a CHAR(0)>", "the size of CHAR must be from 1 to 2147483647, not 0"),
        ("BINARY(2147483648)", "the size of BINARY must be from 1 to 2147483647"),
    ],
)
def test_a_size_that_flink_does_not_have_is_refused(text: str, message: str) -> None:
    with pytest.raises(TableError, match=re.escape(message)):
        types.parse(text)


def test_a_type_is_refused_with_its_columns_name(warehouse: Warehouse) -> None:
    with pytest.raises(TableError, match=r"table db.wide, column 'n': type DECIMAL\(50, 2\)"):
        warehouse.create_table("db", "wide", [Column("n", "DECIMAL(50, 2)")])


@pytest.mark.parametrize(
    "text",
    [
        "INTT", "DECIMAL(", "ARRAY<INT", "MAP<INT>", "INT INT", "$", "",
    ],
)  # fmt: skip
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(TableError, match="is not a column type"):
        types.parse(text)
