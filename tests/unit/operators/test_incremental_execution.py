"""Random trees executed from changes, with kept rows, over several changes of their tables."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.operators.random_trees import (
    START,
    Rows,
    TreeGenerator,
    analyzed,
    bag,
    random_rows,
    table_of,
)

from streamhouse.connectors.specs import arrow_schema
from streamhouse.duckdb_engine import opened, time_sql
from streamhouse.operators.join import Join
from streamhouse.operators.limit import TopN
from streamhouse.operators.operator import RESULT, WEIGHT, Operator, walk
from streamhouse.operators.trees import incremental
from streamhouse.operators.trees.compiled_tree import CompiledTree, Source, obstacle
from streamhouse.operators.trees.drawing import whole_reason
from streamhouse.operators.trees.incremental import IncrementalRefresh, SourceChange, merge_beside
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import BoundedQuery
from streamhouse.state import segment
from streamhouse.state.manifest import Segments
from streamhouse.state.segment import AskedPart
from streamhouse.state.store import StateStore

_QUERIES, _CHANGES = 4, 3


_WITHOUT_KEY = (
    "SELECT DISTINCT STDDEV_SAMP(rate) OVER (PARTITION BY amount) AS d FROM orders",
    "SELECT DISTINCT product, MAX(rate) OVER (PARTITION BY amount) AS d FROM orders",
    "SELECT rate FROM (SELECT rate, RANK() OVER (PARTITION BY amount ORDER BY product) AS r FROM "
    "orders) WHERE r <= 2",
    "SELECT product, rate FROM orders EXCEPT ALL SELECT page, seconds / 8.0e0 FROM visits",
)
"""Numbers that are not exact in rows without a key."""


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 300))]
)
def test_random_trees(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes of the result add up to the rows of the query, and no count is negative.

    Kept rows are merged by the refreshes, or beside them, in several parts.
    """
    monkeypatch.setattr(segment, "TIER", 2)
    monkeypatch.setattr(segment, "PART_ROWS", 10)
    for number in range(_QUERIES):
        monkeypatch.setattr(incremental, "MERGED_ROWS", number % 3 * 10)
        monkeypatch.setattr(incremental, "FIRST_ROWS", number % 2)
        monkeypatch.setattr(incremental, "WHOLE_ROWS", number % 3)
        query = TreeGenerator(seed * _QUERIES + number).query()
        check_changes(query, random.Random(seed * _QUERIES + number), tmp_path / str(number))


_EXTREMES = (
    "SELECT product, MAX(rate) AS m, MIN(rate) AS l, MIN(amount) AS a, MAX(7) AS s FROM orders "
    "GROUP BY product",
    "SELECT MAX(rate) AS m, MIN(price) FILTER (WHERE amount > 0) AS l FROM orders",
    "SELECT c.name, MAX(o.rate) AS m, MIN(v.seconds) AS s, COUNT(DISTINCT o.amount) AS d FROM "
    "orders o JOIN customers c ON o.amount = c.id JOIN visits v ON v.customer_id = c.id "
    "GROUP BY c.name",
)
"""Extremes that a group may lose, and 0.0 and -0.0."""
_OF_JOINS = (
    "SELECT name, MAX(amount) AS m FROM (SELECT c.name, o.amount FROM orders o JOIN customers c ON "
    "o.amount = c.id) GROUP BY name",
    "SELECT c.name, MAX(o.price) AS m, COUNT(DISTINCT v.page) AS d FROM orders o JOIN customers c "
    "ON o.amount = c.id JOIN visits v ON v.customer_id = c.id GROUP BY c.name",
    "SELECT MAX(a.amount) AS m, MIN(b.product) AS l FROM orders a JOIN orders b ON a.id = b.amount "
    "JOIN customers c ON c.id = b.id",
)
"""Extremes over joins, of which the change of one input may have rows that enter and leave."""
_OF_GROUPS = (
    "SELECT o.product, SUM(id) AS s FROM orders o GROUP BY o.product HAVING SUM(id) > (SELECT "
    "SUM(amount) FROM orders p WHERE p.product = o.product)",
    "SELECT o.product, (SELECT COUNT(*) FROM orders WHERE product < o.product) AS n FROM orders o "
    "GROUP BY ROLLUP (o.product)",
    "SELECT o.product, COUNT(*) AS n FROM orders o GROUP BY GROUPING SETS ((o.product))",
    "SELECT COUNT(*) AS n, MAX(o.id) AS last FROM orders o GROUP BY GROUPING SETS (())",
    "SELECT 1 IN (SELECT MAX(o.amount)) AS t FROM orders o",
    "SELECT o.product, (SELECT SUM((SELECT SUM(o.id))) OVER ()) AS s FROM orders o GROUP BY "
    "o.product",
    "SELECT o.product, (SELECT MIN(p.id) FROM orders p GROUP BY GROUPING SETS (o.product, "
    "p.product) HAVING o.product = p.product) AS m FROM orders o",
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM visits v WHERE v.customer_id = o.amount "
    "GROUP BY ())",
    "SELECT o.id, (SELECT COUNT(*) FROM (SELECT 1 AS x FROM visits v WHERE v.seconds = o.amount "
    "GROUP BY ROLLUP (v.page)) t) AS n FROM orders o",
)
"""Groups of one grouping set, and subqueries that read columns or have aggregates of the groups."""
_WITHOUT_COLUMNS = (
    "SELECT ROW_NUMBER() OVER () AS r FROM orders",
    "SELECT 1 AS a, LAG(7) OVER () AS l, FIRST_VALUE(1) OVER () AS f FROM orders",
    "SELECT COUNT(*) OVER (ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS n FROM visits",
    "SELECT ROW_NUMBER() OVER () AS r, NTILE(2) OVER () AS n FROM orders",
)
"""Functions of OVER that take no column to order rows by."""
_PLAINER = (
    "SELECT id, SUM(id) OVER v AS s, COUNT(*) OVER (W ORDER BY id) AS n FROM orders WINDOW w AS "
    "(PARTITION BY product), v AS (w ORDER BY amount ROWS 1 PRECEDING)",
    "SELECT id, ROW_NUMBER() OVER w AS r FROM orders WINDOW w AS (PARTITION BY product ORDER BY id "
    "DESC) QUALIFY r = 1",
    "SELECT product, GROUPING(product) AS g FROM orders GROUP BY CUBE (product)",
    "SELECT product, COLLECT(amount) AS c FROM orders GROUP BY product HAVING 2 > 1",
    "SELECT * FROM (SELECT product, ROW_NUMBER() OVER (ORDER BY price DESC) AS r FROM orders) "
    "WHERE r <= 3",
    "SELECT id FROM orders QUALIFY RANK() OVER (ORDER BY amount) BETWEEN 2 AND 4",
    "SELECT o.id, c.id AS c FROM orders o FULL JOIN customers c ON (SELECT COUNT(*) > 2 FROM "
    "visits)",
    "SELECT id FROM orders WHERE (SELECT COUNT(*) > 2 FROM visits)",
    "SELECT id, tag FROM orders o CROSS JOIN LATERAL UNNEST(o.tags) AS tag",
    "SELECT o.* FROM orders o SEMI JOIN customers c ON o.amount = c.id ANTI JOIN (SELECT seconds "
    "+ 1 FROM visits) v ON v.EXPR$0 < o.amount",
    "SELECT c.id, (SELECT ARRAY_AGG(o.id ORDER BY o.id) FROM orders o WHERE o.customer_id = c.id) "
    "AS a, (SELECT STDDEV_POP(o.rate) FILTER (WHERE o.id > 2) FROM orders o WHERE o.customer_id = "
    "c.id) AS s FROM customers c",
    "SELECT product, VAR_POP(1) AS a, CORR(2, amount) AS b, CORR(amount, 2) AS c, COVAR_POP(1, 2) "
    "AS d FROM orders GROUP BY product",
    "SELECT o.id, c.id AS c FROM orders o FULL JOIN customers c ON o.amount < c.id AND c.name NOT "
    "IN (SELECT page FROM visits) AND EXISTS (SELECT 1 FROM visits v WHERE v.page = o.product)",
    "SELECT product, SUM(amount) AS s, RANK() OVER (ORDER BY SUM(amount), product) AS r FROM "
    "orders GROUP BY product ORDER BY CASE WHEN s > 2 THEN product END DESC, s - r, product "
    "LIMIT 2",
    "SELECT * FROM (SELECT product, MAX(id) AS m FROM orders GROUP BY product) ORDER BY -m LIMIT 1",
    "SELECT product FROM orders GROUP BY product HAVING COUNT(*) > 1 AND MAX(id) > (SELECT MIN(id) "
    "FROM customers) OR COUNT(*) IN (SELECT seconds FROM visits)",
    "SELECT c.id, (SELECT MAX(o.amount) > 1 OR COUNT(*) = 0 FROM orders o WHERE o.customer_id = "
    "c.id) AS b FROM customers c",
    "SELECT id > 1 AS a, product LIKE 'p%' AS b, COUNT(*) AS n FROM orders GROUP BY "
    "ROLLUP (id > 1, product LIKE 'p%')",
    "SELECT COUNT(DISTINCT customer_id, product) AS n, COUNT(DISTINCT amount, tags) FILTER (WHERE "
    "id > 2) AS f FROM orders",
    "SELECT COUNT(*) AS n, MAX(product) AS m FROM orders GROUP BY GROUPING SETS (product IS NULL, "
    "(amount > 1, product IS NULL))",
)
"""Queries that are executed from changes, whatever clauses they are written with."""
_ALIASED = (
    "SELECT o.id, (SELECT MAX({i}.id) FROM customers {i} WHERE {i}.id {sign} o.id) AS m FROM "
    "orders o",
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM orders {i} WHERE {i}.amount {sign} "
    "o.amount)",
    "SELECT o.id, t.n FROM orders o CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM orders {i} WHERE "
    "{i}.amount {sign} o.amount) t",
    "WITH o AS (SELECT id FROM orders), {i} AS (SELECT id FROM customers) SELECT o.id, {i}.id AS d "
    "FROM o JOIN {i} ON o.id {sign} {i}.id",
)
_NAMED = (
    "SELECT q.{name}, COUNT(*) AS c FROM (SELECT amount AS {name} FROM orders) q GROUP BY q.{name}",
    "SELECT {name}, ROW_NUMBER() OVER (PARTITION BY {name} ORDER BY id) AS r FROM (SELECT id, "
    "amount AS {name} FROM orders)",
    "SELECT amount AS {name} FROM orders ORDER BY amount, id LIMIT 3",
    "SELECT amount AS {name} FROM orders EXCEPT ALL SELECT seconds FROM visits",
    "SELECT q.{name}, COUNT(DISTINCT q.{name}) AS c, (SELECT MAX(v.seconds) FROM visits v WHERE "
    "v.seconds < q.{name}) AS m FROM (SELECT amount AS {name} FROM orders) q GROUP BY q.{name}",
)
_NAMES = ("_weight", "_w0", "`range`", "_k0", "_n0", "_a0", "_g0", "_s0k0", "_v", "_rows", "_d0",
          "_number", "_is", "_r", "_i", "_t", "h", "c0")  # fmt: skip


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("query", (*_WITHOUT_KEY, *_EXTREMES, *_OF_GROUPS, *_WITHOUT_COLUMNS))
def test_a_query(query: str, seed: int, tmp_path: Path) -> None:
    check_changes(query, random.Random(seed), tmp_path / "state")


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.soak)])
@pytest.mark.parametrize("query", _OF_JOINS)
def test_one_input_of_a_join_changes(query: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        check_changes(query, random.Random(seed), tmp_path / str(seed), only_one=True)


_RANKED = "SELECT id, product, {0} OVER (PARTITION BY product ORDER BY {1}, id) AS r FROM orders"
_LEADING = (
    "SELECT product, MAX(amount) AS m, COUNT(*) AS n FROM orders GROUP BY product",
    "SELECT MIN(at_) AS l FROM orders",
    "SELECT amount, MAX(product) AS p FROM orders GROUP BY amount",
    "SELECT product, MIN(price) AS l FROM orders GROUP BY product HAVING MIN(price) < 2",
    f"SELECT * FROM ({_RANKED.format('ROW_NUMBER()', 'amount DESC')}) WHERE r <= 2",
    f"SELECT * FROM ({_RANKED.format('RANK()', 'price DESC')}) WHERE r <= 1",
    f"SELECT * FROM ({_RANKED.format('DENSE_RANK()', 'amount DESC')}) WHERE r <= 2",
    f"SELECT * FROM ({_RANKED.format('ROW_NUMBER()', 'amount')}) WHERE r <= 2",
    "SELECT id, price FROM orders ORDER BY price DESC, id LIMIT 3",
    "SELECT id, price FROM orders ORDER BY id LIMIT 2",
    "SELECT m FROM (SELECT product, MAX(amount) AS m FROM orders GROUP BY product) ORDER BY m "
    "DESC LIMIT 1",
)
"""The result depends on the first rows of each group, whose others are not read."""


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 40), marks=pytest.mark.soak)])
@pytest.mark.parametrize("query", _LEADING)
def test_leading_rows(
    query: str, seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows of a group are read, unless they do not suffice."""
    monkeypatch.setattr(segment, "TIER", 2)
    first, left = AskedPart.first, list[int]()

    def counted(part: AskedPart, most: int) -> Any:
        taken, last = first(part, most)
        left.append(len(last))
        return taken, last

    monkeypatch.setattr(AskedPart, "first", counted)
    monkeypatch.setattr(incremental, "WHOLE_ROWS", 0)
    monkeypatch.setattr(incremental, "_DEEPER", 2)
    for seed in seeds:
        monkeypatch.setattr(incremental, "FIRST_ROWS", seed % 2)
        check_changes(query, random.Random(seed), tmp_path / str(seed))
    nulls_first_or_ties = "BY amount, id" in query or "DENSE_RANK" in query
    assert any(left) is not nulls_first_or_ties


def test_a_join_without_columns_of_its_inputs_joins_other_rows_to_the_same_row() -> None:
    joins = [each for each in walk(analyzed(_OF_JOINS[1])[1]) if isinstance(each, Join)]
    assert [len(each.left_out) for each in joins] == [1, 2]
    assert [each.is_net for each in joins] == [True, False]


def test_a_row_leaves_a_join_as_the_one_that_it_met_enters(tmp_path: Path) -> None:
    check_changes(_OF_JOINS[0], random.Random(118), tmp_path / "state")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 50))]
)
def test_several_windows_over_equal_rows(seed: int, tmp_path: Path) -> None:
    """All functions of OVER take equal rows in one order."""
    rng = random.Random(seed)
    for number in range(_QUERIES):
        query = TreeGenerator(seed * _QUERIES + number).windows_over_equal_rows()
        check_changes(query, rng, tmp_path / str(number))


@pytest.mark.parametrize("sign", ["<", "=", pytest.param("<>", marks=pytest.mark.soak)])
@pytest.mark.parametrize("query", _ALIASED)
def test_aliases_may_differ_in_case_only(query: str, sign: str, tmp_path: Path) -> None:
    """The alias `O` beside or within a query of the alias `o` gives the rows of any other name."""
    rows = random_rows(random.Random(5))
    plans = [analyzed(query.format(i=alias, sign=sign))[0] for alias in ("O", "x")]
    assert result_of(plans[0], rows) == result_of(plans[1], rows)
    check_changes(query.format(i="O", sign=sign), random.Random(5), tmp_path / "state")


@pytest.mark.parametrize("query", _PLAINER)
def test_clauses_that_are_rewritten(query: str, tmp_path: Path) -> None:
    assert not whole_reason(analyzed(query)[1])
    check_changes(query, random.Random(3), tmp_path / "state")


@pytest.mark.parametrize("rank", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
@pytest.mark.parametrize("growing", [True, False])
def test_top_n_keeps_its_input_if_rows_may_leave_it(rank: str, growing: bool) -> None:
    query = (
        f"SELECT id FROM (SELECT id, {rank}() OVER (PARTITION BY product ORDER BY price) AS r "
        "FROM orders) WHERE r <= 2"
    )
    (top,) = (each for each in walk(analyzed(query, growing)[1]) if isinstance(each, TopN))
    assert [kept.input for kept in top.keeps] == ([RESULT] if growing else [RESULT, 0])


_SOAKED = [pytest.param(name, q, marks=pytest.mark.soak) for name in _NAMES for q in _NAMED]


@pytest.mark.parametrize(
    ("name", "query"),
    [("_weight", _NAMED[0]), ("_w0", _NAMED[1]), ("`range`", _NAMED[3]), *_SOAKED],
)
def test_columns_may_have_any_name(name: str, query: str, tmp_path: Path) -> None:
    check_changes(query.format(name=name), random.Random(1), tmp_path / "state")


@pytest.mark.parametrize("side", ["", "LEFT", "FULL"])
def test_which_changes_read_all_rows_of_a_side(side: str) -> None:
    _, root = analyzed(
        f"SELECT o.id, c.id AS c FROM orders o {side} JOIN customers c ON o.id < c.id"
    )
    read = {
        (arrangement.operator.describe().split()[1], relation)
        for name, relations in CompiledTree(root).read_whole
        for relation in relations
        for arrangement in [CompiledTree(root).arrangements[name]]
    }
    orders, customers = ("c.d.orders", "scan_1"), ("c.d.customers", "scan_0")
    own = {"": set(), "LEFT": {("c.d.customers", "scan_1")}}.get(
        side, {("c.d.orders", "scan_0"), ("c.d.customers", "scan_1")}
    )
    assert read == {orders, customers} | own


def check_changes(query: str, rng: random.Random, folder: Path, only_one: bool = False) -> None:
    """Assert that the changes of a query over random changes of its tables, or of only one of them
    at a time, add up to its rows."""
    plan, root = analyzed(query, growing=False)
    tree, store = CompiledTree(root), StateStore(folder)
    if any(map(obstacle, tree.operators)):
        assert whole_reason(root), query
        return
    store.folder.mkdir()
    rows = random_rows(rng)
    kept, result = _built(plan, tree, store, rows), Counter(result_of(plan, rows))
    for _ in range(_CHANGES):
        before, rows = rows, random_rows(rng, rows)
        # A table without a key only grows.
        rows["visits"] = before["visits"] + rows["visits"][:2]
        if only_one:
            changed = rng.choice(sorted(rows))
            rows = {**before, changed: rows[changed]}
        kept, delta = _applied(plan, tree, store, kept, before, rows)
        for row, weight in delta.items():
            result[row] += weight
        assert min(result.values(), default=0) >= 0, query
        assert +result == result_of(plan, rows), query


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 100))]
)
def test_the_time_is_an_input(seed: int, tmp_path: Path) -> None:
    """The result is that of the time of each change, also if only the time has changed."""
    for number in range(_QUERIES):
        rng = random.Random(seed * _QUERIES + number)
        query = TreeGenerator(seed * _QUERIES + number).timed()
        plan, root = analyzed(query)
        tree, store = CompiledTree(root), StateStore(tmp_path / str(number))
        store.folder.mkdir()
        rows, now = random_rows(rng), _ms(START)
        kept, result = _built(plan, tree, store, rows, now), result_of(plan, rows, now)
        for _ in range(_CHANGES):
            before, old_now = rows, now
            now += rng.choice((1, 500, 1000, 4000))
            if rng.random() < 0.6:
                rows = random_rows(rng, rows)
                rows["visits"] = before["visits"]
            kept, delta = _applied(plan, tree, store, kept, before, rows, old_now, now)
            for row, weight in delta.items():
                result[row] += weight
            assert min(result.values(), default=0) >= 0, query
            assert +result == result_of(plan, rows, now), query


def _ms(time: datetime) -> int:
    return int(time.replace(tzinfo=UTC).timestamp() * 1000)


def _scanner(plan: BoundedQuery, rows: Rows) -> Any:
    def scanner(scan: Any) -> Any:
        table = table_of(scan.table, rows).select(list(scan.columns))
        return table.schema, lambda: iter(table.to_batches())

    return scanner


def result_of(plan: BoundedQuery, rows: Rows, now: int | None = None) -> Counter[Any]:
    with opened(plan, _scanner(plan, rows), threads=1, now_ms=now) as connection:
        return bag(connection.sql(plan.sql).to_arrow_table())


def _built(
    plan: BoundedQuery,
    tree: CompiledTree,
    store: StateStore,
    rows: Rows,
    now: int | None = None,
) -> dict[str, Segments]:
    tables = {
        each.name: table_of(each.scan.table, rows).select(list(each.scan.columns))
        for each in tree.sources
    }
    with opened(plan, _scanner(plan, rows), threads=1, now_ms=now) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        refresh = IncrementalRefresh(tree, connection, store, {})
        connection.execute("SET VARIABLE old_now = getvariable('now')")
        refresh.build()
        return refresh.segments


def _applied(
    plan: BoundedQuery,
    tree: CompiledTree,
    store: StateStore,
    kept: dict[str, Segments],
    before: Rows,
    after: Rows,
    old_now: int | None = None,
    now: int | None = None,
) -> tuple[dict[str, Segments], Counter[Any]]:
    changes = {each: _change(each, before, after) for each in tree.sources}
    changed = {each: change for each, change in changes.items() if change is not None}
    with opened(plan, _scanner(plan, after), threads=1, now_ms=now) as connection:
        connection.execute(f"SET VARIABLE old_now = {time_sql(old_now)}")
        refresh = IncrementalRefresh(tree, connection, store, store.merged(kept))
        delta = connection.sql(f"FROM {refresh.apply(changed)}").to_arrow_table()
        for operator in tree.operators:
            _check_net(connection, tree.delta(operator), operator)
        refresh.keep()
        for files, arrangement in refresh.merges:
            merge_beside(connection, store, files, arrangement)
    counts: Counter[Any] = Counter()
    weights = delta.column(WEIGHT).to_pylist()
    for number, weight in enumerate(weights):
        (row,) = bag(delta.drop_columns([WEIGHT]).slice(number, 1))
        counts[row] += weight
    return refresh.segments, counts


def _check_net(connection: Any, delta: str, operator: Operator) -> None:
    """Assert that no row of the table of a change enters and leaves at once."""
    columns = ", ".join(f"CAST({quote(name)} AS VARCHAR)" for name in operator.columns) or "1"
    both = f"GROUP BY {columns} HAVING min({WEIGHT}) < 0 AND max({WEIGHT}) > 0"
    tables = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
    if delta in tables:
        assert not connection.execute(f"SELECT {columns} FROM {delta} {both}").fetchall()


def _change(source: Source, before: Rows, after: Rows) -> SourceChange | None:
    """The keys that changed and their new rows; of a table without a key what was added."""
    name = source.scan.table.name[-1]
    old, new = before[name], after[name]
    if old == new:
        return None
    schema = arrow_schema(source.scan.table.columns)
    columns = list(source.scan.columns)
    if source.key:
        changed = [row for row in [*old, *new] if old.count(row) != new.count(row)]
        rows = [row for row in new if row in changed]
        keys = pa.Table.from_pylist(changed, schema=schema).select(list(source.key))
        return SourceChange(pa.Table.from_pylist(rows, schema=schema).select(columns), keys)
    kept = Counter(map(repr, old))
    added = []
    for row in new:
        kept[repr(row)] -= 1
        if kept[repr(row)] < 0:
            added.append(row)
    assert not +kept, "a table without a key only grows"
    return SourceChange(pa.Table.from_pylist(added, schema=schema).select(columns))
