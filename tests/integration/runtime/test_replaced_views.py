"""The query of a running view is replaced without a gap: load, kills, other scripts in between."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from tests.integration.runtime.conftest import CollectedOutput, Dying, Shop
from tests.integration.runtime.test_views import rows

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.runtime import failpoint
from streamhouse.runtime.views import incremental
from streamhouse.runtime.views.build import Builder
from streamhouse.runtime.views.kept_rows import kept_rows
from streamhouse.source import ROW_KIND

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, customer_id INT, price BIGINT)
  WITH ('bucket' = '1');
"""
COUNT = "SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id"
SUM = "SELECT customer_id, SUM(price) AS n FROM orders GROUP BY customer_id"
MOST = "SELECT customer_id, MAX(price) AS n FROM orders WHERE price > 1 GROUP BY customer_id"


def replaced(query: str) -> str:
    return f"{TABLES}CREATE OR REPLACE MATERIALIZED VIEW v AS {query};"


def changelog(shop: Shop, view: str = "v") -> list[tuple[str, Counter[Any]]]:
    """The commits that changed a view: who made each, and its changes."""
    table = shop.warehouse.table(f"default.{view}")
    found = []
    for number in range(1, (table.latest_snapshot_id() or 0) + 1):
        changes = Counter[Any]()
        splits = table.changes(number - 1, number, "changelog")
        for batch in table.read(splits=splits, row_kind=True):
            for row in batch.to_pylist():
                kind = row.pop(ROW_KIND)
                row.pop("_view_key", None)
                changes[kind, tuple(row.values())] += 1
        if changes:
            found.append((table.snapshot(number).commit_user, changes))
    return found


def shows(shop: Shop, query: str) -> bool:
    """Whether the view has the rows of a query now."""
    return Counter(rows(shop, "SELECT * FROM v")) == Counter(rows(shop, query))


def check(shop: Shop, query: str) -> None:
    """The view has the rows of a query, its changelog adds up to them, nothing is left over."""
    expected = Counter(rows(shop, query))
    assert Counter(rows(shop, "SELECT * FROM v")) == expected
    state = Counter[Any]()
    for _, changes in changelog(shop):
        for (kind, row), count in changes.items():
            state[row] += count if kind in ("+I", "+U") else -count
        assert min(state.values(), default=0) >= 0
    assert +state == expected
    assert shop.warehouse.tables("default") == ["orders", "v"]


def test_a_changed_script_replaces_the_query(shop: Shop) -> None:
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1), (2, 2, 20)")
    shop.settle_here(replaced(COUNT))
    check(shop, COUNT)
    told = shop.settle_here(replaced(SUM))
    assert "v: the new query has taken over, 2 changes" in told
    check(shop, SUM)
    _, changes = changelog(shop)[-1]
    assert changes == Counter({("-U", (2, 1)): 1, ("+U", (2, 20)): 1})
    shop.do("INSERT INTO orders VALUES (3, 2, 5)")
    shop.settle_here(replaced(SUM))
    check(shop, SUM)


STEPS = ("begun", "defined", "committed", "moved")


@pytest.mark.parametrize("after", [COUNT, SUM, MOST], ids=["first", "second", "third"])
@pytest.mark.parametrize("step", STEPS)
def test_a_swap_goes_on_after_a_kill(shop: Shop, dying: Dying, step: str, after: str) -> None:
    """The next run has the same script, the one before, or another one."""
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1), (2, 2, 20)")
    shop.settle_here(replaced(COUNT))
    with dying(replaced(SUM), f"swap-{step}:0:default.v"):
        pass
    now = Counter(rows(shop, "SELECT * FROM v"))
    assert now in (Counter(rows(shop, COUNT)), Counter(rows(shop, SUM)))
    shop.do("INSERT INTO orders VALUES (3, 2, 5), (4, 1, 1)")
    shop.settle_here(replaced(after))
    check(shop, after)
    shop.do("DELETE FROM orders WHERE id = 1")
    shop.settle_here(replaced(after))
    check(shop, after)


def test_a_refresh_lets_the_new_query_take_over(shop: Shop) -> None:
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1), (2, 2, 20)")
    shop.settle_here(replaced(COUNT))
    shop.do(f"ALTER MATERIALIZED TABLE v AS {SUM}")
    assert Counter(rows(shop, "SELECT * FROM v")) == Counter(rows(shop, COUNT))
    assert shop.printed("SHOW MATERIALIZED VIEWS") == "v"
    shop.do("ALTER MATERIALIZED VIEW v REFRESH")
    check(shop, SUM)
    shop.do("ALTER MATERIALIZED VIEW v ROLLBACK; ALTER MATERIALIZED VIEW v REFRESH")
    check(shop, COUNT)
    shop.settle_here(replaced(COUNT))
    check(shop, COUNT)


def test_columns_change_with_the_swap(shop: Shop) -> None:
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1), (2, 2, 20)")
    shop.settle_here(replaced(COUNT))
    more = "SELECT customer_id, MAX(price) AS most, COUNT(*) AS n FROM orders GROUP BY customer_id"
    shop.settle_here(replaced(more))
    assert Counter(rows(shop, "SELECT * FROM v")) == Counter(rows(shop, more))
    shop.do("INSERT INTO orders VALUES (3, 2, 5), (4, 1, 1)")
    shop.settle_here(replaced(more))
    assert Counter(rows(shop, "SELECT * FROM v")) == Counter(rows(shop, more))
    less = "SELECT customer_id, MAX(price) AS most FROM orders GROUP BY customer_id"
    shop.settle_here(replaced(less))
    assert Counter(rows(shop, "SELECT * FROM v")) == Counter(rows(shop, less))
    before = shop.printed("SHOW CREATE MATERIALIZED VIEW v")
    for query, problem in (
        ("v (a, PRIMARY KEY (a) NOT ENFORCED) AS SELECT id FROM orders", "the key of its table is"),
        ("v AS SELECT customer_id, id > 1 AS most FROM orders", "cannot become"),
    ):
        with pytest.raises(TableError, match=problem):
            shop.do(f"CREATE OR REPLACE MATERIALIZED VIEW {query}")
    assert shop.printed("SHOW CREATE MATERIALIZED VIEW v") == before
    shop.do("ALTER MATERIALIZED VIEW v ROLLBACK")
    shop.settle_here("ALTER MATERIALIZED VIEW v RESUME; " + TABLES)
    shop.settle_here(replaced(more))
    assert Counter(rows(shop, "SELECT * FROM v")) == Counter(rows(shop, more))


def test_a_running_view_is_replaced_under_load(shop: Shop) -> None:
    """The next query comes from a statement; a view over the view, and the kept rows, go on."""
    script = f"""SET 'view.refresh-strategy' = 'incremental'; {replaced(COUNT)}
        CREATE MATERIALIZED VIEW w AS SELECT n, COUNT(*) AS customers FROM v GROUP BY n;"""
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1), (2, 2, 20)")
    shop.settle_here(script)
    printed, strategies, note = CollectedOutput(), list[str](), Builder.batch_done

    def replaced_times(times: int) -> bool:
        return sum("has taken over" in line for line in printed.lines) == times

    def noted(builder: Builder, report: dict[str, Any]) -> None:
        if builder._view == "default.v":
            strategies.append(report["strategy"])
        note(builder, report)

    with (
        patch.object(Builder, "batch_done", noted),
        patch.object(incremental, "_FEW_ROWS", 0),  # That database is of one task at a time.
        shop.running_here(script, printed=printed) as until,
    ):
        until(lambda: len(rows(shop, "SELECT * FROM w")) == 1)
        for number, query in enumerate((SUM, COUNT)):
            first = 100 * number
            shop.do(f"ALTER MATERIALIZED VIEW v AS {query}")
            for order in range(first, first + 12):
                shop.do(f"INSERT INTO orders VALUES ({order}, {order % 7}, {order % 5 + 2})")
            until(partial(replaced_times, number + 1))
            until(partial(shows, shop, query))
        assert kept_rows(str(shop.path), None, "default.v")[0]["bytes"] > 0
        strategies.clear()
        # On a busy machine, what it keeps may not be computed yet.
        for order in range(1000, 1010):
            shop.do(f"INSERT INTO orders VALUES ({order}, 3, 4)")
            until(partial(shows, shop, COUNT))
            if "incremental" in strategies:
                break
        assert "incremental" in strategies, "it goes on with the kept rows"
        over = "SELECT n, COUNT(*) AS customers FROM v GROUP BY n"
        until(lambda: Counter(rows(shop, "SELECT * FROM w")) == Counter(rows(shop, over)))
    state = Counter[Any]()
    writers = list[str]()
    for user, changes in changelog(shop):
        writers += [user] if writers[-1:] != [user] else []
        for (kind, row), count in changes.items():
            state[row] += count if kind in ("+I", "+U") else -count
        assert min(state.values()) >= 0
    assert +state == Counter(rows(shop, COUNT))
    assert len(writers) == 3, "each query wrote without another one in between"


def test_the_next_query_is_changed_and_withdrawn_while_it_runs(shop: Shop) -> None:
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1), (2, 2, 20)")
    shop.settle_here(replaced(COUNT))
    failing = "SELECT customer_id, CAST(CONCAT('x', CAST(n AS STRING)) AS BIGINT) AS n FROM ({})"
    printed = CollectedOutput()
    with shop.running_here(replaced(COUNT), printed=printed) as until:
        until(lambda: len(rows(shop, "SELECT * FROM v")) == 2)
        shop.do(f"ALTER MATERIALIZED VIEW v AS {failing.format(COUNT)}")
        until(lambda: any("the new query has failed" in line for line in printed.lines))
        shop.do("INSERT INTO orders VALUES (3, 2, 5)")
        until(partial(shows, shop, COUNT))
        shop.do("ALTER MATERIALIZED VIEW v ROLLBACK")
        for query in (MOST, SUM, MOST):
            shop.do(f"ALTER MATERIALIZED VIEW v AS {query}; ALTER MATERIALIZED VIEW v ROLLBACK")
        with pytest.raises(StreamhouseError, match="pipeline that runs it"):
            shop.do(f"ALTER MATERIALIZED VIEW v AS {SUM}; ALTER MATERIALIZED VIEW v REFRESH")
        until(lambda: any("has taken over" in line for line in printed.lines))
        until(partial(shows, shop, SUM))
        shop.do("ALTER MATERIALIZED VIEW v ROLLBACK")
        until(partial(shows, shop, COUNT))
        until(lambda: shop.warehouse.tables("default") == ["orders", "v"])
    check(shop, COUNT)


_FILTERS = ("price > 1", "price IS NOT NULL", "customer_id <> 2", "id % 3 <> 0")
_VALUES = ("COUNT(*)", "SUM(price)", "MAX(price)", "MIN(id) + MAX(price)", "COUNT(DISTINCT price)")


def _query(rng: random.Random) -> str:
    names = rng.sample(("n", "m", "k"), rng.randint(1, 3))
    values = ", ".join(f"CAST({rng.choice(_VALUES)} AS BIGINT) AS {name}" for name in names)
    where = f" WHERE {rng.choice(_FILTERS)}" if rng.random() < 0.5 else ""
    return f"SELECT customer_id, {values} FROM orders{where} GROUP BY customer_id"


def _change(rng: random.Random) -> str:
    made = ", ".join(
        f"({rng.randint(0, 12)}, {rng.choice(('CAST(NULL AS INT)', '1', '2', '3'))}, "
        f"{rng.randint(0, 4)})"
        for _ in range(rng.randint(1, 4))
    )
    return rng.choice(
        (f"INSERT INTO orders VALUES {made}",) * 3
        + (f"DELETE FROM orders WHERE id = {rng.randint(0, 12)}",)
    )


@contextmanager
def cut_off(point: str) -> Iterator[None]:
    """Let a failpoint raise a `RuntimeError`, if it is reached."""

    def fail() -> None:
        raise RuntimeError(point)

    with patch.dict(os.environ, STREAMHOUSE_FAILPOINT=point), patch.object(failpoint, "_die", fail):
        yield


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 40))]
)
def test_histories_of_replaced_queries(shop: Shop, seed: int) -> None:
    """After each run that ends well, the view has the rows of the last query, whatever was cut off.

    Its rows are those of one query at any time: as of the change of columns, of the former one.
    """
    rng = random.Random(seed)
    strategy = f"SET 'view.refresh-strategy' = '{rng.choice(('auto', 'incremental'))}';"
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1), (2, 2, 20)")
    # Its key may be null, as that of a later query may be.
    queries = [_query(rng).replace(" WHERE customer_id <> 2", "")]
    with patch.object(incremental, "_FEW_ROWS", 0):
        shop.settle_here(strategy + replaced(queries[0]))
        for _ in range(4):
            queries.append(rng.choice((queries[-2:][0], _query(rng))))
            if rng.random() < 0.7:
                shop.do(_change(rng))
            how = rng.choice((*STEPS, "statement", "refresh", "back", ""))
            if how in STEPS:
                with suppress(RuntimeError), cut_off(f"swap-{how}:0:default.v"):
                    shop.settle_here(strategy + replaced(queries[-1]))
            elif how == "statement":
                shop.do(f"ALTER MATERIALIZED VIEW v AS {queries[-1]}")
            elif how == "refresh":
                shop.do(f"ALTER MATERIALIZED VIEW v AS {queries[-1]}")
                shop.do("ALTER MATERIALIZED VIEW v REFRESH")
                assert shows(shop, queries[-1]), queries
            elif how == "back":
                shop.do(f"ALTER MATERIALIZED VIEW v AS {_query(rng)}")
                queries.append(queries[-2])
            shop.do(_change(rng))
            shop.settle_here(strategy + replaced(queries[-1]))
            assert shows(shop, queries[-1]), (how, queries)
            shop.do(_change(rng))
            shop.settle_here(strategy + replaced(queries[-1]))
            assert shows(shop, queries[-1]), (how, queries)
    assert shop.warehouse.tables("default") == ["orders", "v"]
