"""Runs views of a small shop refresh by refresh, in the test's process, and checks each result."""

from __future__ import annotations

import datetime
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamhouse.connectors.base import WrittenBatch
from streamhouse.errors import NotStreamedError
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.batch import bounded_statements
from streamhouse.runtime.execute import execute
from streamhouse.runtime.session.ddl import define
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.result_view import KeptResult, kept_result, kept_spec
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.build import build
from streamhouse.runtime.views.planned import view_spec
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.refresh import refresh
from streamhouse.runtime.views.spec import Strategy, ViewSpec
from streamhouse.runtime.views.task import RefreshTask
from streamhouse.source import ROW_KIND, Offset
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Insert, Select

TABLES = """
CREATE DATABASE IF NOT EXISTS shop;
USE shop;
CREATE TABLE IF NOT EXISTS orders (
  id INT PRIMARY KEY NOT ENFORCED, customer_id INT, product STRING, amount INT,
  price DECIMAL(10, 2), rate DOUBLE, at_ TIMESTAMP(3), tags ARRAY<STRING>
) WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS customers (
  id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING, vip BOOLEAN
) WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS visits (customer_id INT, page STRING, seconds INT);
"""
_COUNTRIES = ("DE", "FR", "", None)
_PRODUCTS = ("pen", "ink", None, "PEN")
_ORDER = "id, customer_id, product, amount, price, rate, at_, tags"


class ViewSession:
    """A warehouse with the tables of `TABLES`, and views over them."""

    def __init__(self, folder: Path, strategy: Strategy = "recompute") -> None:
        """`strategy`: how views are refreshed; incremental refreshes keep rows beside `folder`."""
        self.folder, self._strategy = folder, strategy
        self.batches: dict[str, ViewBatches] = {}
        self.warehouse = {"warehouse": str(folder)}
        folder.mkdir(exist_ok=True)
        self.execute(TABLES)
        self.restart()

    def restart(self) -> None:
        """Start a new session, as a script that is run again does."""
        self.session = Session(self.warehouse)
        self.session.notice = lambda text: None
        self.run("USE shop")

    def execute(self, sql: str) -> None:
        """Run bounded statements."""
        execute(self.warehouse, sql if "USE" in sql else f"USE shop; {sql}")

    def run(self, sql: str) -> Any:
        """Run a definition in the session; returns its statement."""
        (statement,) = parse_script(sql)
        assert define(self.session, statement)
        return statement

    def view(self, name: str, query: str) -> ViewPlan:
        """Create a view; returns its plan."""
        self.run(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        return self._plan(name)

    def refresh(self, name: str) -> int:
        """Refresh a view; returns the number of changes."""
        if self._strategy == "recompute":
            return refresh(self.spec(name)).total()
        if name not in self.batches:
            self.batches[name] = ViewBatches(self, name, self.folder.parent, self._strategy)
        return self.batches[name].refresh()

    def spec(self, name: str) -> ViewSpec:
        """The specification of a view's query."""
        session = self.session
        return view_spec(session, session.table((name,)), self._plan(name))

    def appended(self, name: str, query: str) -> ViewSpec:
        """The specification of an INSERT of a query into a new table without a key."""
        self.execute(f"CREATE TABLE {name} AS SELECT * FROM ({query}) WHERE FALSE")
        (statement,) = parse_script(f"INSERT INTO {name} {query}")
        assert isinstance(statement, Insert)
        target = self.session.table((name,))
        kept = kept_result(self.session, statement, target, NotStreamedError("it joins"))
        assert isinstance(kept, KeptResult)
        return kept_spec(self.session, statement, target, kept)

    def _plan(self, name: str) -> ViewPlan:
        return self.session.materialized.defined(self.session.full((name,))).plan

    def rows(self, query: str) -> Counter[Any]:
        """The rows of a bounded query as a multiset."""
        return bag(self.exact_rows(query))

    def exact_rows(self, query: str) -> list[list[Any]]:
        """The rows of a bounded query."""
        (statement,) = parse_script(query)
        assert isinstance(statement, Select)
        with bounded_statements.select(self.session, statement.query) as reader:
            return [list(row.values()) for row in reader.read_all().to_pylist()]

    def replayed(self, name: str) -> Counter[Any]:
        """The rows that the changelog of a view's table adds up to; counts are never negative."""
        table = Warehouse(self.warehouse).table(f"shop.{name}")
        rows: Counter[Any] = Counter()
        for number in range(1, (table.latest_snapshot_id() or 0) + 1):
            splits = table.changes(number - 1, number, "changelog")
            for batch in table.read(splits=splits, row_kind=True):
                for row in batch.to_pylist():
                    kind = row.pop(ROW_KIND)
                    row.pop("_view_key", None)
                    key = _frozen(list(row.values()))
                    rows[key] += 1 if kind in ("+I", "+U") else -1
                    assert rows[key] >= 0 or kind == "-U", (kind, row)
        return +rows

    def check(self, name: str, query: str) -> None:
        """Assert that a view has the rows of its query, and that its changelog gives them."""
        expected, actual = self.rows(query), self.rows(f"SELECT * FROM {name}")
        assert actual == expected, (
            f"{query}\nmissing {expected - actual}\nextra {actual - expected}"
        )
        assert self.replayed(name) == expected, query


class ViewBatches:
    """Refreshes a view batch by batch, as its continuous query does, with what it keeps."""

    def __init__(
        self,
        session: ViewSession,
        name: str,
        folder: Path,
        strategy: Strategy,
        spec: ViewSpec | None = None,
    ) -> None:
        """`spec`: by default that of the view `name`."""
        self.state = folder / name / "state"
        self.state.mkdir(parents=True)
        query_id = str(uuid.uuid4())
        spec = spec or session.spec(name)
        self.spec = replace(spec, query_id=query_id, state=str(self.state), strategy=strategy)
        self.offset: Offset = {}
        self.strategies: Counter[str] = Counter()
        """How the view was refreshed, by number of refreshes."""
        self.builds_late: Callable[[], bool] = lambda: False
        """Whether what the view keeps is computed after a later batch, not after this one."""
        self._wanted: list[Offset] = []

    def refresh(self, killed: str = "") -> int:
        """Run the next batch; returns the number of changes.

        `killed`: the driver is killed "before" or "after" the commit, so the batch runs again.
        """
        end = ViewPlanner(self.spec).latest_offset(self.offset)
        if end == self.offset:
            return 0
        for again in [True, False] if killed else [False]:
            task = RefreshTask(self.spec, TaskInput(0, self.offset, end))
            messages = [bytes(message) for message in task.write()]
            if killed == "before" and again:
                continue
            self._commit(WrittenBatch(int(end["batch"]), messages))
        self.strategies[task.strategy] += 1
        self.offset = json.loads(json.dumps(end))
        wanted = self._wanted or ([self.offset] if task.stale else [])
        self._wanted = wanted if self.builds_late() else []
        for offset in wanted[len(self._wanted) :]:
            build(self.spec, offset)
        return task.changes.total()

    def _commit(self, batch: WrittenBatch) -> None:
        committer = self.spec.open_sink().committer(self.spec.query_id)
        committer.commit(lambda: batch, lambda: None)


def bag(rows: Sequence[Any]) -> Counter[Any]:
    """Rows as a multiset; doubles rounded to 12 digits, since threads add them in any order."""
    return Counter(map(_frozen, rows))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _frozen(part)) for key, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if not isinstance(value, float):
        return value
    return "NaN" if value != value else float(f"{value:.12g}")


def change(rng: random.Random, round_number: int) -> str:
    """Statements that insert, update and delete rows of all tables."""
    statements = []
    for _ in range(rng.randint(1, 4)):
        values = [_order(rng) for _ in range(rng.randint(1, 3))]
        statements.append(f"INSERT INTO orders ({_ORDER}) VALUES {', '.join(values)}")
    if rng.random() < 0.7:
        statements.append(f"INSERT INTO customers VALUES {_customer(rng)}, {_customer(rng)}")
    if rng.random() < 0.6:
        rows = [f"({rng.randint(0, 5)}, '{rng.choice('ab')}', {rng.randint(0, 9)})" for _ in "ab"]
        statements.append(f"INSERT INTO visits VALUES {', '.join(rows)}")
    if round_number and rng.random() < 0.5:
        statements.append(f"DELETE FROM orders WHERE id % 4 = {rng.randint(0, 3)}")
    if round_number and rng.random() < 0.4:
        statements.append(f"DELETE FROM customers WHERE id = {rng.randint(0, 5)}")
    if round_number and rng.random() < 0.3:
        country = _text(rng.choice(_COUNTRIES))
        statements.append(f"UPDATE customers SET country = {country} WHERE id < 3")
    if round_number and rng.random() < 0.1:
        statements.append(f"TRUNCATE TABLE {rng.choice(('orders', 'customers', 'visits'))}")
    return "; ".join(statements)


def _order(rng: random.Random) -> str:
    at = datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=rng.randint(0, 60))
    customer = rng.choice(("CAST(NULL AS INT)", *map(str, range(5))))
    amount = rng.choice(("CAST(NULL AS INT)", "-2147483648", "0", "1", "2", "2147483647"))
    tags = rng.choice(("ARRAY['a', 'b']", "ARRAY['b']", "CAST(NULL AS ARRAY<STRING>)"))
    return (
        f"({rng.randint(0, 15)}, {customer}, {_text(rng.choice(_PRODUCTS))}, {amount}, "
        f"{rng.randint(-500, 500) / 100:.2f}, {rng.randint(-40, 40) / 8}, TIMESTAMP '{at}', {tags})"
    )


def _customer(rng: random.Random) -> str:
    country = _text(rng.choice(_COUNTRIES))
    vip = rng.choice(("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"))
    return f"({rng.randint(0, 5)}, '{rng.choice('xyz')}', {country}, {vip})"


def _text(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else f"'{value}'"
