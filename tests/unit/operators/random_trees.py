"""Random queries over three tables of random rows, and their trees of operators run in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from tests.unit.operators.naive_executor import NaiveExecutor, negative
from tests.unit.views.generated_queries import Generator
from tests.unit.views.view_session import bag as bag_of

from streamhouse.connectors.specs import arrow_schema
from streamhouse.duckdb_engine import Batches, opened
from streamhouse.operators.operator import WEIGHT, Operator, walk
from streamhouse.operators.planning.query_tree import tree_of
from streamhouse.sql.batch import total_order
from streamhouse.sql.batch.bounded_query import analyze_tree
from streamhouse.sql.plan import (
    CURRENT,
    AsOf,
    BoundedQuery,
    BoundedScan,
    Capabilities,
    Column,
    Name,
    Resolver,
    TableInfo,
)
from streamhouse.sql.resolution.columns import parse_query
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select

START = datetime(2026, 1, 1)
"""The least time in rows; the greatest is seven seconds later."""
_RARE = (-0.0, float("nan"), float("inf"))
Rows = dict[str, list[dict[str, Any]]]
"""The rows of each table."""
TABLES = {
    "orders": TableInfo(
        ("c", "d", "orders"),
        (
            Column("id", "INT"), Column("customer_id", "INT"), Column("product", "STRING"),
            Column("amount", "INT"), Column("price", "DECIMAL(10, 2)"), Column("rate", "DOUBLE"),
            Column("at_", "TIMESTAMP(3)"), Column("tags", "ARRAY<STRING>"),
        ),
        primary_key=("id",),
    ),
    "customers": TableInfo(
        ("c", "d", "customers"),
        (Column("id", "INT"), Column("name", "STRING"), Column("country", "STRING")),
        primary_key=("id",),
    ),
    "reals": TableInfo(
        ("c", "d", "reals"), (Column("k", "DOUBLE"), Column("v", "INT")), primary_key=("k",)
    ),
    "visits": TableInfo(
        ("c", "d", "visits"),
        (Column("customer_id", "INT"), Column("page", "STRING"), Column("seconds", "INT")),
        capabilities=Capabilities(changelog=True),
    ),
}  # fmt: skip


class Tables(Resolver):
    """Finds the tables; `growing`: as tables without keys, whose rows only enter."""

    def __init__(self, growing: bool = False) -> None:
        self._growing = growing

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        """The table of a name."""
        info = TABLES[name[-1]]
        return TableInfo(info.name, info.columns) if self._growing else info


def analyzed(query: str, growing: bool = False) -> tuple[BoundedQuery, Operator]:
    """A query as one SQL text, and as a tree."""
    (statement,) = parse_script(query)
    assert isinstance(statement, Select)
    parsed = parse_query(statement.query)
    found = analyze_tree(parsed, parsed.tree, Tables(growing))  # type: ignore[arg-type]
    total_order.complete(found.tree, True, found.scans.keys)
    plan = found.plan(found.tree, found.output)
    return plan, tree_of(found.tree, plan.scans)


def random_rows(rng: random.Random, before: Rows | None = None) -> Rows:
    """Random rows with nulls, duplicates and ties; `before`: a change of these."""
    sizes = {"orders": 8, "customers": 4, "visits": 5}
    rows: Rows = {}
    for name, size in sizes.items():
        made = [_row(rng, name) for _ in range(rng.randint(0, size))]
        if before is not None:
            kept = [row for row in before[name] if rng.random() < 0.7]
            made = kept + made[: rng.randint(0, 3)]
        rows[name] = _by_key(made) if TABLES[name].primary_key else made
    return rows


def _by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({row["id"]: row for row in rows}.values())


def _row(rng: random.Random, table: str) -> dict[str, Any]:
    def number(most: int = 4) -> int | None:
        number: int | None = rng.choice((None, *range(most)))
        return number

    def text() -> str | None:
        return rng.choice((None, "pen", "ink", "a"))

    if table == "customers":
        return {"id": rng.randint(0, 5), "name": text(), "country": text()}
    if table == "visits":
        return {"customer_id": number(), "page": text(), "seconds": number(3)}
    return {
        "id": rng.randint(0, 15), "customer_id": number(), "product": text(), "amount": number(),
        "price": rng.choice((None, Decimal(rng.randint(-3, 3)))),
        "rate": rng.choice((None, *(rng.randint(-8, 8) / 4,) * 6, *_RARE)),
        "at_": rng.choice((None, *(START + timedelta(seconds=n) for n in range(8)))),
        "tags": rng.choice((None, [], ["a"], ["a", "b", "a"])),
    }  # fmt: skip


class TreeGenerator(Generator):
    """Generates queries with all operators."""

    def query(self) -> str:
        """A SELECT with unique column names."""
        rng = self._random
        kinds: tuple[Callable[[], str], ...] = (
            super().query, super().query, self._correlated, self._unnested, self._windowed,
            self._membership, self._bags, self._comma, self._sets, self._constants,
            self._aggregates, self._aggregates, self._tests, self._related, self._related,
            self._compared, self._unequal, self._placed,
        )  # fmt: skip
        return rng.choice(kinds)()

    def timed(self) -> str:
        """A SELECT that depends on the time."""
        now = self._random.choice(
            (
                "LOCALTIMESTAMP",
                "LOCALTIMESTAMP - INTERVAL '2' SECOND",
                "CAST(NOW() AS TIMESTAMP(3))",
            )
        )
        orders = f"(SELECT * FROM orders WHERE at_ {self._random.choice('<>')} {now})"
        return self._random.choice(
            (
                f"SELECT o.id, o.product FROM {orders} o",
                "SELECT o.product, COUNT(*) AS n, SUM(o.amount) AS s, MAX(o.at_) AS m "
                f"FROM {orders} o GROUP BY o.product",
                f"SELECT o.id, CASE WHEN o.at_ <= {now} THEN o.product ELSE 'later' END AS p "
                "FROM orders o",
                f"SELECT c.id, c.name, o.id AS o FROM customers c LEFT JOIN {orders} o "
                "ON o.customer_id = c.id",
                f"SELECT c.id FROM customers c WHERE c.id NOT IN (SELECT o.id FROM {orders} o)",
                f"SELECT o.id, o.at_ FROM {orders} o ORDER BY o.at_ DESC LIMIT 3",
                f"SELECT COUNT(*) AS n, MIN(o.at_) AS m FROM {orders} o",
                f"SELECT o.id, {now} AS n FROM orders o",
                f"SELECT o.id, t.tag FROM {orders} o CROSS JOIN UNNEST(o.tags) AS t (tag)",
                f"SELECT COUNT(*) FILTER (WHERE o.at_ < {now}) AS n FROM orders o",
            )
        )

    def windows_over_equal_rows(self) -> str:
        """A SELECT with two functions of OVER that tell equal rows apart."""
        rng = self._random
        source = rng.choice(
            (
                "(SELECT v.page, v.seconds FROM visits v CROSS JOIN (VALUES (1), (2), (3)) AS c "
                "(n)) x",
                "(SELECT product AS page, amount AS seconds FROM orders) x",
                "(SELECT v.page, v.seconds FROM visits v UNION ALL SELECT v.page, 1 FROM visits v) "
                "AS x WHERE x.seconds > 0",
            )
        )

        def call() -> str:
            by = rng.choice(("", "PARTITION BY x.page ", "PARTITION BY x.seconds "))
            order = rng.choice(("ORDER BY x.seconds", "ORDER BY x.page DESC"))
            function = rng.choice(
                ("ROW_NUMBER()", "LEAD(x.seconds)", "LAG(x.page)", "NTILE(2)", "COUNT(*)")
            )
            frame = " ROWS 1 PRECEDING" if function == "COUNT(*)" else ""
            return f"{function} OVER ({by}{order}{frame})"

        end = f" QUALIFY {call()} IS NOT NULL" if rng.random() < 0.3 else ""
        return f"SELECT x.seconds AS s, {call()} AS a, {call()} AS b FROM {source}{end}"

    def _correlated(self) -> str:
        rng = self._random
        value = rng.choice(("MAX(o.price)", "COUNT(*)", "COUNT(o.amount) + 1", "SUM(o.amount)",
                            "COALESCE(MIN(o.product), 'none')", "AVG(o.amount)",
                            "LISTAGG(o.product, '-') WITHIN GROUP (ORDER BY o.id)",
                            "BOOL_OR(o.amount > 1)", "COUNT(*) FILTER (WHERE o.amount > 0)",
                            "PERCENTILE(o.amount, 0.5)"))  # fmt: skip
        by = rng.choice(("o.customer_id = c.id", "o.customer_id = c.id AND o.product = c.name",
                         "o.customer_id = c.id AND o.amount > 0"))  # fmt: skip
        scalar = f"(SELECT {value} FROM orders o WHERE {by})"
        return rng.choice(
            (
                f"SELECT c.id, {scalar} AS v FROM customers c",
                f"SELECT c.name, c.country FROM customers c WHERE {scalar} IS NOT NULL",
                f"SELECT c.country, MAX(c.id) AS m, {scalar.replace('c.id', '1')} AS v "
                "FROM customers c GROUP BY c.country" if "c.name" not in by else
                f"SELECT c.id, {scalar} AS v FROM customers c",
                "SELECT v.page, (SELECT c.name FROM customers c WHERE c.id = v.customer_id) AS n "
                "FROM visits v",
                f"SELECT c.id FROM customers c WHERE c.id IN (SELECT "
                f"{rng.choice(('o.amount', 'o.id'))} FROM orders o WHERE {by})",
                f"SELECT c.id FROM customers c WHERE c.id NOT IN (SELECT o.amount FROM orders o "
                f"WHERE {by})",
                "SELECT c.name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE "
                f"{by})",
            )
        )  # fmt: skip

    def _condition(self, table: str) -> str:
        """A condition that relates the rows `i` of a table to customers `c`."""
        columns = {"orders": ("customer_id", "product", "amount"),
                   "visits": ("customer_id", "page", "seconds")}[table]  # fmt: skip
        key, text, number = columns
        return self._random.choice(
            (
                f"i.{key} = c.id", f"i.{key} < c.id", f"i.{text} = c.name AND i.{number} <= c.id",
                f"(i.{text} = c.country OR i.{key} = c.id)", f"i.{key} + c.id > 3",
                f"i.{text} IS NOT DISTINCT FROM c.name",
            )
        )  # fmt: skip

    def _related(self) -> str:
        """Subqueries that read columns around them, in more than equalities of WHERE."""
        rng = self._random
        table = rng.choice(("orders", "visits"))
        on, number = self._condition(table), "amount" if table == "orders" else "seconds"
        rows = f"FROM {table} i WHERE {on}"
        first = f"SELECT i.customer_id AS v, i.{number} AS w {rows}"
        query = rng.choice(
            (
                first, f"{first} ORDER BY i.{number} DESC LIMIT {rng.randint(1, 2)}",
                f"{first} ORDER BY 1, 2 LIMIT 1 OFFSET 1",
                f"SELECT COUNT(*) AS v, MAX(i.{number}) AS w {rows}",
                f"SELECT i.customer_id AS v, COUNT(i.{number}) AS w {rows} GROUP BY i.customer_id",
                f"SELECT DISTINCT i.{number} AS v, c.id AS w {rows}",
                f"SELECT i.{number} AS v, ROW_NUMBER() OVER (ORDER BY i.{number}) AS w {rows}",
                f"SELECT i.{number} AS v, 1 AS w {rows} UNION SELECT x.seconds, 2 FROM visits x",
                f"SELECT t.v, COUNT(*) AS w FROM ({first}) t GROUP BY t.v",
                f"{first} AND EXISTS (SELECT 1 FROM orders x WHERE x.product = c.name AND "
                f"x.amount = i.{number})",
                f"SELECT COUNT(*) AS v, MIN(o.id) AS w FROM orders o LEFT JOIN {table} i ON {on}",
            )
        )  # fmt: skip
        one = f"(SELECT {rng.choice(('MAX(q.v)', 'COUNT(q.w)', 'SUM(q.w) + 1'))} FROM ({query}) q)"
        return rng.choice(
            (
                f"SELECT c.id, t.v, t.w FROM customers c CROSS JOIN LATERAL ({query}) t",
                f"SELECT c.name, t.v FROM customers c LEFT JOIN LATERAL ({query}) t ON t.w > 0",
                f"SELECT c.id, {one} AS v FROM customers c",
                f"SELECT c.id FROM customers c WHERE {rng.choice(('', 'NOT '))}EXISTS ({query})",
                f"SELECT c.id FROM customers c WHERE c.id {rng.choice(('IN', 'NOT IN'))} "
                f"(SELECT q.v FROM ({query}) q)",
                f"SELECT c.id, EXISTS ({query}) AS e, c.id IN (SELECT q.v FROM ({query}) q) AS t "
                "FROM customers c",
                f"SELECT c.name, COUNT(*) AS n FROM customers c WHERE {one} > 0 GROUP BY c.name",
            )
        )

    def _compared(self) -> str:
        """Comparisons with all rows of a subquery, and of several columns."""
        rng = self._random
        inner = rng.choice(("SELECT customer_id FROM visits", "SELECT MAX(id) FROM customers",
                            "SELECT v.seconds FROM visits v WHERE v.page = o.product"))  # fmt: skip
        test = rng.choice(
            (
                f"o.amount {rng.choice(('=', '<>', '<', '>='))} {rng.choice(('ANY', 'ALL'))} "
                f"({inner})",
                "EXISTS (SELECT 1 FROM visits WHERE seconds > 1)",
                f"2 NOT IN ({inner})",
                f"(o.customer_id, o.product) {rng.choice(('IN', 'NOT IN'))} (SELECT v.customer_id, "
                f"v.page FROM visits v{rng.choice(('', ' WHERE v.seconds < o.amount'))})",
                f"(o.customer_id, o.product) {rng.choice(('=', '<>', '<'))} (SELECT "
                "MAX(v.customer_id), MIN(v.page) FROM visits v WHERE v.seconds <= o.amount)",
                f"(o.customer_id, o.amount) {rng.choice(('=', '<>', '>'))} "
                f"{rng.choice(('ANY', 'ALL'))} (SELECT v.customer_id, v.seconds FROM visits v)",
            )
        )
        return rng.choice(
            (
                f"SELECT o.id FROM orders o WHERE {test}",
                f"SELECT o.id, {test} AS t FROM orders o",
                "SELECT o.product, COUNT(*) AS n FROM orders o GROUP BY o.product HAVING COUNT(*) "
                ">= (SELECT COUNT(*) FROM visits v WHERE v.page = o.product)",
            )
        )

    def _unequal(self) -> str:
        """Joins by more or less than equalities."""
        rng = self._random
        join = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        on = rng.choice(("o.amount < c.id", "o.customer_id = c.id AND o.amount >= 1",
                         "o.amount BETWEEN c.id - 1 AND c.id", "o.product = c.name",
                         "o.id <> c.id AND c.country = 'a'", self._asked(),
                         "(SELECT COUNT(*) > 2 FROM visits x)"))  # fmt: skip
        return rng.choice(
            (
                f"SELECT o.id, c.id AS c, c.name FROM orders o {join} customers c ON {on}",
                f"SELECT c.country, COUNT(o.id) AS n FROM orders o {join} customers c ON {on} "
                "GROUP BY c.country",
                "SELECT v.page, o.id, c.name FROM visits v, orders o, customers c WHERE "
                f"v.customer_id = c.id AND {on}",
                f"SELECT o.id, v.page FROM (orders o {join} customers c ON {on}) {join} visits v "
                "ON v.customer_id = c.id AND v.seconds > 0",
                f"SELECT c.id FROM customers c WHERE {rng.choice(('', 'NOT '))}EXISTS (SELECT 1 "
                f"FROM orders o WHERE {on})",
            )
        )

    def _asked(self) -> str:
        """The condition of a join of orders and customers with a subquery of one of them."""
        rng = self._random
        test = rng.choice(
            (
                "EXISTS (SELECT 1 FROM visits x WHERE x.customer_id = c.id)",
                "c.name NOT IN (SELECT x.page FROM visits x)",
                "o.amount > (SELECT AVG(x.seconds) FROM visits x)",
                "o.amount > ANY (SELECT x.seconds FROM visits x WHERE x.page = o.product)",
                "(SELECT COUNT(*) > 2 FROM visits x)",
                "c.id = (SELECT MAX(x.customer_id) FROM visits x WHERE x.page = o.product)",
            )
        )
        return f"{rng.choice(('o.customer_id = c.id', 'o.amount < c.id'))} AND {test}"

    def _placed(self) -> str:
        """Aggregates and window functions with an order of their own."""
        rng = self._random
        by = rng.choice(("product", "customer_id", "amount"))
        return rng.choice(
            (
                f"SELECT {by}, STDDEV_POP(rate) AS d, VAR_SAMP(amount) AS v, AVG(rate) AS a, "
                f"COVAR_POP(rate, amount) AS c FROM orders GROUP BY {by}",
                f"SELECT {by}, LISTAGG(product, '-') WITHIN GROUP (ORDER BY price DESC) AS l "
                f"FROM orders GROUP BY {by}",
                f"SELECT id, FIRST_VALUE(product) OVER (PARTITION BY {by} ORDER BY price) AS f, "
                f"LAST_VALUE(tags) OVER (PARTITION BY {by} ORDER BY price) AS l, SUM(rate) OVER "
                f"(PARTITION BY {by} ORDER BY price) AS s FROM orders",
                f"SELECT DISTINCT STDDEV_SAMP(rate) OVER (PARTITION BY {by}) AS d FROM orders",
            )
        )

    def _unnested(self) -> str:
        join = self._random.choice(("CROSS JOIN UNNEST(o.tags) AS t (tag)",
                                    "LEFT JOIN UNNEST(o.tags) AS t (tag) ON TRUE"))  # fmt: skip
        return self._random.choice(
            (
                "SELECT o.id, t.tag, t.place FROM orders o CROSS JOIN UNNEST(o.tags) WITH "
                "ORDINALITY AS t (tag, place)",
                f"SELECT o.id, t.tag FROM orders o {join}",
                f"SELECT t.tag, COUNT(*) AS n, SUM(o.amount) AS s FROM orders o {join} GROUP BY "
                "t.tag",
            )
        )  # fmt: skip

    def _windowed(self) -> str:
        rng = self._random
        partition = rng.choice(("PARTITION BY product", "PARTITION BY customer_id, product", ""))
        tie = rng.choice((", id", "", ", amount"))
        most = rng.choice(
            (
                "rn = 1",
                "rn <= 2",
                "rn < 3",
                "rn = 2",
                "rn > 1",
                "rn BETWEEN 2 AND 3",
                "rn BETWEEN SYMMETRIC 3 AND 1",
            )
        )
        return rng.choice(
            (
                f"SELECT id, product FROM (SELECT *, ROW_NUMBER() OVER ({partition} ORDER BY price "
                f"DESC{tie}) AS rn FROM orders) WHERE {most}",
                f"SELECT * FROM (SELECT id, product, customer_id, DENSE_RANK() OVER ({partition} "
                f"ORDER BY amount) AS rn, ROW_NUMBER() OVER (ORDER BY rate) AS r FROM orders) "
                f"WHERE {most} AND id > 1",
                f"SELECT id, SUM(amount) OVER ({partition} ORDER BY price) AS s, COUNT(*) OVER "
                f"({partition}) AS c, LAG(id) OVER ({partition} ORDER BY price) AS l FROM orders",
                f"SELECT customer_id, SUM(amount) OVER ({partition} ORDER BY price{tie} ROWS "
                "BETWEEN 1 PRECEDING AND CURRENT ROW) AS s, NTILE(2) OVER (ORDER BY price) AS t "
                "FROM orders",
                "SELECT o.amount, ROW_NUMBER() OVER (PARTITION BY c.country ORDER BY o.price)"
                " AS r FROM orders o LEFT JOIN customers c ON o.customer_id = c.id WHERE o.id NOT "
                "IN (SELECT v.seconds FROM visits v WHERE v.customer_id = o.amount)",
                "SELECT product, SUM(amount) AS s, RANK() OVER (ORDER BY SUM(amount), product) AS "
                "r FROM orders GROUP BY product",
                "SELECT id, price FROM orders ORDER BY "
                f"{rng.choice(('price DESC, id', 'amount', 'price'))} LIMIT {rng.randint(1, 4)} "
                f"OFFSET {rng.randint(0, 2)}",
                "SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY COUNT(*) "
                "DESC LIMIT 2",
                "SELECT product, SUM(amount) AS s, RANK() OVER (ORDER BY SUM(amount), product) AS "
                f"r FROM orders GROUP BY product ORDER BY {rng.choice(('s - r', 's % 3', '-r'))}, "
                "CASE WHEN s > 2 THEN product END DESC, product LIMIT 2",
                "SELECT product, amount FROM orders LIMIT 2",
                f"SELECT DISTINCT ON (product) product AS p, amount, id FROM orders ORDER BY p, "
                f"{rng.choice(('2 DESC', 'price', 'rate, id'))}",
            )
        )  # fmt: skip

    def _membership(self) -> str:
        rng = self._random
        test = rng.choice(("IN", "NOT IN"))
        inner = rng.choice(("SELECT customer_id FROM visits",
                            "SELECT MAX(amount) FROM orders GROUP BY product",
                            "SELECT customer_id FROM visits WHERE customer_id IS NOT NULL",
                            "SELECT DISTINCT amount FROM orders WHERE price > 0",
                            "SELECT id FROM customers LIMIT 100"))  # fmt: skip
        source, columns = self._from()
        n = rng.choice(columns["n"])
        return f"SELECT {n} AS c0, COUNT(*) AS n {source} WHERE {n} {test} ({inner}) GROUP BY {n}"

    def _tests(self) -> str:
        """IN and EXISTS within expressions."""
        rng = self._random
        word = rng.choice(("IN", "NOT IN"))
        inner = rng.choice(("SELECT customer_id FROM visits", "SELECT id FROM customers",
                            "SELECT customer_id FROM visits WHERE customer_id IS NOT NULL",
                            "SELECT seconds FROM visits WHERE page = 'pen'"))  # fmt: skip
        value = rng.choice(("o.amount", "o.customer_id", "o.id"))
        test = rng.choice((
            f"{value} {word} ({inner})",
            "EXISTS (SELECT 1 FROM visits v WHERE v.customer_id = o.amount)",
            "NOT EXISTS (SELECT 1 FROM visits v WHERE v.customer_id = o.amount AND v.seconds > 0)",
        ))  # fmt: skip
        return rng.choice((
            f"SELECT o.id, CASE WHEN {test} THEN 1 ELSE 0 END AS c, {test} AS t FROM orders o",
            f"SELECT o.id, o.product FROM orders o WHERE {test} OR o.price > 0",
            f"SELECT o.product, COUNT(*) AS n FROM orders o WHERE NOT ({test} AND o.id > 3) "
            "GROUP BY o.product",
        ))  # fmt: skip

    def _bags(self) -> str:
        word = self._random.choice(("UNION ALL", "INTERSECT ALL", "EXCEPT ALL", "UNION", "EXCEPT"))
        both = f"{self._one_column()} {word} {self._one_column()}"
        return self._random.choice(
            (
                both,
                f"SELECT c, COUNT(*) AS n FROM ({both}) GROUP BY c",
                f"SELECT DISTINCT x.c, o.id FROM ({both}) x LEFT JOIN orders o ON "
                "o.customer_id = x.c",
            )
        )

    def _comma(self) -> str:
        return self._random.choice(
            (
                "SELECT o.id, c.country, v.page FROM orders o, customers c, visits v WHERE "
                "o.customer_id = c.id AND v.customer_id = c.id AND o.amount > 0",
                "SELECT o.id, c.name, v.page FROM orders o JOIN customers c ON o.amount < c.id "
                "FULL JOIN visits v ON v.customer_id = c.id AND v.seconds < o.amount WHERE c.id = "
                "o.id",
                "SELECT customer_id, COUNT(*) AS n FROM orders JOIN visits USING (customer_id) "
                "GROUP BY customer_id",
                "SELECT a.n, b.n AS m FROM (SELECT COUNT(*) AS n FROM orders) a FULL JOIN (SELECT "
                "COUNT(*) AS n FROM visits) b ON a.n = b.n",
                "SELECT COUNT(*) AS n, (SELECT MAX(id) FROM orders) AS m FROM customers",
                "SELECT o.id, x.n FROM orders o LEFT JOIN (SELECT customer_id, COUNT(*) AS n FROM "
                "visits GROUP BY customer_id) x ON x.customer_id = o.customer_id AND x.n > 1",
            )
        )

    def _sets(self) -> str:
        by = self._random.choice(("ROLLUP (product, customer_id)", "CUBE (product, customer_id)",
                                  "GROUPING SETS ((product), (customer_id), ())"))  # fmt: skip
        return (
            "SELECT product, customer_id, COUNT(*) AS n, SUM(amount) AS s, MIN(price) AS l FROM "
            f"orders GROUP BY {by}"
        )

    def _aggregates(self) -> str:
        """Several kinds of aggregates of one group."""
        rng = self._random

        def call() -> str:
            value = rng.choice(("amount", "price", "customer_id", "product", "id + amount"))
            function = rng.choice(("COUNT", "MIN", "MAX", "SUM", "AVG", "COUNT"))
            if value == "product" and function in ("SUM", "AVG"):
                function = "MAX"
            only = rng.choice(("", "", "DISTINCT "))
            inner = rng.choice((f"{only}{value}", "rate" if rng.random() < 0.2 else value))
            found = "COUNT(*)" if rng.random() < 0.2 else f"{function}({inner})"
            if rng.random() < 0.1:
                found = rng.choice(
                    ("PERCENTILE(rate, 0.3)", f"APPROX_COUNT_DISTINCT({value})",
                     "PERCENTILE(amount, 0.3, id)",
                     f"MAX_BY(product, {value})", f"MIN_BY({value}, rate)", "BIT_XOR(amount)",
                     "BOOL_OR(amount > 1)", "CORR(amount, price)", f"ANY_VALUE({value})",
                     "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY price)")
                )  # fmt: skip
            test = rng.choice(("amount > 1", "product = 'pen'", "price IS NULL", "id < amount"))
            return f"{found} FILTER (WHERE {test})" if rng.random() < 0.3 else found

        calls = ", ".join(f"{call()} AS a{n}" for n in range(rng.randint(1, 4)))
        by = rng.choice(("", "product", "customer_id, product", "amount", "rate", "price"))
        having = f" HAVING {call()} IS NOT NULL" if rng.random() < 0.3 else ""
        called = f"{by}, {calls}" if by else calls
        grouped = f" GROUP BY {by}" if by else ""
        return f"SELECT {called} FROM orders{grouped}{having}"

    def _constants(self) -> str:
        return self._random.choice(
            (
                "SELECT 1 AS one, id FROM orders UNION ALL SELECT 2, id FROM customers",
                "SELECT t.a, o.id FROM (VALUES (1, 'x'), (2, 'y')) AS t (a, b) JOIN orders o "
                "ON o.customer_id = t.a",
                "WITH w AS (SELECT customer_id AS k, COUNT(*) AS n FROM orders GROUP BY "
                "customer_id) SELECT a.k, b.n FROM w a JOIN w b ON a.n = b.n",
                "SELECT 1 AS one, 'x' AS x FROM visits",
                "SELECT CAST(id AS BIGINT) AS id, CAST(price AS INT) AS p FROM orders",
            )
        )


Results = dict[str, list[Any]]
"""Of each operator the rows `old`, `delta`, `new`, `whole` (again), `negative`, as tables."""


def run(
    plan: BoundedQuery,
    tree: Operator,
    before: Rows,
    after: Rows,
) -> tuple[pa.Table, Results]:
    """The result of a plan after a change of its tables, and those of its tree's operators."""

    def stream(table: pa.Table) -> tuple[pa.Schema, Batches]:
        return table.schema, lambda: iter(table.to_batches())

    def scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        return stream(table_of(scan.table, after).select(list(scan.columns)))

    more, old, changes = {}, {}, {}
    for scan in plan.scans:
        old[scan.relation] = f"old_{scan.relation}"
        changes[scan.relation] = f"change_{scan.relation}"
        more[old[scan.relation]] = stream(table_of(scan.table, before))
        more[changes[scan.relation]] = stream(change_of(scan.table, before, after))
    results: Results = {}
    with opened(plan, scanner, threads=1, more=more) as connection:

        def table(sql: str) -> pa.Table:
            return connection.sql(sql).to_arrow_table()

        expected = table(plan.sql)
        executor = NaiveExecutor(connection, tree, old, changes)
        wholes: dict[int, str] = {}
        for number, each in enumerate(walk(tree)):
            wholes[id(each)] = f"whole_{number}"
            sql = each.whole([wholes[id(i)] for i in each.inputs])
            connection.execute(f"CREATE TEMP TABLE whole_{number} AS {sql}")
            names = [executor.name(each, kind) for kind in ("old", "delta", "new")]
            texts = [*(f"FROM {name}" for name in (*names, wholes[id(each)])),
                     negative(each, *names[:2])]  # fmt: skip
            for kind, text in zip(("old", "delta", "new", "whole", "negative"), texts, strict=True):
                results.setdefault(kind, []).append(table(text))
    return expected, results


def table_of(info: TableInfo, rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows[info.name[-1]], schema=arrow_schema(info.columns))


def change_of(info: TableInfo, before: Rows, after: Rows) -> pa.Table:
    """The change of a table's rows, with `WEIGHT` last."""
    name = info.name[-1]
    texts = {repr(row): row for row in before[name] + after[name]}
    counts = Counter(map(repr, after[name]))
    counts.subtract(Counter(map(repr, before[name])))
    rows = [{**texts[t], WEIGHT: n // abs(n)} for t, n in counts.items() for _ in range(abs(n))]
    schema = arrow_schema(info.columns).append(pa.field(WEIGHT, pa.int64()))
    return pa.Table.from_pylist(rows, schema=schema)


def bag(table: pa.Table) -> Counter[Any]:
    """The rows of a table as a multiset."""
    return bag_of([list(row.values()) for row in table.to_pylist()])
