"""Statements that define tables and views by a query, and those that show their definitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.errors import SqlError, StreamhouseError
from streamhouse.runtime.session.show_statements import describe
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Describe, Show
from streamhouse.sql.views.statement import AlterMaterializedView


@pytest.fixture
def shop(tmp_path: Path) -> ViewSession:
    shop = ViewSession(tmp_path / "warehouse")
    shop.execute("INSERT INTO customers (id, country) VALUES (1, 'DE'), (2, 'FR')")
    return shop


def shown(shop: ViewSession, sql: str) -> list[str | None]:
    """The first column of what a SHOW or DESCRIBE returns."""
    (statement,) = parse_script(sql)
    assert isinstance(statement, Show | Describe)
    return list(next(iter(describe(shop.session, statement).values())))


def test_create_table_as_select(shop: ViewSession) -> None:
    sql = (
        "CREATE TABLE IF NOT EXISTS c (PRIMARY KEY (id) NOT ENFORCED, id BIGINT, up AS id + 1) "
        "COMMENT 'x' WITH ('bucket' = '1') AS SELECT country, id, NULL AS n FROM customers"
    )
    shop.execute(sql)
    assert list(shop.rows("SELECT * FROM c ORDER BY id")) == [
        (2, "DE", 1, None), (3, "FR", 2, None)
    ]  # fmt: skip
    assert "`id` BIGINT NOT NULL" in shown(shop, "SHOW CREATE TABLE c")[0]  # type: ignore[operator]
    shop.execute("DELETE FROM c WHERE id = 1")
    shop.execute(sql)
    assert sum(shop.rows("SELECT * FROM c").values()) == 1
    with pytest.raises(StreamhouseError, match=r"'shop\.c' already exists"):
        shop.execute("CREATE TABLE c AS SELECT 1 AS a")


def test_create_table_like(shop: ViewSession) -> None:
    shop.execute(
        "CREATE TABLE base (a INT, b STRING, c AS a + 1, PRIMARY KEY (a, b) NOT ENFORCED) "
        "PARTITIONED BY (a) WITH ('bucket' = '1', 'num-levels' = '5');"
        "CREATE TABLE t1 (d INT) WITH ('bucket' = '2') LIKE base;"
        "CREATE TABLE t2 LIKE base (EXCLUDING ALL INCLUDING GENERATED);"
        "CREATE TABLE t3 (c AS a + 2) LIKE base (OVERWRITING GENERATED EXCLUDING OPTIONS)"
    )
    text = {name: shown(shop, f"SHOW CREATE TABLE {name}")[0] for name in ("t1", "t2", "t3")}
    columns, key = "`a` INT NOT NULL, `b` STRING NOT NULL", "PRIMARY KEY (`a`, `b`) NOT ENFORCED"
    assert {name: " ".join(str(one).split()) for name, one in text.items()} == {
        "t1": f"CREATE TABLE `shop`.`t1` ( {columns}, `c` AS a + 1, `d` INT, {key} ) "
        "PARTITIONED BY (`a`) WITH ( 'bucket' = '2', 'num-levels' = '5' )",
        "t2": f"CREATE TABLE `shop`.`t2` ( {columns}, `c` AS a + 1 )",
        "t3": f"CREATE TABLE `shop`.`t3` ( {columns}, `c` AS a + 2, {key} ) PARTITIONED BY (`a`)",
    }


def test_a_table_like_a_view_is_an_ordinary_table(shop: ViewSession) -> None:
    shop.view("v", "SELECT country, COUNT(*) AS n FROM customers GROUP BY country")
    shop.execute("CREATE TABLE t LIKE v; INSERT INTO t VALUES ('DE', 5)")
    assert list(shop.rows("SELECT * FROM t")) == [("DE", 5)]
    assert shown(shop, "SHOW MATERIALIZED VIEWS") == ["v"]


def test_the_shown_definition_creates_the_same_view(shop: ViewSession) -> None:
    shop.run(
        "CREATE MATERIALIZED TABLE v (land, id, PRIMARY KEY (land, id) NOT ENFORCED) "
        "PARTITIONED BY (land) WITH ('num-levels' = '5') FRESHNESS = INTERVAL '2' HOURS "
        "REFRESH_MODE = FULL AS SELECT COALESCE(country, ''), id FROM customers"
    )
    (text,) = shown(shop, "SHOW CREATE MATERIALIZED VIEW v")
    assert text is not None and shown(shop, "SHOW CREATE TABLE v") == [text]
    shop.run("DROP MATERIALIZED TABLE v")
    shop.run(text)
    assert shown(shop, "SHOW CREATE MATERIALIZED TABLE v") == [text]
    shop.run(text)  # As a script that is run again does.
    shop.execute("ALTER MATERIALIZED VIEW v REFRESH PARTITION (land = 'DE')")
    assert set(shop.rows("SELECT * FROM v")) == {("DE", 1), ("FR", 2)}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("'30' SECOND", 30), ("5 MINUTES", 300), ("'1' WEEK", 604_800), ("'0' DAY", 0)],
)
def test_freshness_is_an_interval_of_whole_seconds(written: str, seconds: int) -> None:
    (alter,) = parse_script(f"ALTER MATERIALIZED VIEW v SET FRESHNESS = INTERVAL {written}")
    assert isinstance(alter, AlterMaterializedView) and alter.freshness_s == seconds


@pytest.mark.parametrize("written", ["", "5", "INTERVAL '1' MONTH", "INTERVAL '0.5' SECOND"])
def test_other_freshness_is_an_error(written: str) -> None:
    with pytest.raises(SqlError, match="expected an interval such as"):
        parse_script(f"CREATE MATERIALIZED VIEW v FRESHNESS = {written} AS SELECT 1 AS a")


def test_a_view_is_refreshed_where_its_catalog_has_another_name(shop: ViewSession) -> None:
    path = shop.warehouse["warehouse"]
    shop.execute(
        f"CREATE CATALOG c WITH ('type' = 'paimon', 'warehouse' = '{path}'); USE CATALOG c; "
        "USE shop; CREATE MATERIALIZED VIEW v AS SELECT id FROM customers"
    )
    shop.execute("ALTER MATERIALIZED VIEW v REFRESH")
    assert sum(shop.rows("SELECT * FROM v").values()) == 2


def test_a_failed_refresh_names_its_view(shop: ViewSession) -> None:
    shop.view("v", "SELECT CAST(country AS INT) AS n FROM customers")
    with pytest.raises(StreamhouseError, match=r"view shop\.v: .*'(DE|FR)' is not a valid INT"):
        shop.execute("ALTER MATERIALIZED VIEW v REFRESH")


def test_show_like(shop: ViewSession) -> None:
    assert shown(shop, "SHOW TABLES LIKE '%r_'") == ["customers", "orders"]
    assert shown(shop, "SHOW TABLES IN shop NOT LIKE 'c%'") == ["orders", "visits"]
    assert shown(shop, "SHOW COLUMNS FROM visits LIKE 'page'") == ["page"]
    assert shown(shop, "SHOW MATERIALIZED VIEWS LIKE '%'") == []


def test_create_or_replace_view(shop: ViewSession) -> None:
    shop.run("CREATE VIEW p AS SELECT id FROM customers")
    shop.run("CREATE OR REPLACE VIEW p (land) AS SELECT country FROM customers")
    assert shown(shop, "DESCRIBE p") == ["land"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE TABLE t (a, b) AS SELECT 1, 2", "column 'a' has no type"),
        ("CREATE TABLE t (z INT) AS SELECT 1 AS a", "the SELECT returns no column 'z'"),
        ("CREATE TABLE t (PRIMARY KEY (z) NOT ENFORCED) AS SELECT 1 AS a", "no column 'z'; known"),
        ("CREATE TABLE t AS VALUES (1)", "CREATE TABLE … AS needs a SELECT"),
        ("CREATE TABLE t (id INT) LIKE orders", "orders has a column 'id', too"),
        ("CREATE TABLE t LIKE orders (INCLUDING X)", "'X' is not expected here"),
        ("CREATE TABLE t WITH ('bucket' = '2') LIKE orders (INCLUDING OPTIONS)", "OVERWRITING OPT"),
        (
            "CREATE TABLE t (b INT, PRIMARY KEY (b) NOT ENFORCED) LIKE orders",
            "has a PRIMARY KEY, t",
        ),
        ("CREATE TABLE t LIKE nope", "there is no table 'nope'"),
        ("CREATE OR REPLACE VIEW p AS SELECT * FROM p", "p reads itself"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS p AS SELECT 1", "contradicts OR REPLACE"),
        ("CREATE OR REPLACE TABLE p AS SELECT 1", "CREATE OR REPLACE is of views"),
        ("CREATE MATERIALIZED VIEW m (a, a) AS SELECT 1, 2", "a column is named twice"),
        (
            "CREATE MATERIALIZED VIEW m PARTITIONED BY (country) AS SELECT id, country "
            "FROM customers",
            r"declare PRIMARY KEY \(id, country\)",
        ),
        ("ALTER MATERIALIZED VIEW orders REFRESH", "no materialized view 'orders'"),
    ],
)
def test_mistakes(shop: ViewSession, sql: str, message: str) -> None:
    with pytest.raises(StreamhouseError, match=r"line 1, column \d+.*" + message):
        shop.execute(sql)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT clicks.id, COUNT(*) AS n FROM clicks GROUP BY clicks.id",
        "SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE clicks, DESCRIPTOR(at_), INTERVAL "
        "'1' DAY) GROUP BY window_start",
        "SELECT HOP_START(clicks.at_, INTERVAL '1' DAY, INTERVAL '2' DAY) AS s, COUNT(*) AS n FROM "
        "clicks GROUP BY HOP(clicks.at_, INTERVAL '1' DAY, INTERVAL '2' DAY)",
    ],
)
def test_the_stored_definition_names_the_input_table(shop: ViewSession, query: str) -> None:
    """Columns that are qualified by the source's name are those of the input table."""
    shop.run(
        "CREATE TEMPORARY TABLE clicks (id INT, at_ TIMESTAMP(3)) WITH ('connector' = 'datagen')"
    )
    shop.view("counted", query)
    shop.execute("ALTER MATERIALIZED VIEW counted REFRESH")
