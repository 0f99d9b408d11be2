"""`streamhouse query` back in time, on branches and on system tables."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S, until
from typer.testing import CliRunner

from streamhouse.cli.main import build


def query(shop: Any, sql: str) -> Any:
    words = ["query", sql, "--warehouse", str(shop.path), "--format", "json"]
    return CliRunner().invoke(build(words), words)


def answer(shop: Any, sql: str) -> list[tuple[Any, ...]]:
    result = query(shop, sql)
    assert result.exit_code == 0, result.stderr
    return [tuple(row.values()) for row in json.loads(result.stdout)]


def failure(shop: Any, sql: str) -> str:
    result = query(shop, sql)
    assert result.exit_code == 1 and "Traceback" not in result.stderr
    return str(result.stderr)


def filled(shop: Shop) -> Shop:
    """Chad has 1, then 2, then 3 orders; the tag `two` and the branch `b` are of the second."""
    table = shop.sales()
    for orders in (1, 2, 3):
        shop.write(table, ("Chad", orders, 1.0))
    shop.tag(table, "two", 2)
    shop.branch(table, "b", "two")
    return shop


@pytest.fixture
def sales(shop: Shop) -> Shop:
    return filled(shop)


@pytest.fixture(scope="module")
def read_sales(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The same, which no test changes."""
    return filled(Shop(tmp_path_factory.mktemp("read") / "warehouse"))


def committed(shop: Any, snapshot: int) -> int:
    return int(shop.warehouse.table("shop.sales").snapshot(snapshot).time_ms)


def text_of(time_ms: int) -> str:
    instant = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")


@pytest.mark.parametrize(
    ("words", "orders"),
    [
        ("VERSION AS OF 1", 1),
        ("VERSION AS OF '1'", 1),
        ("FOR VERSION AS OF 2", 2),
        ("FOR SYSTEM_VERSION AS OF 2", 2),
        ("VERSION AS OF 'two'", 2),
        ("FOR SYSTEM_VERSION AS OF 'two'", 2),
        ("FOR SYSTEM_TIME AS OF TIMESTAMP '2100-01-01 00:00:00'", 3),
        ("FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP + INTERVAL '5' MINUTE", 3),
        ("TIMESTAMP AS OF '2100-01-01'", 3),
        ("FOR TIMESTAMP AS OF 4102444800", 3),
        ("TIMESTAMP AS OF 4102444800000", 3),
        ("/*+ OPTIONS('scan.snapshot-id' = '1') */", 1),
        ("/*+ OPTIONS('scan.tag-name' = 'two') */", 2),
        ("/*+ OPTIONS('scan.version' = 'two') */", 2),
        ("/*+ OPTIONS('scan.version' = '1') */", 1),
        ("/*+ OPTIONS('scan.timestamp' = '2100-01-01 00:00:00') */", 3),
        ("/*+ OPTIONS('scan.timestamp-millis' = '4102444800000') */", 3),
        ("/*+ OPTIONS('branch' = 'b') */", 2),
        ("AS s", 3),
    ],
)
def test_each_way_to_name_a_point_in_time(read_sales: Shop, words: str, orders: int) -> None:
    assert answer(read_sales, f"SELECT orders FROM sales {words}") == [(orders,)]


def test_times_between_commits(shop: Any) -> None:
    table = shop.sales()
    for orders in (1, 2):
        shop.write(table, ("Chad", orders, 1.0))
        at = committed(shop, orders)
        until(lambda at=at: time.time() * 1000 >= at + 2)  # type: ignore[misc]
    second = committed(shop, 2)
    for instant, orders in ((second - 1, 1), (second, 2), (second + 1, 2)):
        for words in (
            f"FOR SYSTEM_TIME AS OF TIMESTAMP '{text_of(instant)}'",
            f"TIMESTAMP AS OF '{text_of(instant)}'",
            f"TIMESTAMP AS OF {instant}",
            f"/*+ OPTIONS('scan.timestamp-millis' = '{instant}') */",
            f"/*+ OPTIONS('scan.timestamp' = '{text_of(instant)}') */",
        ):
            assert answer(shop, f"SELECT orders FROM {table} {words}") == [(orders,)], words


def test_versions_of_one_table_in_one_query(sales: Any) -> None:
    found = answer(
        sales,
        "SELECT a.orders, b.orders, c.orders, d.orders FROM sales VERSION AS OF 1 AS a "
        "JOIN sales VERSION AS OF 'two' AS b ON a.country = b.country "
        "JOIN sales AS c ON c.country = a.country "
        "JOIN `sales$branch_b` AS d ON d.country = a.country",
    )
    assert found == [(1, 2, 3, 2)]


def test_columns_are_those_of_the_snapshot(sales: Any) -> None:
    from pypaimon import CatalogFactory
    from pypaimon.schema.data_types import AtomicType
    from pypaimon.schema.schema_change import SchemaChange

    catalog = CatalogFactory.create({"warehouse": str(sales.path)})
    change = SchemaChange.add_column("note", AtomicType("STRING"))
    catalog.alter_table("shop.sales", [change], False)
    sales.write("shop.sales", ("Chad", 4, 1.0, "new"))
    assert answer(sales, "SELECT * FROM sales") == [("Chad", 4, 1.0, "new")]
    assert answer(sales, "SELECT * FROM sales VERSION AS OF 3") == [("Chad", 3, 1.0)]
    assert answer(sales, "SELECT * FROM sales VERSION AS OF 'two'") == [("Chad", 2, 1.0)]
    assert "there is no column 'note'" in failure(sales, "SELECT note FROM sales VERSION AS OF 1")


def test_a_branch_has_its_own_rows(sales: Any) -> None:
    sales.write("shop.sales$branch_b", ("Mali", 9, 1.0))
    assert answer(sales, "SELECT COUNT(*) FROM shop.sales$branch_b") == [(2,)]
    assert answer(sales, "SELECT COUNT(*) FROM `sales$branch_b` VERSION AS OF 'two'") == [(1,)]
    assert answer(sales, "SELECT COUNT(*) FROM `sales`") == [(1,)]
    assert answer(sales, "SELECT COUNT(*) FROM `sales$branch_main`") == [(1,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM sales VERSION AS OF 9", "has no snapshot 9; its newest is 3"),
        ("SELECT * FROM sales VERSION AS OF 'tow'", "has no tag 'tow'; did you mean 'two'?"),
        (
            "SELECT * FROM sales TIMESTAMP AS OF '2001-02-03'",
            "no snapshot as old as 2001-02-03 00:00:00.000 UTC; its earliest is 1, committed at 2",
        ),
        ("SELECT * FROM sales TIMESTAMP AS OF 1", "its tags are two"),
        ("SELECT * FROM sales$branch_c", "has no branch 'c'; known: b"),
        ("SELECT * FROM sales$snapshot", "no system table '$snapshot'; did you mean 'snapshots'?"),
        ("SELECT * FROM sale$snapshots", "there is no table 'sale'; did you mean 'shop.sales'?"),
        ("SELECT * FROM shop.sale$branch_b", "there is no table 'sale'"),
        ("SELECT * FROM sales$a$b", "does not name a table"),
        ("SELECT * FROM sales$options VERSION AS OF 1", "does not support time travel"),
        (
            "SELECT * FROM sales /*+ OPTIONS('scan.tag-name'='two') */ VERSION AS OF 1",
            "also names a version; keep one of them",
        ),
        (
            "SELECT * FROM sales /*+ OPTIONS('scan.tag-name'='two', 'scan.version'='1') */",
            "cannot be combined",
        ),
        ("SELECT * FROM sales /*+ OPTIONS('scan.timestamp'='noon') */", "'noon' is not a time"),
    ],
)
def test_an_error_about_a_missing_point_in_time_lists_the_existing_ones(
    read_sales: Shop, sql: str, message: str
) -> None:
    assert message in failure(read_sales, sql)


def test_the_error_of_an_expired_snapshot_lists_the_remaining_ones(sales: Any) -> None:
    table = sales.warehouse.table("shop.sales")
    table.files.delete(f"{table.location}/snapshot/snapshot-1")
    said = failure(sales, "SELECT * FROM sales VERSION AS OF 1")
    assert "snapshot 1 is gone, 2 to 3 are left" in said and "its tags are two" in said
    assert "snapshot.time-retained" in said and "anew" not in said
    table.files.delete(f"{table.location}/snapshot/snapshot-2")
    assert answer(sales, "SELECT orders FROM sales VERSION AS OF 'two'") == [(2,)]


def test_system_tables(sales: Any) -> None:
    found = answer(sales, "SELECT snapshot_id, commit_kind FROM sales$snapshots ORDER BY 1")
    assert found == [(1, "APPEND"), (2, "APPEND"), (3, "APPEND")]
    assert answer(sales, "SELECT COUNT(*) FROM shop.`sales$files`") == [(3,)]
    assert answer(sales, "SELECT COUNT(*) FROM sales$files VERSION AS OF 1") == [(1,)]
    assert answer(sales, "SELECT COUNT(*) FROM sales$files VERSION AS OF 'two'") == [(2,)]
    assert answer(sales, "SELECT COUNT(*) FROM sales$branch_b$snapshots") == [(1,)]
    assert answer(sales, "SELECT tag_name, snapshot_id FROM sales$tags") == [("two", 2)]
    assert answer(sales, "SELECT branch_name FROM sales$branches b") == [("b",)]
    assert answer(sales, "SELECT * FROM sales$options") == [("bucket", "1")]
    assert answer(sales, "SELECT schema_id, primary_keys FROM sales$schemas") == [
        (0, '["country"]')
    ]
    sales.write("shop.sales", ("Chad", 0, 0.0), kinds=["-D"])
    assert answer(sales, "SELECT rowkind, country FROM sales$audit_log") == [("-D", "Chad")]
    joined = "SELECT f.level FROM sales$files f JOIN sales$schemas s USING (schema_id) LIMIT 1"
    assert answer(sales, joined) == [(0,)]


def test_system_tables_need_no_jvm_and_no_pypaimon(sales: Any) -> None:
    code = (
        "import sys\n"
        "from streamhouse.cli.main import main\n"
        "try: main()\n"
        "finally: assert not {'pyspark', 'py4j', 'pypaimon'} & set(sys.modules)\n"
    )
    sql = "SELECT COUNT(*) FROM sales$files f JOIN sales VERSION AS OF 'two' ON TRUE"
    done = subprocess.run(
        [sys.executable, "-c", code, "query", sql, "--format", "csv"],
        env={**os.environ, "STREAMHOUSE_WAREHOUSE": str(sales.path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["EXPR$0", "3"])
