"""ALTER TABLE: refused changes, resulting options, and reads across schema versions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError, SchemaChangeError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.system_tables import SystemTable
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import renamed_to
from streamhouse.paimon.schema.type_widening import widens, wider
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.execute import execute
from streamhouse.runtime.session.session import Session
from streamhouse.sql.plan import AsOf, Column
from streamhouse.sql.statements.alter_table import AlterTable
from streamhouse.sql.statements.script import parse_script

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
SUMS = {
    "bucket": "1",
    "merge-engine": "aggregation",
    "sequence.field": "s",
    "fields.v.aggregate-function": "sum",
    "fields.w.aggregate-function": "max",
}
COLUMNS = [
    Column("id", "BIGINT"),
    Column("v", "INT"),
    Column("w", "INT"),
    Column("s", "BIGINT"),
    Column("r", "ROW<a INT, b STRING>"),
]


class Shop:
    """Tables `sums` (keyed) and `log` (append), altered by SQL."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.session = Session(warehouse.options)
        warehouse.create_table("default", "sums", COLUMNS, ["id"], options=SUMS)
        warehouse.create_table("default", "log", COLUMNS)

    def alter(self, text: str) -> None:
        [statement] = parse_script(f"ALTER TABLE {text}")
        assert isinstance(statement, AlterTable)
        self.session.tables.alter(statement)

    def table(self, name: str) -> Table:
        return self.warehouse.table(f"default.{name}")

    def write(
        self, name: str, batch: int, *rows: dict[str, Any], planned: int | None = None
    ) -> None:
        full = f"default.{name}"
        writer = TableWriter(self.warehouse.options, full, USER, planned=planned)
        writer.write(pa.RecordBatch.from_pylist(list(rows)))
        messages = writer.prepare(batch)
        writer.close()
        TableCommitter(self.warehouse.options, full, USER).commit(batch, messages)

    def rows(self, name: str, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
        batches = self.table(name).read(list(columns) or None, **options)
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.fixture
def shop(warehouse: Warehouse) -> Shop:
    warehouse.create_database("default")
    return Shop(warehouse)


def test_a_column_moves_and_keeps_its_comment(shop: Shop) -> None:
    shop.alter("sums ADD (x INT COMMENT 'new' AFTER id, y STRING FIRST, z DATE)")
    shop.alter("sums ALTER COLUMN v COMMENT 'sum'")
    columns = shop.table("sums").columns
    assert [c.name for c in columns] == ["y", "id", "x", "v", "w", "s", "r", "z"]
    assert [c.comment for c in columns if c.comment] == ["new", "sum"]
    shop.alter("sums ALTER COLUMN y AFTER z")
    assert shop.table("sums").columns[-1].name == "y"


def test_a_change_of_many_is_one_version_or_none(shop: Shop) -> None:
    shop.alter("log ADD (x INT, y INT)")
    assert shop.table("log").schema_id == 1
    with pytest.raises(TableError, match="column 'x' already exists"):
        shop.alter("log ADD (q INT, x INT)")
    assert shop.table("log").schema_id == 1
    shop.alter("log ADD COLUMN IF NOT EXISTS x INT")
    shop.alter("log DROP COLUMN IF EXISTS nothing")
    shop.alter("IF EXISTS nowhere ADD x INT")
    assert shop.table("log").schema_id == 1


REFUSED = [
    ("sums ADD x INT NOT NULL", SchemaChangeError, "leave out NOT NULL"),
    ("sums DROP id", SchemaChangeError, "part of the primary key"),
    ("sums DROP s", SchemaChangeError, "option 'sequence.field' = 's' names column 's'"),
    ("sums DROP vv", TableError, "did you mean 'v'"),
    ("sums RENAME v TO w", TableError, "column 'w' already exists"),
    ("sums MODIFY id STRING", SchemaChangeError, "part of the primary key"),
    ("sums MODIFY v SMALLINT", SchemaChangeError, "BIGINT, DOUBLE, DECIMAL(10, 0) and wider, STR"),
    ("sums MODIFY r STRING", SchemaChangeError, "no other type"),
    ("sums ALTER COLUMN v SET NOT NULL", SchemaChangeError, "may hold nulls already"),
    ("sums ALTER COLUMN id DROP NOT NULL", SchemaChangeError, "cannot be nullable"),
    ("sums ALTER COLUMN r.c TYPE BIGINT", TableError, "'r' has no 'c'"),
    ("sums SET ('primary-key' = 'v')", OptionError, "decides how every file is sorted"),
    ("sums SET ('bukcet' = '2')", OptionError, "did you mean 'bucket'?"),
    ("nowhere ADD x INT", TableError, "there is no table 'nowhere'"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[text for text, *_ in REFUSED])
def test_refused_with_a_reason(
    shop: Shop, text: str, kind: type[StreamhouseError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        shop.alter(text)
    assert message in str(caught.value)
    assert shop.table("sums").schema_id == 0


def test_structural_options_are_free_only_while_the_table_is_empty(shop: Shop) -> None:
    shop.alter("sums SET ('merge-engine' = 'aggregation', 'bucket' = '2')")
    assert shop.table("sums").bucket == 2
    shop.write("sums", 0, {"id": 1, "v": 1})
    for option, value in (("bucket", "1"), ("merge-engine", "deduplicate")):
        with pytest.raises(OptionError, match=f"'{option}' cannot be changed once"):
            shop.alter(f"sums SET ('{option}' = '{value}')")
        with pytest.raises(OptionError, match=f"'{option}' cannot be changed once"):
            shop.alter(f"sums RESET ('{option}')")
    shop.alter("sums SET ('snapshot.num-retained.max' = '20', 'comment' = 'what is sold')")
    assert shop.table("sums").options["snapshot.num-retained.max"] == "20"
    assert shop.table("sums").schema["comment"] == "what is sold"
    shop.alter("sums RESET ('snapshot.num-retained.max')")
    assert "snapshot.num-retained.max" not in shop.table("sums").options


def test_options_follow_their_columns(shop: Shop) -> None:
    shop.write("sums", 0, {"id": 1, "v": 1, "w": 5, "s": 1})
    shop.alter("sums RENAME v TO total")
    shop.alter("sums RENAME s TO at")
    shop.alter("sums DROP w")
    options = shop.table("sums").options
    assert options["fields.total.aggregate-function"] == "sum"
    assert options["sequence.field"] == "at"
    assert [key for key in options if ".w." in key or ".v." in key] == []
    shop.write("sums", 1, {"id": 1, "total": 2, "at": 2})
    assert shop.rows("sums", "id", "total", "at") == [(1, 3, 2)]


def test_a_computed_column_holds_its_columns(shop: Shop) -> None:
    [made] = parse_script("CREATE TABLE c (a INT, b INT, d AS a + 1) WITH ('bucket' = '-1')")
    shop.session.tables.create(made)  # type: ignore[arg-type]
    for text in ("c DROP a", "c RENAME a TO x"):
        with pytest.raises(SchemaChangeError, match="computed column 'd' AS a \\+ 1 uses"):
            shop.alter(text)
    shop.alter("c RENAME b TO x")


def test_nulls_are_allowed_and_forbidden(shop: Shop) -> None:
    shop.alter("log SET ('alter-column-null-to-not-null.disabled' = 'false')")
    shop.alter("log ALTER COLUMN v SET NOT NULL")
    with pytest.raises(TableError, match="'v' is NOT NULL"):
        shop.write("log", 0, {"id": 1})
    shop.alter("log MODIFY v INT")
    shop.write("log", 0, {"id": 1})
    assert shop.rows("log", "id", "v") == [(1, None)]


def test_a_table_gets_another_name(shop: Shop) -> None:
    shop.write("log", 0, {"id": 1})
    with pytest.raises(TableError, match="'default.sums' already exists"):
        shop.alter("log RENAME TO sums")
    shop.alter("log RENAME TO book")
    assert shop.rows("book", "id") == [(1,)]
    assert not shop.warehouse.exists("default", "log")
    with pytest.raises(TableError, match="no table 'log'"):
        shop.alter("log RENAME TO other")


def test_a_snapshot_is_read_with_the_columns_of_now_or_of_then(shop: Shop) -> None:
    shop.write("log", 0, {"id": 1, "v": 1, "w": 7})
    shop.alter("log RENAME v TO x")
    shop.alter("log DROP w")
    shop.alter("log MODIFY x BIGINT")
    shop.alter("log ADD w STRING")
    only = {"method": "equal", "field": "x", "literals": [1]}
    assert shop.rows("log", "id", "x", "w", snapshot=1) == [(1, 1, None)]
    assert shop.rows("log", "id", "x", "w", snapshot=1, filter=only) == [(1, 1, None)]
    shop.write("log", 1, {"id": 2, "x": 2**40, "w": "new"})
    assert shop.rows("log", "id", "x", "w", snapshot=1) == [(1, 1, None)]
    assert shop.rows("log", "id", "x", "w") == [(1, 1, None), (2, 2**40, "new")]
    then = shop.table("log").open_version(0)
    [row] = [row for batch in then.read(["id", "v", "w"], snapshot=1) for row in batch.to_pylist()]
    assert row == {"id": 1, "v": 1, "w": 7}
    with pytest.raises(TableError, match="no column 'v'; it was renamed to 'x'"):
        shop.rows("log", "v")
    shop.alter("log DROP w")
    assert renamed_to(shop.table("log"), "w") == "it was dropped"


@pytest.mark.parametrize(
    "layout",
    [
        "v STRING, n INT) WITH ('bucket' = '-1'",
        "v STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1'",
        "v STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1', "
        "'deletion-vectors.enabled' = 'true'",
        "v STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1', "
        "'merge-engine' = 'partial-update'",
    ],
)
def test_a_query_has_the_columns_of_now_also_before_the_next_commit(
    warehouse: Warehouse, layout: str
) -> None:
    """ALTER TABLE creates no snapshot, and queries read one snapshot: not with its columns."""
    execute(
        warehouse,
        f"CREATE TABLE t (id INT, {layout}); INSERT INTO t VALUES (1, 'old', 5);"
        "ALTER TABLE t DROP (v); ALTER TABLE t ADD (v STRING);"
        "ALTER TABLE t RENAME n TO m; ALTER TABLE t ADD (n BIGINT); ALTER TABLE t MODIFY m BIGINT;",
    )

    def rows(table: Table | SystemTable) -> list[tuple[Any, ...]]:
        batches = table.read(["id", "m", "v", "n"])
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    pinned = warehouse.readable("default.t", pin=True)
    execute(
        warehouse, "CREATE TABLE c (id INT, m BIGINT, v STRING, n BIGINT) WITH ('bucket' = '-1')"
    )
    execute(warehouse, "INSERT INTO c SELECT id, m, v, n FROM t WHERE m = 5")
    execute(warehouse, "INSERT INTO c SELECT id, m, v, n FROM t WHERE v = 'old'")
    assert rows(pinned) == rows(warehouse.table("default.c")) == [(1, 5, None, None)]
    execute(warehouse, "INSERT INTO t (id, v) VALUES (2, 'new')")
    assert rows(pinned) == [(1, 5, None, None)]
    assert rows(warehouse.readable("default.t", pin=True))[1:] == [(2, None, "new", None)]
    if "PRIMARY KEY" not in layout:
        assert len(rows(warehouse.readable("default.t$ro", pin=True))) == 2
    then = warehouse.readable("default.t", AsOf(snapshot=1), pin=True)
    if "deletion-vectors" not in layout:
        assert [batch.to_pylist() for batch in then.read()] == [[{"id": 1, "v": "old", "n": 5}]]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_changes_of_old_files_keep_their_kinds(shop: Shop, producer: str) -> None:
    options = {"bucket": "1", "changelog-producer": producer}
    shop.warehouse.create_table("default", "p", COLUMNS[:3], ["id"], options=options)
    raw = {"scan.remove-normalize": "true"} if producer == "input" else {}
    source = PaimonSource(shop.warehouse.options, "default.p", ["id", "v"], raw)
    shop.write("p", 0, {"id": 1, "v": 1}, {"id": 2, "v": 2})
    offset = source.latest_offset({})
    shop.write("p", 1, {"id": 1, "v": 1, "rowkind": "-D"}, {"id": 2, "v": 3, "rowkind": "+U"})
    shop.alter("p RENAME v TO x")
    shop.alter("p MODIFY x BIGINT")
    shop.alter("p ADD y INT")
    shop.write("p", 2, {"id": 3, "x": 2**40})
    middle, end = {"snapshot": 2}, source.latest_offset(offset)

    def read(start: dict[str, int], end: dict[str, int]) -> list[tuple[Any, ...]]:
        [partition] = source.partitions(start, end)
        found = [row for batch in source.read(partition) for row in batch.to_pylist()]
        return sorted(tuple(row.values()) for row in found)

    before = [(2, 2, "-U")] if producer == "none" else []
    assert read(offset, middle) == [(1, 1, "-D"), *before, (2, 3, "+U")]
    assert read(middle, end) == [(3, 2**40, "+I")]
    # The first full read merges files of both versions.
    assert read({}, end) == [(2, 3, "+I"), (3, 2**40, "+I")]


def test_a_running_writer_continues_by_the_ids_of_its_columns(shop: Shop) -> None:
    shop.write("log", 0, {"id": 1, "v": 1, "w": 1}, planned=0)
    shop.alter("log RENAME v TO x")
    shop.alter("log DROP w")
    shop.alter("log ADD (v STRING, w STRING)")
    shop.write("log", 1, {"id": 2, "v": 2, "w": None}, planned=0)
    assert shop.rows("log", "id", "x", "v", "w") == [(1, 1, None, None), (2, 2, None, None)]
    with pytest.raises(SchemaChangeError, match="column 'w' .* has been dropped; leave it out"):
        shop.write("log", 2, {"id": 3, "v": 3, "w": 3}, planned=0)
    assert shop.table("log").snapshot(2).schema_id == 3


def test_a_running_reader_continues_until_its_column_is_dropped(shop: Shop) -> None:
    source = PaimonSource(shop.warehouse.options, "default.log", ["id", "v"])
    shop.write("log", 0, {"id": 1, "v": 1, "w": 1})
    shop.alter("log RENAME v TO x")
    shop.alter("log MODIFY x BIGINT")
    shop.alter("log ADD v STRING")
    shop.write("log", 1, {"id": 2, "x": 2**40, "v": "other"})
    end = source.latest_offset({})
    read = [
        row
        for partition in source.partitions({}, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]
    assert read == [{"id": 1, "v": 1}, {"id": 2, "v": 2**40}]
    shop.alter("log DROP x")
    with pytest.raises(SchemaChangeError, match="column 'v' .* which the query reads, has been dr"):
        source.latest_offset({})


WIDER = [
    ("TINYINT", "BIGINT", True),
    ("INT", "SMALLINT", False),
    ("INT", "FLOAT", False),
    ("SMALLINT", "FLOAT", True),
    ("INT", "DOUBLE", True),
    ("BIGINT", "DOUBLE", False),
    ("INT", "DECIMAL(12, 2)", True),
    ("INT", "DECIMAL(11, 2)", False),
    ("FLOAT", "DOUBLE", True),
    ("DECIMAL(10, 2)", "DECIMAL(12, 4)", True),
    ("DECIMAL(10, 2)", "DECIMAL(11, 4)", False),
    ("DECIMAL(10, 2)", "DECIMAL(12, 1)", False),
    ("VARCHAR(5)", "STRING", True),
    ("STRING", "VARCHAR(5)", False),
    ("CHAR(5)", "VARCHAR(5)", True),
    ("BINARY(5)", "BYTES", True),
    ("TIMESTAMP(3)", "TIMESTAMP(6)", True),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", False),
    ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", False),
    ("BOOLEAN", "INT", False),
    ("BIGINT", "STRING", True),
    ("DOUBLE", "STRING", False),
]


@pytest.mark.parametrize(("old", "new", "allowed"), WIDER)
def test_widening_loses_nothing(old: str, new: str, allowed: bool) -> None:
    assert widens(old, new) is allowed
    assert wider(old)
