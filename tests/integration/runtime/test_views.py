"""Materialized views in a running pipeline: over each other, over sources, across failures."""

from __future__ import annotations

import logging
import shutil
from typing import Any

import pytest
from tests.integration.runtime.conftest import Shop

from streamhouse.duckdb_engine import run_bounded
from streamhouse.errors import OptionError, SqlError, TableError
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.views import query as view_query
from streamhouse.runtime.views.build import Builder
from streamhouse.runtime.views.kept_rows import kept_rows
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT, customer_id INT, price DECIMAL(10, 2));
CREATE TABLE IF NOT EXISTS customers (id INT PRIMARY KEY NOT ENFORCED, country STRING)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS best (customer_id INT PRIMARY KEY NOT ENFORCED, price DECIMAL(10, 2))
  WITH ('bucket' = '1');
"""
REVENUE = """SELECT c.country, COUNT(*) AS orders, AVG(o.price) AS average, MAX(o.price) AS most
FROM orders AS o JOIN customers AS c ON o.customer_id = c.id GROUP BY c.country"""
TOP = "SELECT country, most FROM revenue ORDER BY most DESC, country LIMIT 2"
BEST = "SELECT customer_id, MAX(price) FROM orders GROUP BY customer_id"
SCRIPT = f"""SET 'view.refresh-strategy' = 'incremental';
{TABLES}
CREATE MATERIALIZED VIEW revenue AS {REVENUE};
CREATE MATERIALIZED VIEW top AS {TOP};
INSERT INTO best {BEST};
"""


def rows(shop: Shop, query: str) -> list[tuple[Any, ...]]:
    """The rows of a bounded query, sorted."""
    (statement,) = parse_script(query)
    assert isinstance(statement, Select)
    plan = analyze_bounded(statement.query, Session(shop.warehouse.options))
    found = [tuple(row.values()) for row in run_bounded(plan, shop.warehouse).to_pylist()]
    return sorted(found, key=repr)


def check(shop: Shop) -> None:
    """All views have the rows of their queries."""
    for table, query in (("revenue", REVENUE), ("top", TOP), ("best", BEST)):
        assert rows(shop, f"SELECT * FROM {table}") == rows(shop, query), table


def test_views_follow_their_tables_across_failures(shop: Shop) -> None:
    shop.do(
        TABLES
        + "INSERT INTO orders VALUES (1, 1, 10), (2, 2, 20), (3, 9, 5);"
        + "INSERT INTO customers VALUES (1, 'DE'), (2, CAST(NULL AS STRING));"
    )
    with shop.failing_here(SCRIPT, "batch-written:0:default.revenue"):
        pass
    shop.settle_here(SCRIPT)
    check(shop)
    shop.do("UPDATE customers SET country = 'FR' WHERE id = 1; INSERT INTO orders VALUES (4, 2, 7)")
    with shop.failing_here(SCRIPT, "target-committed:1:default.revenue"):
        pass
    shop.settle_here(SCRIPT)
    check(shop)
    shop.do("DELETE FROM customers WHERE id = 2; TRUNCATE TABLE orders")
    shop.settle_here(SCRIPT)
    check(shop)
    assert rows(shop, "SELECT * FROM top") == []


def test_a_running_view_follows_changes_of_all_its_tables(shop: Shop) -> None:
    shop.do(TABLES + "INSERT INTO orders VALUES (1, 1, 10)")
    with shop.running_here(SCRIPT) as until:
        until(lambda: len(rows(shop, "SELECT * FROM best")) == 1)
        shop.do("INSERT INTO customers VALUES (1, 'DE')")
        until(lambda: len(rows(shop, "SELECT * FROM top")) == 1)
        shop.do("UPDATE customers SET country = 'FR'")
        until(lambda: [row[0] for row in rows(shop, "SELECT * FROM top")] == ["FR"])
        until(lambda: [view["bytes"] > 0 for view in kept_rows(str(shop.path), None)] == [True] * 3)
        shop.do("INSERT INTO orders VALUES (2, 1, 5)")
        until(lambda: (1, 2) in rows(shop, "SELECT 1, orders FROM revenue"))
        for table in ("revenue", "best"):
            assert audit(shop.warehouse.options, f"default.{table}").equal
    check(shop)
    read = audit(shop.warehouse.options, "default.revenue").inputs
    assert read is not None
    shop.do("INSERT INTO orders VALUES (3, 1, 30)")
    found = audit(shop.warehouse.options, "default.revenue")
    assert found.equal and found.inputs == read, "it compares at the snapshots of the last refresh"
    assert [(view.table, view.snapshots) for view in found.unread] == [("default.orders", 1)]
    found = audit(shop.warehouse.options, "default.best")
    assert found.equal and not found.complete


def test_a_view_waits_for_what_it_keeps(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "streamhouse.views")
    monkeypatch.setattr(view_query, "_BUILD_SHARE", 1000.0)
    strategies, note = list[str](), Builder.batch_done

    def noted(builder: Builder, report: dict[str, Any]) -> None:
        strategies.append(report["strategy"])
        note(builder, report)

    monkeypatch.setattr(Builder, "batch_done", noted)
    script = f"SET 'view.refresh-strategy' = 'incremental'; INSERT INTO best {BEST}"
    shop.do(TABLES + "INSERT INTO orders VALUES (1, 1, 10)")
    with shop.running_here(script) as until:
        until(lambda: len(rows(shop, "SELECT * FROM best")) == 1)
        shop.do("INSERT INTO orders VALUES (2, 2, 20)")
        until(lambda: len(rows(shop, "SELECT * FROM best")) == 2)
    assert strategies == ["recompute", "incremental"], caplog.text


def test_a_view_reads_a_source_through_a_table(shop: Shop) -> None:
    script = """
        CREATE TEMPORARY TABLE numbers (n INT) WITH ('connector' = 'datagen',
          'number-of-rows' = '100', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1',
          'fields.n.end' = '100');
        CREATE MATERIALIZED VIEW parity AS
          SELECT n % 2 AS odd, AVG(n) AS average, MAX(n) AS most FROM numbers GROUP BY n % 2;
    """
    shop.settle_here(script)
    expected = rows(shop, "SELECT n % 2, AVG(n), MAX(n) FROM parity__in_numbers GROUP BY n % 2")
    assert rows(shop, "SELECT * FROM parity") == expected and len(expected) == 2
    shop.settle_here(script)
    assert len(rows(shop, "SELECT * FROM parity__in_numbers")) == 100


def test_definitions_of_views(shop: Shop) -> None:
    shop.do(TABLES)
    shop.do("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    shop.do("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    with pytest.raises(TableError, match="exists with another query"):
        shop.do("CREATE MATERIALIZED VIEW v AS SELECT id + 1 AS id FROM orders")
    shop.do("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id, price FROM orders")
    assert "`price`" in shop.printed("SHOW CREATE TABLE v") or "price" in shop.printed("DESCRIBE v")
    assert shop.printed("SHOW MATERIALIZED VIEWS") == "v"
    with pytest.raises(SqlError, match="view"):
        shop.do("INSERT INTO v VALUES (1, 2)")
    with pytest.raises(TableError, match="no materialized view"):
        shop.do("DROP MATERIALIZED VIEW orders")
    shop.do("ALTER MATERIALIZED TABLE v SUSPEND")
    shop.do("INSERT INTO orders VALUES (1, 1, 10)")
    assert "suspended" in shop.printed("CREATE MATERIALIZED VIEW v AS SELECT id, price FROM orders")
    assert "2 changes" not in shop.printed("ALTER MATERIALIZED TABLE v REFRESH")
    assert len(shop.rows("v")) == 1
    shop.do("DROP MATERIALIZED VIEW v")
    assert shop.printed("SHOW MATERIALIZED TABLES") == ""


def test_a_changed_view_is_computed_anew(shop: Shop) -> None:
    shop.do(TABLES + "INSERT INTO orders VALUES (1, 1, 10), (2, 1, 20)")
    for query in (
        "SELECT customer_id, MAX(price) AS price FROM orders GROUP BY customer_id",
        "SELECT customer_id, MIN(price) AS price FROM orders GROUP BY customer_id",
        "SELECT COUNT(*) AS n FROM orders",
    ):
        shop.settle_here(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        assert rows(shop, "SELECT * FROM v") == rows(shop, query)
    shop.do("DROP MATERIALIZED VIEW v")
    shop.settle_here(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert rows(shop, "SELECT * FROM v") == rows(shop, query)
    shop.do(
        "CREATE MATERIALIZED VIEW k (price, n, PRIMARY KEY (price) NOT ENFORCED) AS "
        "SELECT price, id FROM orders"
    )
    shop.printed("ALTER MATERIALIZED VIEW k REFRESH")
    assert [row["n"] for row in shop.rows("k")] == [1, 2]
    with pytest.raises(OptionError, match="merge or hide rows"):
        shop.do(f"CREATE MATERIALIZED VIEW w WITH ('merge-engine' = 'first-row') AS {query}")


def test_a_view_goes_on_with_an_older_copy_of_its_checkpoint(shop: Shop) -> None:
    shop.do(TABLES)
    script = f"CREATE MATERIALIZED VIEW v AS {BEST}"
    folder, copy = shop.path / ".checkpoints", shop.folder / "copy"
    for number in range(4):
        shop.do(f"INSERT INTO orders VALUES ({number}, {number % 2}, {number})")
        shop.settle_here(script)
        assert rows(shop, "SELECT * FROM v") == rows(shop, BEST)
        if number == 0:
            shutil.copytree(folder, copy)
        elif number == 2:
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)


def test_an_insert_that_would_remove_rows_of_others_does_not_start(shop: Shop) -> None:
    shop.do(TABLES + "INSERT INTO best VALUES (77, 1)")
    with pytest.raises(TableError, match="has rows already"):
        shop.settle_here(f"{TABLES} INSERT INTO best {BEST}")


def test_an_insert_appends_what_each_batch_adds_across_failures(shop: Shop) -> None:
    query = "SELECT o.id, v.page FROM orders AS o JOIN visits AS v ON o.customer_id = v.customer_id"
    script = f"""SET 'view.refresh-strategy' = 'incremental';
        {TABLES}
        CREATE TABLE IF NOT EXISTS visits (customer_id INT, page STRING);
        CREATE TABLE IF NOT EXISTS seen (id INT, page STRING);
        INSERT INTO seen {query};
    """
    shop.do(f"{script.partition('INSERT')[0]} INSERT INTO orders VALUES (1, 1, 10), (1, 1, 10)")
    for number, step in enumerate(("batch-written", "target-committed")):
        shop.do(f"INSERT INTO visits VALUES (1, 'a'), (1, 'a'), ({number}, 'b')")
        with shop.failing_here(script, f"{step}:{number}:default.seen"):
            pass
        shop.settle_here(script)
        assert rows(shop, "SELECT * FROM seen") == rows(shop, query)
    with shop.running_here(script) as until:
        for number in range(3):
            shop.do(f"INSERT INTO orders VALUES ({number + 2}, 1, 5)")
            until(lambda: rows(shop, "SELECT * FROM seen") == rows(shop, query))
    assert kept_rows(str(shop.path), None)[0]["view"] == "default.seen"
    assert audit(shop.warehouse.options, "default.seen").equal
