"""`streamhouse query` over real tables, in each format, and its errors."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from tests.waiting import DEADLINE_S
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.sql.plan import Column


def query(shop: Any, sql: str, *arguments: str) -> Any:
    words = ["query", sql, "--warehouse", str(shop.path), *arguments]
    return CliRunner().invoke(build(words), words)


def answer(shop: Any, sql: str) -> list[dict[str, Any]]:
    result = query(shop, sql, "--format", "json")
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.fixture
def sales(shop: Any) -> str:
    table: str = shop.sales()
    shop.write(table, ("Chad", 1_234_567, 0.5), ("Mali", 2, None), ("Peru", None, 1e6))
    return table


@pytest.mark.usefixtures("sales")
def test_json_is_one_array_of_objects(shop: Any) -> None:
    assert answer(shop, "SELECT country, orders FROM shop.sales ORDER BY country DESC") == [
        {"country": "Peru", "orders": None},
        {"country": "Mali", "orders": 2},
        {"country": "Chad", "orders": 1_234_567},
    ]
    assert answer(shop, "SELECT * FROM shop.sales WHERE orders > 9999999") == []
    twice = "SELECT country, orders AS country FROM sales WHERE country = 'Mali'"
    assert list(answer(shop, twice)[0].values()) == ["Mali", 2]


@pytest.mark.usefixtures("sales")
def test_csv(shop: Any) -> None:
    result = query(shop, "SELECT * FROM sales ORDER BY country", "--format", "csv")
    assert list(csv.reader(io.StringIO(result.stdout, newline=""))) == [
        ["country", "orders", "revenue"],
        ["Chad", "1234567", "0.5"],
        ["Mali", "2", ""],
        ["Peru", "", "1000000.0"],
    ]
    assert result.stdout_bytes.count(b"\r\n") == 4


@pytest.mark.usefixtures("sales")
def test_table(shop: Any) -> None:
    result = query(shop, "SELECT * FROM sales ORDER BY country")
    assert result.stdout.splitlines() == [
        "╭─────────┬───────────┬─────────────╮",
        "│ country │    orders │     revenue │",
        "├─────────┼───────────┼─────────────┤",
        "│ Chad    │ 1,234,567 │         0.5 │",
        "│ Mali    │         2 │        NULL │",
        "│ Peru    │      NULL │ 1,000,000.0 │",
        "╰─────────┴───────────┴─────────────╯",
        "3 rows",
    ]


def test_joins_and_aggregates_keep_their_types(shop: Any, sales: str) -> None:
    orders = shop.orders()
    shop.write(orders, (1, "Chad", Decimal("1.10")), (2, "Chad", Decimal("2.20")))
    found = answer(
        shop,
        f"SELECT s.country, COUNT(*) AS n, SUM(o.id) AS ids, SUM(o.price) AS price "
        f"FROM {sales} AS s JOIN {orders} AS o ON o.item = s.country GROUP BY s.country",
    )
    assert found == [{"country": "Chad", "n": 2, "ids": 3, "price": "3.30"}]


@pytest.mark.usefixtures("sales")
def test_show_describe_and_explain(shop: Any) -> None:
    assert answer(shop, "SHOW TABLES IN shop LIKE 'sal%'") == [{"tables": "sales"}]
    described = answer(shop, "DESCRIBE shop.sales")
    assert [(each["name"], each["type"]) for each in described][0] == ("country", "STRING")
    created = query(shop, "SHOW CREATE TABLE shop.sales").stdout.splitlines()
    assert created[0].startswith("CREATE TABLE") and len(created) > 3
    plan = query(shop, "EXPLAIN SELECT country, COUNT(*) FROM shop.sales GROUP BY country").stdout
    assert "aggregate by country: COUNT(*)" in plan and "incremental" in plan
    assert "did you mean" in query(shop, "DESCRIBE shop.sale").stderr


@pytest.mark.usefixtures("sales")
def test_a_bare_name_must_be_in_one_database(shop: Any) -> None:
    shop.warehouse.create_database("other")
    assert len(answer(shop, "SELECT * FROM sales")) == 3
    shop.create("sales", [Column("a", "INT")], database="other")
    result = query(shop, "SELECT * FROM sales")
    assert result.exit_code == 1
    assert "several databases; write other.sales or shop.sales" in result.stderr


@pytest.mark.usefixtures("sales")
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM shop.sale", "did you mean 'sales'"),
        ("SELECT * FROM shpo.sales", "did you mean 'shop'"),
        ("SELECT * FROM sale", "did you mean 'shop.sales'"),
        ("SELECT contry FROM shop.sales", "country"),
        ("INSERT INTO shop.sales VALUES ('X', 1, 1)", "takes one SELECT and nothing else"),
        ("DROP TABLE shop.sales", "takes one SELECT and nothing else"),
        ("SELECT 1; DROP TABLE shop.sales", "takes one SELECT and nothing else"),
        ("SELCT 1", "did you mean SELECT?"),
        ("SELECT CAST(country AS INT) FROM shop.sales", "Chad"),
        ("SELECT 1 / 0 AS x", "Division by zero"),
        ("", "there is no statement; write one SELECT"),
    ],
)
def test_an_invalid_query_prints_one_message(shop: Any, sql: str, message: str) -> None:
    result = query(shop, sql, "--format", "json")
    assert result.exit_code == 1
    assert message in result.stderr and result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr and result.stdout == ""
    assert shop.warehouse.exists("shop", "sales")


def test_no_jvm_and_a_quick_start(shop: Any, sales: str) -> None:
    code = (
        "import sys\n"
        "from streamhouse.cli.main import main\n"
        "try: main()\n"
        "finally: assert not {'pyspark', 'py4j', 'pypaimon'} & set(sys.modules)\n"
    )
    sql = f"SELECT COUNT(*) AS n FROM {sales}"
    done = subprocess.run(
        [sys.executable, "-c", code, "query", sql, "--format", "json"],
        env={**os.environ, "STREAMHOUSE_WAREHOUSE": str(shop.path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [{"n": 3}]
