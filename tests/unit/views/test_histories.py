"""Views have the rows of their queries whatever changes between two runs of their script."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pypaimon import CatalogFactory
from tests.unit.views.generated_queries import Generator
from tests.unit.views.view_session import TABLES, ViewBatches, ViewSession, bag, change

from streamhouse import procedures
from streamhouse.errors import SchemaChangeError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.views import incremental
from streamhouse.runtime.views.spec import Strategy
from streamhouse.runtime.views.staged.planning import task_count

_QUERIES = {
    "filtered": "SELECT id, customer_id, amount FROM recent",
    "joined": "SELECT c.country, r.customer_id, COUNT(*) AS n, SUM(r.price) AS s FROM recent r "
    "LEFT JOIN customers c ON c.id = r.customer_id GROUP BY c.country, r.customer_id",
    "names": "SELECT name, country FROM customers WHERE id NOT IN (SELECT customer_id FROM visits)",
}
_RECENT = "CREATE OR REPLACE VIEW recent AS SELECT * FROM orders WHERE amount {test}"
_TESTS = ("> 0", "< 2", "IS NOT NULL", "IS DISTINCT FROM 1")
_STRATEGIES: tuple[Strategy, ...] = ("incremental", "incremental", "auto", "recompute")


class History:
    """A warehouse whose tables, views and files change between the runs of a script."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._rng, self._folder = random.Random(seed), folder
        self.session = ViewSession(folder / "warehouse")
        generated = Generator(seed * 1_000)
        self.queries = _QUERIES | {f"generated{n}": generated.query() for n in range(2)}
        self._recent = _RECENT.format(test=_TESTS[0])
        self._round = 0
        self.session.run(self._recent)
        for name, query in self.queries.items():
            self.session.view(name, query)
        self.views = {
            name: ViewBatches(self.session, name, folder, "incremental") for name in self.queries
        }

    def run(self, killed: bool) -> None:
        """Refresh all views once or twice, with changes of rows in between."""
        for _ in range(self._rng.randint(1, 2)):
            self.session.execute(change(self._rng, self._round))
            self._round += 1
            for name, query in self.queries.items():
                end = self._rng.choice(("", "before", "after")) if killed else ""
                self.views[name].refresh(end)
                self.session.check(name, query)

    def restart(self) -> None:
        """Start the script again, with another strategy."""
        self.session.restart()
        self.session.run(self._recent)
        for name, query in self.queries.items():
            self.session.run(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}")
            strategy = self._rng.choice(_STRATEGIES)
            view, spec = self.views[name], self.session.spec(name)
            view.spec = replace(
                spec, query_id=view.spec.query_id, state=view.spec.state, strategy=strategy
            )

    def happen(self) -> None:
        """Change something while the script is stopped."""
        events: list[Callable[[], None]] = [
            self._swap_columns, self._new_column, self._new_table, self._other_view,
            self._roll_back, self._overwrite, self._add_and_drop, self._old_state,
        ]  # fmt: skip
        for event in self._rng.sample(events, self._rng.randint(0, 2)):
            event()

    def _swap_columns(self) -> None:
        table, one, other = self._rng.choice(
            (("orders", "customer_id", "amount"), ("customers", "name", "country"))
        )
        for before, after in ((one, "x"), (other, one), ("x", other)):
            self.session.execute(f"ALTER TABLE {table} RENAME {before} TO {after}")

    def _new_column(self) -> None:
        """A column makes way for another one of its name and type."""
        for sql in ("RENAME amount TO x", "ADD amount INT AFTER product", "DROP x"):
            self.session.execute(f"ALTER TABLE orders {sql}")

    def _add_and_drop(self) -> None:
        for sql in ("ADD x INT", "DROP x"):
            self.session.execute(f"ALTER TABLE customers {sql}")

    def _new_table(self) -> None:
        table = self._rng.choice(("orders", "customers", "visits"))
        self.session.execute(f"DROP TABLE {table}")
        self.session.execute(TABLES)

    def _other_view(self) -> None:
        self._recent = _RECENT.format(test=self._rng.choice(_TESTS))

    def _roll_back(self) -> None:
        name = f"shop.{self._rng.choice(('orders', 'customers', 'visits'))}"
        latest = Warehouse(self.session.warehouse).table(name).latest_snapshot_id()
        if latest is not None:
            table = CatalogFactory.create(dict(self.session.warehouse)).get_table(name)
            table.rollback_to(self._rng.randint(1, latest))

    def _overwrite(self) -> None:
        where = f"id > {self._rng.randint(0, 5)}"
        self.session.execute(f"INSERT OVERWRITE customers SELECT * FROM customers WHERE {where}")

    def _old_state(self) -> None:
        """The kept rows of a view are those of an older copy of its checkpoint."""
        view = self._rng.choice(list(self.views.values()))
        copy = self._folder / "copies" / view.state.parent.name
        if copy.exists() and self._rng.random() < 0.7:
            shutil.rmtree(view.state)
            shutil.copytree(copy, view.state)
        else:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(view.state, copy)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 200))]
)
def test_a_script_that_is_started_again(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "SMALL_ROWS", 0)
    monkeypatch.setattr("streamhouse.operators.trees.incremental.PART_ROWS", 3)
    history = History(seed, tmp_path)
    for number in range(4):
        history.run(killed=number > 0)
        history.happen()
        history.restart()
    history.run(killed=False)
    used = [view.strategies["incremental"] for view in history.views.values()]
    assert any(used), "no view was refreshed from changes"


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))]
)
def test_inputs_whose_schemas_change_while_a_view_runs(seed: int, tmp_path: Path) -> None:
    """Columns are added, dropped and renamed; the view goes on from changes."""
    rng, session, names = random.Random(seed), ViewSession(tmp_path / "warehouse"), {"a": "amount"}
    query = (
        "SELECT c.country, COUNT(*) AS n, SUM(o.{a}) AS s, MAX(v.seconds) AS m FROM orders o LEFT "
        "JOIN customers c ON o.customer_id = c.id LEFT JOIN visits v ON v.customer_id = c.id "
        "GROUP BY c.country"
    )
    session.execute("INSERT INTO visits VALUES (1, 'a', 1)")
    session.view("v", query.format(**names))
    view = ViewBatches(session, "v", tmp_path, "incremental")
    for number in range(9):
        if number > 1:
            table = rng.choice(("orders", "customers", "visits"))
            added = f"ALTER TABLE {table} ADD x{number} INT"
            event = rng.choice((added, f"{added}; ALTER TABLE {table} DROP x{number}", "rename"))
            if event == "rename":
                event = f"ALTER TABLE orders RENAME {names['a']} TO amount{number}"
                names["a"] = f"amount{number}"
            session.execute(event)
        values = f"({rng.randint(0, 6)}, {rng.randint(0, 3)}, {rng.randint(0, 9)})"
        session.execute(
            f"INSERT INTO orders (id, customer_id, {names['a']}) VALUES {values}; INSERT INTO "
            f"customers (id, country) VALUES ({rng.randint(0, 3)}, '{rng.choice('xy')}'); INSERT "
            f"INTO visits (customer_id, seconds) VALUES ({rng.randint(0, 3)}, {number}); DELETE "
            f"FROM orders WHERE id = {rng.randint(0, 6)}"
        )
        view.refresh()
        session.check("v", query.format(**names))
    assert view.strategies == {"incremental": 8, "recompute": 1}


def test_a_view_whose_columns_another_type_changes(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "warehouse")
    query = "SELECT id, amount / 2 AS half FROM orders"
    session.view("v", query)
    session.execute("ALTER TABLE orders MODIFY amount DOUBLE")
    session.restart()
    for prefix in ("CREATE MATERIALIZED VIEW", "CREATE MATERIALIZED VIEW IF NOT EXISTS"):
        with pytest.raises(TableError, match="CREATE OR REPLACE MATERIALIZED VIEW"):
            session.run(f"{prefix} v AS {query}")
    with pytest.raises(TableError, match="a table that it reads was altered"):
        session.spec("v")
    session.run(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
    session.execute("INSERT INTO orders (id, amount) VALUES (1, 5)")
    session.refresh("v")
    session.check("v", query)


@pytest.mark.parametrize("strategy", ["incremental", "recompute"])
def test_a_column_that_may_be_null_from_now_on(strategy: Strategy, tmp_path: Path) -> None:
    """The tree of a NOT IN was planned without regard to nulls."""
    session = ViewSession(tmp_path / "warehouse", strategy)
    session.execute(
        "CREATE TABLE a (k INT NOT NULL); CREATE TABLE b (k INT NOT NULL, r ROW<x INT> NOT NULL); "
        "INSERT INTO a VALUES (1), (3); INSERT INTO b VALUES (1, ROW(1))"
    )
    query = "SELECT k FROM a WHERE k NOT IN (SELECT k FROM b)"
    session.view("v", query)
    session.refresh("v")
    assert session.rows("SELECT * FROM v") == bag([[3]])
    session.execute("ALTER TABLE b MODIFY k INT; INSERT INTO b VALUES (CAST(NULL AS INT), ROW(2))")
    session.refresh("v")
    session.restart()
    session.check("v", query)
    if strategy == "recompute":
        return
    view = session.batches["v"]
    spec = replace(session.spec("v"), parallel_rows=1, parallelism=2, strategy="auto")
    start = view.offset | {"view": ""}
    assert task_count(spec, start, view.offset) == 2
    assert task_count(replace(spec, inputs=view.spec.inputs), start, view.offset) == 0
    # The new plan is another tree.
    view.spec = replace(view.spec, plan=spec.plan, inputs=spec.inputs)
    row = "VALUES (CAST(NULL AS INT), ROW(3))"
    for sql in ("INSERT OVERWRITE b VALUES (1, ROW(1))", f"INSERT INTO b {row}"):
        session.execute(f"{sql}; INSERT INTO a VALUES (4)")
        view.refresh()
        session.check("v", query)


def test_rows_that_a_compaction_removes(tmp_path: Path) -> None:
    session, query = ViewSession(tmp_path / "warehouse", "incremental"), "SELECT g, k FROM events"
    session.execute(
        "CREATE TABLE events (k INT PRIMARY KEY NOT ENFORCED, g INT, at_ TIMESTAMP(3)) WITH ("
        "'bucket' = '1', 'record-level.expire-time' = '1 h', 'record-level.time-field' = 'at_'); "
        "INSERT INTO events VALUES (1, 1, LOCALTIMESTAMP), (2, 1, TIMESTAMP '2020-01-01 00:00:00')"
    )
    session.view("v", query)
    session.refresh("v")
    procedures.compact(session.warehouse, "shop.events")
    assert session.rows(query) == bag([[1, 1]])
    assert session.refresh("v") == 1
    session.check("v", query)


def test_a_table_that_was_rolled_back_and_whose_snapshots_expired(tmp_path: Path) -> None:
    """A snapshot got the number of the one that was read, and only a compaction is left."""
    session, query = ViewSession(tmp_path / "warehouse", "incremental"), "SELECT id FROM customers"
    for number in (1, 2, 3):
        session.execute(f"INSERT INTO customers (id) VALUES ({number})")
    session.view("v", query)
    session.refresh("v")
    name = "shop.customers"
    procedures.rollback_to(session.warehouse, name, snapshot_id=1)
    for number in (4, 5):
        session.execute(f"INSERT INTO customers (id) VALUES ({number})")
    procedures.compact(session.warehouse, name)
    procedures.expire_snapshots(session.warehouse, name, retain_max=1, retain_min=1)
    assert Warehouse(session.warehouse).table(name).earliest_snapshot_id() == 4
    session.refresh("v")
    session.check("v", query)


@pytest.mark.parametrize(
    ("before", "after", "fits", "wide"),
    [
        ("INT", "BIGINT", "5", "3000000000"),
        ("FLOAT", "DOUBLE", "1.5", "1e300"),
        ("DECIMAL(5, 2)", "DECIMAL(10, 2)", "1.25", "12345678.25"),
        ("INT", "STRING", "'7'", "'abc'"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP '2026-01-01 00:00:00.123'",
         "TIMESTAMP '2026-01-01 00:00:00.123456'"),
    ],
)  # fmt: skip
def test_a_value_that_fits_only_the_wider_type(
    before: str, after: str, fits: str, wide: str, tmp_path: Path
) -> None:
    """The view goes on while all values fit, and never has another value."""
    session, query = ViewSession(tmp_path / "warehouse", "incremental"), "SELECT g, k FROM wide"
    session.execute(f"CREATE TABLE wide (k INT, g {before}, h INT)")
    session.view("v", f"{query} WHERE k > 0")
    session.refresh("v")
    for sql in ("MODIFY g " + after, "RENAME k TO x", "ADD k INT"):
        session.execute(f"ALTER TABLE wide {sql}")
    session.execute(f"INSERT INTO wide (x, g) VALUES (1, {fits})")
    assert session.refresh("v") == 1
    session.execute(f"INSERT INTO wide (x, g) VALUES (2, {wide})")
    with pytest.raises(SchemaChangeError, match="fit"):
        session.refresh("v")
    fitting = f"SELECT CAST(g AS {before}) AS g, x FROM wide WHERE x = 1"
    session.restart()
    assert session.rows("SELECT * FROM v") == session.rows(fitting)
