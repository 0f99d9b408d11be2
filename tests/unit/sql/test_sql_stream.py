"""Continuous queries: the planner's SQL, executed in DuckDB."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from streamhouse.errors import NotStreamedError, SqlError
from streamhouse.sql.plan import LookupRetry

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

ORDERS: list[dict[str, Any]] = [
    {"order_id": 1, "customer_id": 1, "price": 10.0},
    {"order_id": 2, "customer_id": 2, "price": 20.0},
    {"order_id": 3, "customer_id": 9, "price": 30.0},
    {"order_id": 4, "customer_id": None, "price": 40.0},
]
CUSTOMERS: list[dict[str, Any]] = [
    {"id": 1, "name": "Ann", "country": "France"},
    {"id": 2, "name": "Bob", "country": "Peru"},
]
RETRY = (
    "/*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', "
    "'fixed-delay'='1s', 'max-attempts'='10') */"
)
JOIN = "JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id"


def test_inner_join_drops_rows_without_a_match(catalog: Catalog) -> None:
    text = f"SELECT {RETRY} o.order_id, c.country FROM orders AS o {JOIN}"
    assert catalog.rows(text, ORDERS, CUSTOMERS) == [(1, "France"), (2, "Peru")]
    assert catalog.misses(text, ORDERS, CUSTOMERS) == [2, 3]


def test_left_join_returns_nulls(catalog: Catalog) -> None:
    text = f"SELECT {RETRY} o.order_id, c.country FROM orders AS o LEFT {JOIN}"
    result = sorted(catalog.rows(text, ORDERS, CUSTOMERS))
    assert result == [(1, "France"), (2, "Peru"), (3, None), (4, None)]
    assert catalog.misses(text, ORDERS, CUSTOMERS) == [2, 3]


def test_a_key_with_two_matches_returns_two_rows(catalog: Catalog) -> None:
    text = f"SELECT {RETRY} o.order_id, c.name FROM orders AS o {JOIN} WHERE o.order_id = 1"
    twice = [*CUSTOMERS, {"id": 1, "name": "Eve"}]
    assert sorted(catalog.rows(text, ORDERS, twice)) == [(1, "Ann"), (1, "Eve")]
    assert catalog.misses(text, ORDERS, twice) == []


def test_extra_conditions_of_on_count_for_misses(catalog: Catalog) -> None:
    text = f"SELECT {RETRY} o.order_id FROM orders AS o {JOIN} AND c.country <> 'Peru'"
    assert catalog.rows(text, ORDERS, CUSTOMERS) == [(1,)]
    assert catalog.misses(text, ORDERS, CUSTOMERS) == [1, 2, 3]
    assert catalog.stream(text).lookups[0].keys == ("id",)


def test_filters_on_the_source_hold_for_misses_filters_on_the_dimension_do_not(
    catalog: Catalog,
) -> None:
    text = (
        f"SELECT {RETRY} o.order_id FROM orders AS o {JOIN} "
        "WHERE o.price < 35 AND c.country = 'Peru'"
    )
    assert catalog.rows(text, ORDERS, CUSTOMERS) == [(2,)]
    assert catalog.misses(text, ORDERS, CUSTOMERS) == [2]


def test_subquery_with_proctime(catalog: Catalog) -> None:
    text = (
        f"SELECT {RETRY} o.id2, c.country, o.t FROM (SELECT order_id * 10 AS id2, customer_id, "
        "PROCTIME() AS t FROM orders WHERE price < 35) AS o "
        "JOIN customers FOR SYSTEM_TIME AS OF o.t AS c ON o.customer_id = c.id"
    )
    now = datetime(2024, 5, 6, 7, 8, 9, 123000)
    assert catalog.rows(text, ORDERS, CUSTOMERS)[0] == (10, "France", now)
    assert catalog.misses(text, ORDERS, CUSTOMERS) == [2]
    plan = catalog.stream(text)
    assert plan.scan.columns == ("order_id", "customer_id", "price")
    assert plan.lookups[0].columns == ("id", "country")


def test_filter_around_a_join_in_a_subquery(catalog: Catalog) -> None:
    text = (
        f"SELECT q.n FROM (SELECT {RETRY} o.order_id + 1 AS n, c.country FROM orders AS o {JOIN}) "
        "AS q WHERE q.n < 4 + 1 AND q.country <> 'Peru'"
    )
    assert catalog.rows(text, ORDERS, CUSTOMERS) == [(2,)]
    assert catalog.misses(text, ORDERS, CUSTOMERS) == [2]


def test_with_query(catalog: Catalog) -> None:
    text = (
        "WITH o AS (SELECT *, PROCTIME() AS now_ FROM orders) SELECT o.order_id FROM o "
        "JOIN customers FOR SYSTEM_TIME AS OF o.now_ AS c ON o.customer_id = c.id"
    )
    assert catalog.rows(text, ORDERS, CUSTOMERS) == [(1,), (2,)]
    assert catalog.stream(text).scan.columns == ("order_id", "customer_id")


TWO = (
    "SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'="
    "'fixed_delay', 'fixed-delay'='1 s', 'max-attempts'='3'), LOOKUP('table'='rates', "
    "'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='20 ms', "
    "'max-attempts'='2') */ o.order_id, o.price * r.rate FROM orders AS o "
    "{0}JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id "
    "JOIN rates FOR SYSTEM_TIME AS OF o.proc_time AS r ON c.country = r.country"
)
RATES: list[dict[str, Any]] = [{"country": "France", "rate": 2.0}]


def test_two_lookups_miss_in_the_order_of_the_joins(catalog: Catalog) -> None:
    text = TWO.format("")
    assert catalog.rows(text, ORDERS, CUSTOMERS, RATES) == [(1, 20.0)]
    assert catalog.misses(text, ORDERS, CUSTOMERS, RATES) == [1, 2, 3]
    first, second = catalog.stream(text).lookups
    assert (first.relation, first.retry) == ("dim_0", LookupRetry(1000, 3))
    assert (second.relation, second.retry) == ("dim_1", LookupRetry(20, 2))


def test_a_lookup_without_retry_ends_a_row_before_the_next_lookup(catalog: Catalog) -> None:
    text = TWO.format("").replace(
        "LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', "
        "'fixed-delay'='1 s', 'max-attempts'='3'), ",
        "",
    )
    # Orders 3 and 4 have no customer: dropped by the first join, they miss nothing.
    assert catalog.misses(text, ORDERS, CUSTOMERS, RATES) == [1]


def test_dimension_with_duplicates_names_a_missed_row_once(catalog: Catalog) -> None:
    twice = [*CUSTOMERS, {"id": 2, "country": "Chile"}]
    assert catalog.misses(TWO.format(""), ORDERS, twice, RATES) == [1, 2, 3]


def test_hints_in_every_place(catalog: Catalog) -> None:
    text = (
        "SELECT /*+ LOOKUP('table'='customers', 'async'='true', 'output-mode'='allow_unordered') */"
        " o.order_id FROM orders /*+ OPTIONS('scan.mode'='latest') */ AS o JOIN customers "
        "/*+ OPTIONS('lookup.cache'='FULL') */ FOR SYSTEM_TIME AS OF o.proc_time AS c "
        "/*+ OPTIONS('lookup.async'='true') */ ON o.customer_id = c.id"
    )
    plan = catalog.stream(text)
    assert plan.scan.options == {"scan.mode": "latest"}
    assert plan.lookups[0].options == {"lookup.cache": "FULL", "lookup.async": "true"}
    assert plan.lookups[0].retry is None and plan.misses_sql is None
    after_alias = text.replace(
        "orders /*+ OPTIONS('scan.mode'='latest') */ AS o",
        "orders AS o /*+ OPTIONS('scan.mode'='latest') */",
    )
    assert catalog.stream(after_alias).scan.options == {"scan.mode": "latest"}


def test_changelog_carries_the_row_kind(catalog: Catalog) -> None:
    rows = [
        {"id": 1, "country": "France", "rowkind": "+I"},
        {"id": 1, "country": "France", "rowkind": "-U"},
        {"id": 1, "country": "China", "rowkind": "+U"},
    ]
    text = "SELECT q.k, q.country FROM (SELECT id + 1 AS k, country FROM customers_cdc) AS q"
    assert catalog.stream(text).scan.changelog
    assert catalog.rows(text, rows) == [
        (2, "France", "+I"), (2, "France", "-U"), (2, "China", "+U"),
    ]  # fmt: skip
    assert [column.name for column in catalog.stream(text).rows.columns] == ["k", "country"]


def test_changes_keep_their_order_through_a_join(catalog: Catalog) -> None:
    """A large dimension makes the engine build its hash table over the changes instead."""
    catalog.add("CREATE TABLE changes (id INT PRIMARY KEY NOT ENFORCED, n BIGINT, "
                "p AS PROCTIME()) WITH ('connector' = 'mysql-cdc')")  # fmt: skip
    text = (
        "SELECT s.n, c.name FROM changes AS s JOIN customers FOR SYSTEM_TIME AS OF s.p AS c "
        "ON s.id = c.id"
    )
    source = [{"id": n % 7, "n": n, "rowkind": "+U"} for n in range(5000)]
    dimension = [{"id": n % 20_000, "name": f"c{n}"} for n in range(40_000)]
    result = [row[0] for row in catalog.rows(text, source, dimension)]
    assert result == [n for n in range(5000) for _ in range(2)]


def test_order_is_paid_for_where_it_matters_only(catalog: Catalog) -> None:
    query = f"SELECT c.country, 1, o.price FROM orders AS o {JOIN}"
    assert "ORDER BY" not in catalog.stream(f"INSERT INTO country_sales {query}").rows.sql
    assert "ORDER BY" not in catalog.stream(f"INSERT INTO plain {query}").rows.sql
    keyed = f"INSERT INTO rates SELECT c.country, o.price FROM orders AS o {JOIN}"
    assert catalog.stream(keyed).rows.sql.endswith('ORDER BY "_row"')


@pytest.mark.parametrize(
    ("mode", "sorted_rows"),
    [("ordered", True), ("ORDERED", True), ("allow_unordered", False), ("ALLOW_UNORDERED", False)],
)
def test_a_hint_pays_for_the_order(catalog: Catalog, mode: str, sorted_rows: bool) -> None:
    hint = f"/*+ LOOKUP('table'='c', 'output-mode'='{mode}') */"
    rows = f"SELECT {hint} c.country, 1, o.price FROM orders AS o {JOIN}"
    plan = catalog.stream(f"INSERT INTO plain {rows}")
    assert plan.ordered == sorted_rows == plan.rows.sql.endswith('ORDER BY "_row"')
    assert (plan.rows.numbered_sql is not None) == sorted_rows
    with pytest.raises(SqlError, match="'loose' is not one of ordered, allow_unordered"):
        catalog.stream(f"INSERT INTO plain {rows.replace(mode, 'loose')}")
    sums = f"SELECT {hint} c.country, COUNT(*), SUM(o.price) FROM orders AS o {JOIN}"
    summed = catalog.stream(f"INSERT INTO country_sales {sums} GROUP BY c.country")
    assert "ORDER BY" not in summed.rows.sql


def test_grouped_partial_sums(catalog: Catalog) -> None:
    text = (
        f"INSERT INTO country_sales SELECT {RETRY} c.country, COUNT(*), SUM(o.price) "
        f"FROM orders AS o {JOIN} GROUP BY c.country"
    )
    assert catalog.stream(text).merging.grouped
    result = sorted(catalog.rows(text, ORDERS * 2, CUSTOMERS))
    assert result == [("France", 2, 20.0), ("Peru", 2, 40.0)]
    assert catalog.misses(text, ORDERS, CUSTOMERS) == [2, 3]


def test_last_value_follows_the_order_of_rows(catalog: Catalog) -> None:
    catalog.add(
        "CREATE TABLE latest (customer_id INT PRIMARY KEY NOT ENFORCED, price DOUBLE) WITH ("
        "'merge-engine'='aggregation', 'fields.price.aggregate-function'='last_value')"
    )
    text = "INSERT INTO latest SELECT customer_id, LAST_VALUE(price) FROM orders GROUP BY 1"
    text = text.replace("GROUP BY 1", "GROUP BY customer_id")
    rows = [{"customer_id": 7, "price": float(n)} for n in range(2000)]
    assert catalog.rows(text, rows) == [(7, 1999.0)]


@pytest.mark.parametrize("function", ["FIRST_VALUE", "LAST_VALUE"])
@pytest.mark.parametrize(
    ("expression", "column_type", "price", "expected"),
    [
        ("CAST({} AS INT)", "INT", 2.565, 2),
        ("CAST({} AS DECIMAL(10, 2))", "DECIMAL(10, 2)", 0.565, Decimal("0.57")),
        ("CAST({} AS STRING)", "STRING", 1e10, "1.0E10"),
    ],
)
def test_a_cast_of_a_first_or_last_value_knows_its_type(
    catalog: Catalog, function: str, expression: str, column_type: str, price: float, expected: Any
) -> None:
    merged = function.lower()
    catalog.add(
        f"CREATE TABLE casts (customer_id INT PRIMARY KEY NOT ENFORCED, price {column_type}) WITH "
        f"('merge-engine'='aggregation', 'fields.price.aggregate-function'='{merged}')"
    )
    cast = expression.format(f"{function}(price)")
    text = f"INSERT INTO casts SELECT customer_id, {cast} FROM orders GROUP BY customer_id"
    assert catalog.rows(text, [{"customer_id": 7, "price": price}]) == [(7, expected)]


def test_target_gives_order_names_and_types(catalog: Catalog) -> None:
    plan = catalog.stream(
        "INSERT INTO plain (revenue, country) SELECT customer_id, 'x' FROM orders"
    )
    assert [(c.name, c.type) for c in plan.rows.columns] == [
        ("country", "STRING"), ("orders", "BIGINT"), ("revenue", "DOUBLE"),
    ]  # fmt: skip
    text = "INSERT INTO plain (revenue, country) SELECT customer_id, 'x' FROM orders"
    (row,) = catalog.rows(text, [{"customer_id": 3}])
    assert row == ("x", None, 3.0) and isinstance(row[2], float)


def test_a_computed_column_may_use_one_before_it(catalog: Catalog) -> None:
    catalog.add("CREATE TABLE sums (a INT, b AS a + 1, c AS b * b)")
    assert catalog.rows("SELECT b, c FROM sums", [{"a": 2}]) == [(3, 9)]


def test_star_and_computed_columns(catalog: Catalog) -> None:
    plan = catalog.stream("SELECT * FROM orders")
    names = [column.name for column in plan.rows.columns]
    assert names == ["order_id", "customer_id", "price", "order_time", "proc_time", "double_price"]
    assert catalog.rows("SELECT double_price + 1 AS v FROM orders", ORDERS)[0] == (21.0,)
    assert catalog.stream("SELECT double_price FROM orders").scan.columns == ("price",)
    assert catalog.stream("SELECT 1 AS one FROM orders").scan.columns == ("order_id",)


@pytest.mark.parametrize("statement", ["SELECT {} FROM orders", "INSERT INTO plain {}"])
def test_fingerprint_is_the_meaning_not_the_layout(catalog: Catalog, statement: str) -> None:
    one = "SELECT country, orders, revenue FROM country_sales WHERE orders > 1"
    two = (
        "select  `country`,\n orders , revenue -- all\nFROM country_sales /* c */ where orders > 1"
    )
    other = one.replace("> 1", "> 2")
    if statement.startswith("INSERT"):
        one, two, other = (statement.format(text) for text in (one, two, other))
    prints = [catalog.stream(text).fingerprint for text in (one, two, other)]
    assert prints[0] == prints[1] != prints[2]
    assert len(prints[0]) == 64


@pytest.mark.parametrize(
    ("text", "timed"),
    [
        ("SELECT o.proc_time FROM orders AS o", True),
        ("SELECT CURRENT_TIMESTAMP FROM orders", True),
        ("SELECT order_id FROM orders WHERE CAST(order_time AS DATE) = CURRENT_DATE", True),
        ("SELECT TIMESTAMPDIFF(SECOND, order_time, NOW()) FROM orders", True),
        (f"SELECT o.order_id, c.country FROM orders AS o {JOIN}", False),
        ("SELECT order_id, order_time FROM orders", False),
    ],
)
def test_queries_that_depend_on_the_time_are_marked(
    catalog: Catalog, text: str, timed: bool
) -> None:
    assert catalog.stream(text).timed is timed


def test_a_subquery_and_the_query_around_it_may_use_one_alias(catalog: Catalog) -> None:
    inner = f"SELECT o.order_id AS n, o.proc_time AS t, c.country FROM orders AS o {JOIN}"
    text = (
        f"SELECT c.name, s.country FROM ({inner}) AS s "
        "JOIN customers FOR SYSTEM_TIME AS OF s.t AS c ON s.n = c.id"
    )
    source = [{"order_id": 2, "customer_id": 1, "_row": 0}]
    people = [{"id": 1, "name": "Ann", "country": "DE"}, {"id": 2, "name": "Bo", "country": "FR"}]
    assert catalog.rows(text, source, people, people) == [("Bo", "DE")]


def test_group_by_an_alias(catalog: Catalog) -> None:
    text = (
        "INSERT INTO country_sales SELECT CAST(customer_id AS STRING) AS who, COUNT(*), SUM(price) "
        "FROM orders GROUP BY who"
    )
    source = [{"customer_id": 1, "price": price, "_row": n} for n, price in enumerate((1.0, 2.5))]
    assert catalog.rows(text, source) == [("1", 2, 3.5)]


def test_a_column_that_subqueries_double_again_and_again_is_no_stream(catalog: Catalog) -> None:
    text = "SELECT price AS p FROM orders"
    for _ in range(40):
        text = f"SELECT p + p AS p FROM ({text}) AS q"
    with pytest.raises(NotStreamedError, match="in too many expressions"):
        catalog.stream(text)
