"""Random queries over windows, OVER and joins in time, executed from changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.operators.random_trees import analyzed, bag, random_rows, run
from tests.unit.operators.test_incremental_execution import check_changes, result_of

from streamhouse.operators.join import Join
from streamhouse.operators.operator import walk
from streamhouse.operators.over import PartitionSteps, WindowFunction
from streamhouse.operators.scan import Scan
from streamhouse.operators.trees.compiled_tree import CompiledTree
from streamhouse.operators.trees.drawing import whole_reason
from streamhouse.sql.batch import window_slices

_QUERIES = 3


def windowed_query(rng: random.Random) -> str:
    """A SELECT over the orders' times, which are within eight seconds."""
    kinds = (_window_groups, _group_windows, _window_joins, _ranks, _overs, _intervals, _nearest)
    return rng.choice(kinds)(rng)


def _table(rng: random.Random, table: str = "orders", time: str = "at_") -> str:
    """A call of a window table function."""
    call = f"TABLE {table}, DESCRIPTOR({time}), INTERVAL '{rng.choice((1, 2, 4))}' SECOND"
    offset = rng.choice(("", ", INTERVAL '1' SECOND", ", INTERVAL '-500' SECOND"))
    return rng.choice(
        (
            f"TUMBLE({call}{offset})",
            f"HOP({call}, INTERVAL '{rng.choice((2, 3, 4))}' SECOND{offset})",
            f"CUMULATE({call}, INTERVAL '4' SECOND{offset})",
            f"SESSION({call})",
            f"SESSION({call.replace(',', ' PARTITION BY product,', 1)})",
            f"SESSION({call.replace(',', ' PARTITION BY customer_id, product,', 1)})",
        )
    )


_AGGREGATES = (
    "COUNT(*)", "SUM(amount)", "MAX(price)", "COUNT(DISTINCT product)", "AVG(price)",
    "SUM(price) FILTER (WHERE amount > 1)", "COUNT(rate)", "MIN(product)", "AVG(amount)",
    "SUM(DISTINCT amount) FILTER (WHERE id > 2)", "SUM(amount + 1)", "MAX(rate) - MIN(rate)",
    "AVG(DISTINCT price)", "COUNT(*) FILTER (WHERE product = 'pen')", "SUM(rate)", "AVG(rate)",
    "STDDEV_POP(amount)", "COUNT(DISTINCT customer_id) FILTER (WHERE amount IS NOT NULL)",
    "SUM(COUNT(*)) OVER ()", "LISTAGG(product) WITHIN GROUP (ORDER BY product)",
)  # fmt: skip


def _window_groups(rng: random.Random) -> str:
    keys = rng.choice(("window_start, window_end", "window_start, window_end, product",
                       "window_time", "window_end, customer_id + 1, product"))  # fmt: skip
    group = rng.choice(
        (keys, keys, f"GROUPING SETS (({keys}), (window_start))", f"ROLLUP ({keys})")
    )
    if "(window_start)" in group and "window_start" not in keys:
        keys = f"{keys}, window_start"
    shown = keys.replace("customer_id + 1", "customer_id + 1 AS c")
    where = rng.choice(
        (
            f"id > {rng.randint(-1, 4)}",
            f"amount > 0 AND window_end > TIMESTAMP '2026-01-01 00:00:0{rng.randint(0, 7)}'",
            "id IN (SELECT id FROM customers)",
            "window_time > TIMESTAMP '2026-01-01 00:00:02'",
        )
    )
    having = rng.choice(("", "", " HAVING COUNT(*) > 1", " HAVING MAX(amount) > 1"))
    return (
        f"SELECT {shown}, {rng.choice(_AGGREGATES)} AS a, {rng.choice(_AGGREGATES)} AS b FROM "
        f"{_table(rng)} WHERE {where} GROUP BY {group}{having}"
    )


def _group_windows(rng: random.Random) -> str:
    kind = rng.choice(("TUMBLE", "HOP", "SESSION"))
    slide = ", INTERVAL '1' SECOND" if kind == "HOP" else ""
    call = f"(o.at_{slide}, INTERVAL '{rng.choice((1, 2, 3))}' SECOND)"
    source = "orders o"
    if kind != "SESSION":
        source = rng.choice((source, "orders o JOIN customers c ON o.customer_id = c.id",
                             "customers c LEFT JOIN orders o ON o.customer_id = c.id"))  # fmt: skip
    return (
        f"SELECT o.product, {kind}_START{call} AS s, {kind}_END{call} AS e, COUNT(*) AS n FROM "
        f"{source} WHERE COALESCE(o.amount, 2) > {rng.randint(-1, 1)} GROUP BY o.product, "
        f"{kind}{call} HAVING {kind}_ROWTIME{call} > TIMESTAMP '2026-01-01 00:00:01'"
    )


def _window_joins(rng: random.Random) -> str:
    on = "l.window_start = r.window_start AND l.window_end = r.window_end AND l.k = r.k"
    sides = [f"(SELECT *, customer_id AS k FROM {_table(rng)})" for _ in range(2)]
    kind = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    if rng.random() < 0.3:
        word = rng.choice(("EXISTS", "NOT EXISTS"))
        return (
            f"SELECT l.id, l.window_start FROM {sides[0]} l WHERE {word} (SELECT 1 FROM "
            f"{sides[1]} r WHERE {on})"
        )
    return (
        f"SELECT l.id, r.id AS id2, COALESCE(l.window_end, r.window_end) AS e FROM {sides[0]} l "
        f"{kind} {sides[1]} r ON {on}"
    )


def _ranks(rng: random.Random) -> str:
    order = rng.choice(("price DESC", "at_", "amount, id", "window_time DESC"))
    return (
        "SELECT id, window_start, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, "
        f"window_end, product ORDER BY {order}) AS rn FROM {_table(rng)}) WHERE rn <= "
        f"{rng.randint(1, 2)}"
    )


def _overs(rng: random.Random) -> str:
    def window(order: str = "") -> str:
        by = rng.choice(("PARTITION BY product", "PARTITION BY customer_id, product", ""))
        order = order or rng.choice(("at_", "at_ DESC", "price DESC", "amount, id"))
        return f"{by} ORDER BY {order}"

    frames = (
        "1 PRECEDING AND CURRENT ROW", "UNBOUNDED PRECEDING AND CURRENT ROW",
        "2 PRECEDING AND 1 FOLLOWING", "CURRENT ROW AND UNBOUNDED FOLLOWING",
    )  # fmt: skip
    frame, spans = (
        rng.choice(frames),
        (
            "INTERVAL '2' SECOND PRECEDING AND CURRENT ROW",
            "INTERVAL '1' SECOND PRECEDING AND INTERVAL '1' SECOND FOLLOWING",
        ),
    )
    span = rng.choice(spans)
    functions = (
        f"SUM(amount) OVER ({window()} ROWS BETWEEN {frame})",
        f"COUNT(*) OVER ({window(rng.choice(('at_', 'at_ DESC')))} RANGE BETWEEN {span})",
        f"LAG(id{rng.choice(('', ', 2', ', 1, -1'))}) OVER ({window()})",
        f"LEAD(price) OVER ({window()})",
        f"FIRST_VALUE(id) OVER ({window()})",
        f"LAST_VALUE(price) OVER ({window()} ROWS BETWEEN {frame})",
        f"NTH_VALUE(amount, {rng.randint(1, 2)}) OVER ({window()})",
        f"LAST_VALUE(amount) RESPECT NULLS OVER ({window()} ROWS BETWEEN {frame})",
        f"NTILE({rng.randint(1, 3)}) OVER ({window()})",
        f"PERCENT_RANK() OVER ({window()})",
        f"CUME_DIST() OVER ({window()})",
        f"DENSE_RANK() OVER ({window()})",
    )
    chosen = ", ".join(f"{one} AS f{n}" for n, one in enumerate(rng.sample(functions, 3)))
    return f"SELECT id, {chosen} FROM orders"


def _intervals(rng: random.Random) -> str:
    kind = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    on = rng.choice(("o.product = p.product AND ", ""))
    on += rng.choice(
        (
            "p.at_ BETWEEN o.at_ - INTERVAL '1' SECOND AND o.at_ + INTERVAL '2' SECOND",
            "p.at_ > o.at_ - INTERVAL '2' SECOND AND p.at_ <= o.at_",
            "o.at_ >= p.at_ + INTERVAL '1' SECOND AND o.at_ - INTERVAL '5' SECOND < p.at_",
            "p.at_ BETWEEN o.at_ + INTERVAL '1' SECOND AND o.at_ - INTERVAL '1' SECOND",
        )
    )
    if rng.random() < 0.3:
        word = rng.choice(("EXISTS", "NOT EXISTS"))
        return f"SELECT o.id FROM orders o WHERE {word} (SELECT 1 FROM orders p WHERE {on})"
    return f"SELECT o.id, p.id AS id2 FROM orders o {kind} orders p ON {on}"


def _nearest(rng: random.Random) -> str:
    test = f"o.at_ {rng.choice(('>=', '>', '<=', '<'))} p.at_"
    keys = rng.choice(("o.product = p.product AND ", "o.customer_id = p.amount AND o.product = "
                       "p.product AND ", ""))  # fmt: skip
    items = rng.choice(("o.id, p.id AS id2", "o.id, p.amount", "o.product, p.price"))
    side = rng.choice(("", "LEFT"))
    return f"SELECT {items} FROM orders o ASOF {side} JOIN orders p ON {keys}{test}"


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 300))]
)
def test_windows_from_changes(seed: int, tmp_path: Path) -> None:
    for number in range(_QUERIES):
        rng = random.Random(seed * _QUERIES + number)
        check_changes(windowed_query(rng), rng, tmp_path / str(number))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 300))]
)
def test_trees_of_windows(seed: int) -> None:
    """The tree has the rows of the query, and each operator keeps its claims."""
    for number in range(_QUERIES):
        rng = random.Random(seed * _QUERIES + number)
        query = windowed_query(rng)
        plan, tree = analyzed(query)
        before = random_rows(rng)
        expected, results = run(plan, tree, before, random_rows(rng, before))
        assert bag(results["new"][-1]) == bag(expected), query


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 100))]
)
def test_slices_have_the_rows_of_windows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of windows are those of the rows in them, whether or not slices are grouped first."""
    sliced = 0
    for number in range(4 * _QUERIES):
        rng = random.Random(seed * 4 * _QUERIES + number)
        query = rng.choice((_window_groups, _group_windows))(rng)
        rows, found = random_rows(rng), []
        for form in ("slices", "rows"):
            with monkeypatch.context() as patched:
                if form == "rows":
                    patched.setattr(window_slices, "aggregate_slices", lambda *_: None)
                plan, _ = analyzed(query)
            sliced += "_p0" in plan.sql or "$piece" in plan.sql
            found.append(result_of(plan, rows))
        assert found[0] == found[1], query
    assert sliced


@pytest.mark.parametrize(
    ("query", "operators", "kept"),
    [
        ("SELECT id, window_end FROM SESSION(TABLE orders PARTITION BY product, DESCRIPTOR(at_), "
         "INTERVAL '1' HOUR)", 1, 1),
        ("SELECT id, LAG(id) OVER (PARTITION BY product ORDER BY at_) AS a, COUNT(*) OVER "
         "(PARTITION BY product ORDER BY at_ RANGE INTERVAL '1' SECOND PRECEDING) AS b FROM orders",
         1, 1),
        ("SELECT id, LAG(id) OVER (PARTITION BY product ORDER BY at_) AS a, COUNT(*) OVER "
         "(PARTITION BY customer_id) AS b FROM orders", 2, 2),
        ("SELECT r, SUM(rate) OVER (PARTITION BY product) AS s FROM (SELECT product, rate, "
         "RANK() OVER (PARTITION BY product ORDER BY at_) AS r FROM orders)", 2, 4),
    ],
)  # fmt: skip
def test_window_functions_over_the_same_partitions_keep_their_input_once(
    query: str, operators: int, kept: int
) -> None:
    tree = CompiledTree(analyzed(query)[1])
    found = [e for e in tree.operators if isinstance(e, WindowFunction | PartitionSteps)]
    own = [each for each in tree.arrangements.values() if not isinstance(each.operator, Scan)]
    of_scans = {each.name for kept in tree.kept.values() for each in kept} - {e.name for e in own}
    assert (len(found), len(own) + len(of_scans)) == (operators, kept)


@pytest.mark.parametrize(
    "table",
    [
        "TUMBLE(TABLE orders, DESCRIPTOR(at_), INTERVAL '1' HOUR)",
        "HOP(TABLE orders, DESCRIPTOR(at_), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
        "CUMULATE(TABLE orders, DESCRIPTOR(at_), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
        "SESSION(TABLE orders PARTITION BY product, DESCRIPTOR(at_), INTERVAL '1' HOUR)",
    ],
)
def test_windows_are_computed_from_changes(table: str) -> None:
    _, root = analyzed(
        f"SELECT window_start, window_end, SUM(amount) AS s FROM {table} GROUP BY window_start, "
        "window_end"
    )
    assert not whole_reason(root)
    assert root.keys == {frozenset(["window_start", "window_end"])}
    assert root.not_null == ({"window_start", "window_end"} if "SESSION" not in table else set())


def test_a_row_has_one_nearest_row() -> None:
    joined = "SELECT o.id, p.price FROM orders o ASOF LEFT JOIN orders p ON o.product = p.product"
    _, root = analyzed(f"{joined} AND o.at_ > p.at_")
    assert root.keys == {frozenset(["id"])}
    _, root = analyzed(f"{joined} AND o.amount = p.rate AND o.at_ > p.at_")
    assert not root.keys


@pytest.mark.parametrize("kind", ["", "LEFT", "RIGHT"])
@pytest.mark.parametrize("keys", ["", "o.product = p.product AND "])
def test_a_range_of_time_looks_rows_up_by_pieces(kind: str, keys: str) -> None:
    """Not all rows of a side, or of a key, and no pieces if the key of a side is equal."""
    query = (
        f"SELECT o.id, p.id AS id2 FROM orders o {kind} JOIN orders p ON {keys}p.at_ BETWEEN "
        "o.at_ AND o.at_ + INTERVAL '5' SECOND"
    )
    _, root = analyzed(query)
    (join,) = (each for each in walk(root) if isinstance(each, Join))
    assert all(len(kept.by) == 1 + bool(keys) for kept in join.keeps)
    assert root.keys == {frozenset(["id", "id2"])}
    _, root = analyzed(query.replace(keys or "ON ", f"{keys or 'ON '}o.id = p.amount AND ", 1))
    (join,) = (each for each in walk(root) if isinstance(each, Join))
    assert all(len(kept.by) == 1 + bool(keys) for kept in join.keeps)
