"""UNION ALL of streams: one query for each table, rows in the order of its changes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sql.conftest import Catalog, _relations, _run

from streamhouse.errors import NotStreamedError, SqlError
from streamhouse.sql.plan import StreamQuery
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Insert, Select

MORE = """
CREATE TABLE shops (id INT PRIMARY KEY NOT ENFORCED, country STRING);
CREATE TABLE members (country STRING PRIMARY KEY NOT ENFORCED, n BIGINT) WITH (
  'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum');
CREATE TABLE kept (id INT PRIMARY KEY NOT ENFORCED, country STRING);
"""


@pytest.fixture
def tables(catalog: Catalog) -> Catalog:
    catalog.add(MORE)
    return catalog


def streams(catalog: Catalog, text: str) -> list[StreamQuery]:
    (statement,) = parse_script(text)
    if isinstance(statement, Insert):
        target = catalog.table(statement.target)
        return plan_stream_queries(statement.query, catalog, target, statement.columns)
    assert isinstance(statement, Select)
    return plan_stream_queries(statement.query, catalog)


def rows(plan: StreamQuery, source: list[dict[str, Any]], *dimensions: Any) -> list[Any]:
    return _run(plan.rows.sql, _relations(plan, source, dimensions))


CHANGES = [
    {"id": 1, "country": "Peru", "rowkind": "+I"},
    {"id": 1, "country": "Peru", "rowkind": "-U"},
    {"id": 1, "country": "Chad", "rowkind": "+U"},
    {"id": 1, "country": "Chad", "rowkind": "-U"},
    {"id": 1, "country": "Peru", "rowkind": "+U"},
]


def test_parts_over_one_table_keep_the_order_of_its_changes(tables: Catalog) -> None:
    text = (
        "INSERT INTO kept SELECT id, UPPER(country) FROM shops WHERE country = 'Peru' "
        "UNION ALL SELECT id, 'elsewhere' FROM shops AS s WHERE s.country <> 'Peru'"
    )
    (plan,) = streams(tables, text)
    assert rows(plan, CHANGES) == [
        (1, "PERU", "+I"), (1, "PERU", "-U"), (1, "elsewhere", "+U"), (1, "elsewhere", "-U"),
        (1, "PERU", "+U"),
    ]  # fmt: skip
    assert plan.scan.columns == ("id", "country")


def test_a_row_in_two_parts_is_returned_twice(tables: Catalog) -> None:
    (plan,) = streams(
        tables, "SELECT order_id FROM orders UNION ALL SELECT order_id + 10 FROM orders"
    )
    result = rows(plan, [{"order_id": 1}, {"order_id": 2}])
    assert result == [(1,), (11,), (2,), (12,)]
    assert [column.name for column in plan.rows.columns] == ["order_id"]


def test_each_table_is_a_query_of_its_own(tables: Catalog) -> None:
    text = (
        "INSERT INTO kept (id, country) WITH c AS (SELECT id, name, country FROM customers) "
        "SELECT u.k, u.place FROM (SELECT id AS k, country AS place FROM shops "
        "UNION ALL (SELECT id, name FROM c UNION ALL SELECT id + 9, country FROM shops)) AS u "
        "WHERE u.k > 1"
    )
    first, second = streams(tables, text)
    assert (first.source.name[-1], second.source.name[-1]) == ("shops", "customers")
    assert rows(first, CHANGES)[0] == (10, "Peru", "+I")
    people = [{"id": 2, "name": "Ann", "rowkind": "-D"}]
    assert rows(second, people) == [(2, "Ann", "-D")]
    assert first.fingerprint != second.fingerprint


def test_a_type_that_only_a_later_part_reads_makes_another_query() -> None:
    prints = set()
    for kind in ("INT", "BIGINT"):
        tables = Catalog()
        tables.add(f"CREATE TABLE shops (id INT, n {kind}, m INT)")
        text = "SELECT id FROM shops UNION ALL SELECT CAST(n AS INT) FROM shops"
        prints |= {query.fingerprint for query in streams(tables, text)}
    assert len(prints) == 2


def test_other_options_are_another_stream(tables: Catalog) -> None:
    hint = "/*+ OPTIONS('scan.mode'='latest') */"
    text = f"SELECT id FROM shops UNION ALL SELECT id FROM shops {hint}"
    assert len(streams(tables, text)) == 2


def test_sums_of_parts_are_parts_of_sums(tables: Catalog) -> None:
    text = (
        "INSERT INTO country_sales SELECT country, COUNT(*), SUM(n) FROM ("
        "SELECT country, CAST(id AS DOUBLE) AS n FROM shops UNION ALL SELECT 'all', 1 FROM shops"
        ") AS u GROUP BY country"
    )
    (plan,) = streams(tables, text)
    assert plan.merging.grouped and plan.merging.signed
    result = sorted(rows(plan, CHANGES[:3]))
    assert result == [("Chad", 1, 1.0), ("Peru", 0, 0.0), ("all", 1, 1.0)]


def test_lookups_of_the_parts(tables: Catalog) -> None:
    part = (
        "SELECT o.order_id, c.country FROM orders AS o JOIN {} FOR SYSTEM_TIME AS OF o.proc_time "
        "AS c ON c.id = o.customer_id"
    )
    (plan,) = streams(tables, f"{part.format('customers')} UNION ALL {part.format('shops')}")
    assert [lookup.relation for lookup in plan.lookups] == ["dim_0", "dim_1"]
    orders = [{"order_id": 7, "customer_id": 1}]
    result = rows(plan, orders, [{"id": 1, "country": "Peru"}], [{"id": 1, "country": "Oman"}])
    assert result == [(7, "Peru"), (7, "Oman")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id FROM shops UNION SELECT id FROM customers", "UNION without ALL"),
        ("SELECT id FROM shops EXCEPT SELECT id FROM customers", "EXCEPT"),
        ("SELECT id FROM shops INTERSECT SELECT id FROM customers", "INTERSECT"),
        ("SELECT id FROM shops UNION ALL SELECT id FROM customers LIMIT 3", "LIMIT around UNION"),
        ("SELECT id FROM shops UNION ALL SELECT id FROM shops ORDER BY 1", "ORDER BY around UNION"),
        (
            "SELECT id, country FROM shops UNION ALL SELECT id FROM customers",
            "this part of UNION ALL returns 1 column(s), the first part 2: id, country",
        ),
        (
            "SELECT x FROM (SELECT id AS x FROM shops UNION ALL SELECT id, name FROM customers)",
            "this part of UNION ALL returns 2 column(s)",
        ),
        (
            "INSERT INTO members SELECT country, COUNT(DISTINCT id) FROM shops GROUP BY country",
            "an aggregate of DISTINCT values",
        ),
        (
            "SELECT id FROM shops UNION ALL SELECT country FROM shops",
            "parts of UNION ALL over",
        ),
    ],
)
def test_unsupported_unions(tables: Catalog, text: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        streams(tables, text)
    assert message in caught.value.message
    assert isinstance(caught.value, NotStreamedError) or caught.value.line == 1
