"""The audit reports equality for what a stream wrote, and finds rows that it did not write."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pytest
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import CollectedOutput, Dying, Shop

from streamhouse.errors import TableError
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

pytestmark = pytest.mark.usefixtures("in_threads")

VIEW = "default.country_sales"


def write(shop: Shop, table: str, rows: list[dict[str, object]]) -> None:
    """Commit rows as some other program would."""
    user, options = str(uuid.uuid4()), shop.warehouse.options
    schema = shop.warehouse.table(table).arrow_schema
    writer = TableWriter(options, table, user)
    writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
    TableCommitter(options, table, user).commit(0, writer.prepare(0))
    writer.close()


def test_tables_of_another_catalog_are_read_there(shop: Shop) -> None:
    """A table of the same name in the target's own warehouse has other rows."""
    other = shop.folder / "other"
    script = f"""
        CREATE CATALOG other WITH ('type' = 'paimon', 'warehouse' = '{other}');
        CREATE CATALOG mine WITH ('type' = 'paimon', 'warehouse' = '{shop.path}');
        CREATE TABLE IF NOT EXISTS other.`default`.dim (id INT, name STRING, PRIMARY KEY (id)
          NOT ENFORCED) WITH ('bucket' = '1');
        CREATE TABLE IF NOT EXISTS other.`default`.src (id INT, pt AS PROCTIME());
        USE CATALOG mine;
        CREATE TABLE IF NOT EXISTS dim (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
          WITH ('bucket' = '1');
        CREATE TABLE IF NOT EXISTS src (id INT, pt AS PROCTIME());
        CREATE TABLE IF NOT EXISTS named (id INT, name STRING);
    """
    fill = """INSERT INTO other.`default`.dim VALUES (1, 'right');
        INSERT INTO dim VALUES (1, 'wrong');
        INSERT INTO other.`default`.src VALUES (1), (2); INSERT INTO src VALUES (1), (1), (1);"""
    join = """INSERT INTO named SELECT s.id, d.name FROM other.`default`.src AS s
        LEFT JOIN other.`default`.dim FOR SYSTEM_TIME AS OF s.pt AS d ON s.id = d.id;"""
    options = ScriptOptions("two", until_caught_up=True)
    ScriptRunner(options, CollectedOutput()).run(parse_script(script + fill + join))

    assert shop.rows("named") == [{"id": 1, "name": "right"}, {"id": 2, "name": None}]
    result = audit(shop.warehouse.options, "default.named")
    assert result.equal and result.rows == 2


def test_equal_after_waiting_moving_and_a_crash(shop: Shop, dying: Dying) -> None:
    options = shop.warehouse.options
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    with pytest.raises(TableError, match="has no lineage"):
        audit(options, VIEW)

    shop.settle_here(revenue.whole(rows=3_000, rate=2_000))
    moved = "INSERT INTO customers VALUES (2, 'c2', 'China'), (9, 'late', 'China')"
    shop.do(revenue.TABLES + moved)
    # The rate is in the rows, by their times; the run after the crash finds the batch committed.
    slow, fast = revenue.whole(rows=6_000, rate=200), revenue.whole(rows=6_000, rate=50_000)
    batch = revenue.checkpoint(shop, "orders").logs.last_committed() + 1
    point = f"target-committed:{batch}:default.orders"
    with dying(slow, point):
        pass
    shop.settle_here(fast)
    result = audit(options, VIEW)
    assert result.equal and result.batches > 1
    # Customer 10 never comes, customer 9 came for the second half only.
    view = {row["country"]: row["orders"] for row in shop.rows("country_sales")}
    unmatched = len(shop.rows("country_sales__unmatched"))
    assert result.joined_rows == sum(view.values()) == 6_000 - unmatched
    assert 600 < unmatched < 1_200 and view["China"] > 400
    orders = audit(options, "default.orders")
    assert orders.equal and orders.rows == 6_000, orders

    write(shop, VIEW, [{"country": "Chile", "orders": 1, "revenue": 2.5}])
    result = audit(options, VIEW)
    assert result.equal and result.foreign_snapshots == 1

    # A source range that was not read: as if the stream had counted some orders twice.
    lineage = f"{VIEW}__lineage"
    rows = sorted(shop.rows("country_sales__lineage"), key=lambda row: int(row["batch_id"]))
    with_orders = next(
        row
        for row in reversed(rows)
        if json.loads(row["start_offset"] or "{}").get("source")
        != json.loads(row["end_offset"])["source"]
    )
    end = json.loads(with_orders["end_offset"])
    start = json.loads(with_orders["start_offset"])
    first = {**with_orders, "start_offset": json.dumps({**start, "source": end["source"]})}
    write(shop, lineage, [first])
    result = audit(options, VIEW)
    assert not result.equal
    worst = result.differences[0]
    assert worst.actual and worst.expected
    assert worst.actual["orders"] > worst.expected["orders"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("'merge-engine' = 'deduplicate'", [(1, "b", 9), (2, "a", 1)]),
        (
            "'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'",
            [(1, "a", 9), (2, "a", 1)],
        ),
    ],
)
def test_a_target_whose_keys_move_between_partitions(
    shop: Shop, options: str, wanted: list[tuple[int, str, int]]
) -> None:
    columns = "k INT PRIMARY KEY NOT ENFORCED, p STRING, v INT"
    shop.do(f"CREATE TABLE src ({columns}) WITH ('bucket' = '1');")
    shop.do(f"CREATE TABLE dst ({columns}) PARTITIONED BY (p) WITH ('bucket' = '-1', {options});")
    for rows in ("(1, 'a', 5), (2, 'a', 1)", "(1, 'b', 9)"):
        shop.do(f"INSERT INTO src VALUES {rows}")
        shop.settle_here("INSERT INTO dst SELECT k, p, v FROM src;")
    assert [tuple(row.values()) for row in shop.rows("dst")] == wanted
    assert audit(shop.warehouse.options, "default.dst").equal
    write(shop, "default.dst", [{"k": 2, "p": "a", "v": 4}])
    assert audit(shop.warehouse.options, "default.dst").foreign_snapshots == 1


def test_the_last_batch_may_write_nothing(shop: Shop) -> None:
    shop.do("CREATE TABLE src (k INT, v INT); CREATE TABLE dst (k INT, v INT);")
    for value in (5, 0, 0):
        shop.do(f"INSERT INTO src VALUES (1, {value})")
        shop.settle_here("INSERT INTO dst SELECT k, v FROM src WHERE v > 0")
        result = audit(shop.warehouse.options, "default.dst")
        assert (result.rows, result.equal) == (1, True)
    # Also once what it read has expired.
    shop.do("INSERT INTO src VALUES (1, 0)")
    expire = "sys.expire_snapshots(`table` => 'default.src', retain_max => 1, retain_min => 1)"
    shop.printed(f"CALL {expire}")
    assert audit(shop.warehouse.options, "default.dst").equal


def test_rows_that_replace_others_come_batch_by_batch(shop: Shop) -> None:
    """A range of an append table is read partition by partition."""
    shop.do("CREATE TABLE src (k INT, p STRING, v INT) PARTITIONED BY (p)")
    script = (
        "CREATE TABLE IF NOT EXISTS dst (k INT PRIMARY KEY NOT ENFORCED, p STRING, v INT);"
        "INSERT INTO dst SELECT k, p, v FROM src"
    )
    for v, p in enumerate("cba"):
        shop.do(f"INSERT INTO src VALUES (1, '{p}', {v})")
        shop.settle_here(script)
    assert shop.rows("dst") == [{"k": 1, "p": "a", "v": 2}]
    assert audit(shop.warehouse.options, "default.dst").equal


def test_an_append_table_is_read_in_the_order_of_its_commits(shop: Shop) -> None:
    """More files than one split holds; which row of a key comes first or last decides a target."""
    shop.do("CREATE TABLE src (k INT, v INT) WITH ('bucket' = '-1');")
    wanted = {"'merge-engine' = 'deduplicate'": 10, "'merge-engine' = 'first-row'": 0}
    for number, options in enumerate(wanted):
        columns = "k INT PRIMARY KEY NOT ENFORCED, v INT"
        shop.do(f"CREATE TABLE dst{number} ({columns}) WITH ('bucket' = '1', {options});")
    for value in range(11):
        shop.do(f"INSERT INTO src VALUES (1, {value})")
    shop.settle_here("".join(f"INSERT INTO dst{n} SELECT k, v FROM src;" for n in (0, 1)))
    for number, value in enumerate(wanted.values()):
        assert shop.rows(f"dst{number}") == [{"k": 1, "v": value}]
        assert audit(shop.warehouse.options, f"default.dst{number}").equal
