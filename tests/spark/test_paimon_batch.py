from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.spark import prepare
from streamhouse.sql.plan import Column

PAIR = [Column("id", "BIGINT"), Column("v", "INT")]


def read(spark: SparkSession, warehouse: Warehouse, table: str, **options: str) -> DataFrame:
    reader = spark.read.format("paimon").option("warehouse", warehouse.path)
    return reader.options(**options).load(table)


def write(
    frame: DataFrame, warehouse: Warehouse, table: str, mode: str = "append", **options: str
) -> None:
    writer = frame.write.format("paimon").mode(mode).option("warehouse", warehouse.path)
    writer.options(**options).save(table)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_every_type_is_written_and_read(spark: SparkSession, warehouse: Warehouse) -> None:
    columns = [
        Column("id", "BIGINT"), Column("b", "BOOLEAN"), Column("t", "TINYINT"),
        Column("s", "SMALLINT"), Column("i", "INT"), Column("f", "FLOAT"), Column("d", "DOUBLE"),
        Column("n", "DECIMAL(12, 3)"), Column("c", "VARCHAR(9)"), Column("y", "BYTES"),
        Column("day", "DATE"), Column("p0", "TIMESTAMP(0)"), Column("p3", "TIMESTAMP(3)"),
        Column("p6", "TIMESTAMP(6)"), Column("p5", "TIMESTAMP(5)"),
        Column("z3", "TIMESTAMP_LTZ(3)"), Column("a", "ARRAY<STRING>"),
        Column("m", "MAP<STRING, INT>"), Column("r", "ROW<x INT, y TIMESTAMP(3)>"),
    ]  # fmt: skip
    warehouse.create_table("db", "t", columns, ["id"], options={"bucket": "1"})
    instant = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
    full = (
        1, True, 1, 2, 3, 0.5, 0.25, Decimal("1.234"), "ü", b"\x00\xff",
        datetime.date(1969, 12, 31), instant, instant, instant, instant, instant,
        ["a", None], {"k": 1}, (7, instant),
    )  # fmt: skip
    empty = (2, *[None] * (len(full) - 1))
    schema = (
        "id long, b boolean, t byte, s short, i int, f float, d double, n decimal(12,3), "
        "c string, y binary, day date, p0 timestamp_ntz, p3 timestamp_ntz, p6 timestamp_ntz, "
        "p5 timestamp_ntz, z3 timestamp, a array<string>, m map<string,int>, "
        "r struct<x:int,y:timestamp_ntz>"
    )
    write(spark.createDataFrame([full, empty], schema), warehouse, "db.t")
    frame = read(spark, warehouse, "db.t")
    kinds = dict(frame.dtypes)
    assert (kinds["p3"], kinds["z3"], kinds["n"]) == ("timestamp_ntz", "timestamp", "decimal(12,3)")
    first, second = sorted(frame.collect())
    millis, second_only = instant.replace(microsecond=123000), instant.replace(microsecond=0)
    expected = [*full]
    tens = instant.replace(microsecond=123450)
    expected[11:16] = [second_only, millis, instant, tens, millis]
    expected[18] = Row(x=7, y=millis)
    stored = [*first]
    stored[15] = stored[15].astimezone(datetime.UTC).replace(tzinfo=None)
    assert [bytes(v) if isinstance(v, bytearray) else v for v in stored] == expected
    assert tuple(second) == empty


def test_zoned_timestamps_go_into_zoneless_columns_as_utc(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    warehouse.create_table(
        "db", "t", [Column("a", "TIMESTAMP(3)"), Column("b", "TIMESTAMP_LTZ(3)")]
    )
    frame = spark.sql(
        "SELECT TIMESTAMP '2024-01-01 12:00:00+02:00' AS a, "
        "TIMESTAMP_NTZ '2024-01-01 12:00:00' AS b"
    )
    write(frame, warehouse, "db.t")
    (row,) = (
        read(spark, warehouse, "db.t")
        .selectExpr("cast(a as string)", "cast(b as string)")
        .collect()
    )
    assert tuple(row) == ("2024-01-01 10:00:00", "2024-01-01 12:00:00")


@pytest.fixture(scope="module")
def people(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A table that the tests only read."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("people")))
    warehouse.create_database("db")
    columns = [
        Column("id", "BIGINT"), Column("name", "STRING"), Column("age", "INT"),
        Column("born", "TIMESTAMP(3)"), Column("score", "DOUBLE"),
    ]  # fmt: skip
    warehouse.create_table("db", "people", columns, ["id"], options={"bucket": "2"})
    for version in (1, 2):
        frame = session.range(50).selectExpr(
            "id", "concat('p', id) AS name",
            f"if(id % 7 = 0, null, cast(id + {version} AS int)) AS age",
            "timestamp_millis(id * 1000)::timestamp_ntz AS born",
            "if(id = 9, double('NaN'), if(id = 4, -0.0D, id / 2 - 2)) AS score",
        )  # fmt: skip
        write(frame, warehouse, "db.people")
    return warehouse


@pytest.fixture(scope="module")
def known(session: SparkSession, people: Warehouse) -> DataFrame:
    """Its rows, of which Spark alone takes those that are asked for."""
    return read(session, people, "db.people").localCheckpoint()


@pytest.mark.parametrize(
    "condition",
    [
        "id = 7", "id IN (1, 2, 99)", "id > 47", "id <= 2", "id BETWEEN 3 AND 5", "NOT id = 3",
        "age = 2", "age = 3", "age IS NULL", "age IS NOT NULL AND id < 9", "age > 40 OR id = 1",
        "name = 'p5'", "name LIKE 'p4%'", "name LIKE '%9'", "name LIKE '%1%'", "name LIKE 'p_'",
        "born = TIMESTAMP_NTZ '1970-01-01 00:00:05'",
        "born < TIMESTAMP_NTZ '1970-01-01 00:00:05.0005'",
        "score > 20", "score = double('NaN')", "score = 0", "score <= 0.5", "score <> 1.0",
        "age <=> NULL", "id = 5 AND name = 'p6'", "id % 10 = 3", "id = 5000000000000",
    ],
)  # fmt: skip
def test_pushed_filters_change_no_answer(
    spark: SparkSession, people: Warehouse, known: DataFrame, condition: str
) -> None:
    frame = read(spark, people, "db.people", **{"filter-pushdown": "true"})
    expected = known.where(condition)
    assert rows(frame.where(condition).select("id", "name", "age")) == rows(
        expected.select("id", "name", "age")
    )


def test_a_frame_answers_each_query_by_itself(spark: SparkSession, people: Warehouse) -> None:
    frame = read(spark, people, "db.people")
    everything = rows(read(spark, people, "db.people").select("id"))
    assert rows(frame.where("id = 1").select("id")) == [(1,)]
    assert rows(frame.select("id")) == everything
    assert len(everything) > 1 and frame.count() == len(everything)
    joined = frame.alias("a").join(frame.alias("b"), "id")
    assert joined.count() == len(everything)


def test_columns_and_row_kinds_on_request(spark: SparkSession, people: Warehouse) -> None:
    frame = read(spark, people, "db.people", columns="name, id", rowkind="true").where("id = 1")
    assert frame.columns == ["name", "id", "rowkind"]
    assert rows(frame) == [("p1", 1, "+I")]


def test_an_older_snapshot_can_be_read(spark: SparkSession, people: Warehouse) -> None:
    for option in ("snapshot", "scan.snapshot-id"):
        old = read(spark, people, "db.people", **{option: "1"}).where("id = 1")
        assert old.select("age").collect() == [Row(age=2)]
    with pytest.raises(PySparkException, match="has no snapshot 9; its newest is 2"):
        read(spark, people, "db.people", snapshot="9").collect()


def test_an_empty_table_reads_empty(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.create_table("db", "t", PAIR)
    assert read(spark, warehouse, "db.t").collect() == []
    write(spark.createDataFrame([], "id long, v int"), warehouse, "db.t")
    assert warehouse.table("db.t").latest_snapshot_id() is None


@pytest.mark.parametrize("rows_each", [5, 200_000])
def test_row_kinds_apply_in_the_frames_order_across_partitions(
    spark: SparkSession, warehouse: Warehouse, rows_each: int
) -> None:
    warehouse.create_table("db", "t", PAIR, ["id"], options={"bucket": "2"})
    frame = (
        spark.range(4 * rows_each, numPartitions=4)
        .withColumn("part", (f.col("id") / rows_each).cast("int"))
        .selectExpr(
            f"id % {rows_each} AS id",
            "part AS v",
            "case when part = 3 and id % 2 = 0 then '-D' when part = 0 then '+I' else '+U' end "
            "AS rowkind",
        )
    )
    write(frame, warehouse, "db.t")
    counted = read(spark, warehouse, "db.t").groupBy("v").count().collect()
    assert [tuple(row) for row in counted] == [(3, (rows_each + 1) // 2)]
    table = warehouse.table("db.t")
    assert table.latest_snapshot_id() == 1
    assert [name for name, _ in table.files.names(table.location) if "staging" in name] == []


def test_rows_arranged_by_key_are_written_in_their_tasks(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    warehouse.create_table("db", "t", PAIR, ["id"], options={"bucket": "1"})
    frame = spark.range(100).selectExpr("id", "1 AS v").repartition(3, "id")
    write(frame, warehouse, "db.t", distribution="by-key")
    assert read(spark, warehouse, "db.t").count() == 100


def test_missing_columns_are_null_and_columns_go_by_name(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    warehouse.create_table(
        "db", "t", [*PAIR, Column("s", "STRING")], ["id"], options={"bucket": "1"}
    )
    write(spark.sql("SELECT 'x' AS s, 1L AS id"), warehouse, "db.t")
    assert rows(read(spark, warehouse, "db.t")) == [(1, None, "x")]


def test_overwrite_replaces_the_table(spark: SparkSession, warehouse: Warehouse) -> None:
    for name, key in (("keyed", ["id"]), ("plain", [])):
        options = {"bucket": "1"} if key else {}
        warehouse.create_table("db", name, PAIR, key, options=options)
        write(spark.sql("SELECT 1L AS id, 1 AS v"), warehouse, f"db.{name}")
        write(spark.sql("SELECT 2L AS id, 2 AS v"), warehouse, f"db.{name}", "overwrite")
        assert rows(read(spark, warehouse, f"db.{name}")) == [(2, 2)]


def test_overwrite_of_partitions_follows_the_tables_option(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    warehouse.create_table("db", "t", PAIR, partitioned_by=["v"])
    write(spark.sql("SELECT id, cast(id AS int) AS v FROM range(3)"), warehouse, "db.t")
    some = spark.sql("SELECT 7L AS id, 1 AS v")
    write(some, warehouse, "db.t", "overwrite")
    assert rows(read(spark, warehouse, "db.t")) == [(0, 0), (2, 2), (7, 1)]
    write(some, warehouse, "db.t", "overwrite", **{"dynamic-partition-overwrite": "false"})
    assert rows(read(spark, warehouse, "db.t")) == [(7, 1)]


def test_a_failing_write_leaves_nothing(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.create_table("db", "t", PAIR)
    frame = spark.range(10, numPartitions=2).selectExpr(
        "id", "if(id = 9, raise_error('broken'), 1) AS v"
    )
    with pytest.raises(PySparkException, match="broken"):
        write(frame, warehouse, "db.t")
    table = warehouse.table("db.t")
    assert table.latest_snapshot_id() is None
    assert [name for name, _ in table.files.names(f"{table.location}/bucket-0")] == []


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("db.peopl", {}, "there is no table 'peopl' in database 'db'; did you mean 'people'?"),
        ("dc.people", {}, "there is no database 'dc'"),
        ("db.people", {"colums": "id"}, "unknown option 'colums'; did you mean 'columns'?"),
        ("db.people", {"columns": "idd"}, "no column 'idd'; did you mean 'id'?"),
        ("db.people", {"scan.mode": "latest", "maxRowsPerTrigger": "0"}, "the least is 1"),
    ],
)
def test_mistakes_are_named(
    spark: SparkSession, people: Warehouse, table: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises((AnalysisException, PySparkException)) as caught:
        read(spark, people, table, **options).collect()
    assert message in str(caught.value)


def test_a_missing_warehouse_or_column_is_named(spark: SparkSession, people: Warehouse) -> None:
    with pytest.raises((AnalysisException, PySparkException), match="'warehouse' is missing"):
        spark.read.format("paimon").load("db.people")
    with pytest.raises((AnalysisException, PySparkException), match="did you mean 'name'"):
        write(spark.sql("SELECT 1L AS id, 'x' AS nam"), people, "db.people")


@pytest.fixture
def another(spark: SparkSession) -> Iterator[SparkSession]:
    """Another session of the same Spark, which takes the first for active again after the test."""
    yield spark.newSession()
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)


@pytest.mark.parametrize("given", [None, "123456"])
def test_batches_to_python_are_bounded_by_rows_unless_the_session_sets_another_limit(
    another: SparkSession, given: str | None
) -> None:
    key, session = "spark.sql.execution.arrow.maxBytesPerBatch", another
    session.conf.unset(key)
    if given is not None:
        session.conf.set(key, given)
    prepare(session)
    assert session.conf.get(key) == (given or "2147483647")
