"""The revenue demo: a MariaDB with customers, the pipeline, its changes and measurements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamhouse.demo.driver import Check
from streamhouse.demo.latency import Latencies, SnapshotClock
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.demo.scenario import NO_END, DemoScenario, ScriptedSteps, equality
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.audit.recompute import Recomputation, WaitingRows
from streamhouse.runtime.audit.recorded_batches import RecordedBatches
from streamhouse.runtime.audit.row_differences import Audit
from streamhouse.runtime.execute import execute

if TYPE_CHECKING:
    from streamhouse.demo.kafka.broker import KafkaOrders


VIEW, ORDERS, CUSTOMERS = "shop.country_sales", "shop.orders", "shop.customers"
UNMATCHED = f"{VIEW}__unmatched"
_WRITER = "writer"
"""The user of the job that fills MySQL."""
_GENERATOR = re.compile(r"CREATE TEMPORARY TABLE order_generator \(.*?\n\);\n", re.DOTALL)
"""The orders in `revenue.sql`, which `kafka_orders.sql` replaces."""
MOVE = "UPDATE customers SET country = 'China' WHERE id = 7"
SANTA = "INSERT INTO customers VALUES (11, 'Santa', 'North Pole', '000001')"


OLD, NEW, EMPTY = "France", "China", "North Pole"
_MOVE_S, _SANTA_S = 20.0, 40.0
_MERGE = Path(__file__).parent / "merge.sql"


class Scenario(DemoScenario):
    """The view of revenue per country; `with_kafka`: orders come from a Kafka broker of its own."""

    title = "revenue per country, live"
    starting = "starting Spark and the queries"
    verification = "recomputing the view from its orders"
    boards = (VIEW,)
    counted = "orders"
    measured = "order to view"

    def __init__(
        self,
        folder: Path,
        orders_per_second: int,
        warehouse: str | None = None,
        with_kafka: bool = False,
    ) -> None:
        super().__init__(folder, warehouse, ("revenue.sql",))
        self.orders_per_second = orders_per_second
        self.mariadb = MariaDB(self.folder / "mariadb")
        self._filled = False
        self._freshness = Freshness(self.view, self.ages)
        self.kafka: KafkaOrders | None = None
        if with_kafka:
            from streamhouse.demo.kafka.broker import KafkaOrders

            self.kafka = KafkaOrders(self.folder / "kafka", orders_per_second)

    def _prepare(self) -> None:
        self.servers.enter_context(self.mariadb)
        script = Path(__file__).parent / "shop.sql"
        self.mariadb.run(script, writer=_WRITER, password=PASSWORD)
        if self.kafka is not None:
            self.kafka.open()

    def _close(self) -> None:
        if self.kafka is not None:
            self.kafka.close()

    def introduction(self) -> str:
        """What the demo runs."""
        origin = "datagen" if self.kafka is None else "a producer for its Kafka broker"
        return (
            f"MariaDB runs on port {self.mariadb.port} with 10 customers; "
            f"{origin} will generate {self.orders_per_second:,} orders per second."
        )

    def start(self) -> None:
        """Start the pipeline, or start it again; meanwhile the first time, fill MySQL."""
        self._write_script(NO_END)
        super().start()
        if self.kafka is not None:
            self.kafka.begin()
        if not self._filled:
            self.fill_customers()

    def drain(self, check: Check | None = None) -> None:
        """Run the pipeline once more without new orders, until it has caught up."""
        if self.kafka is not None:
            self.kafka.end()
        self._write_script(1)
        super().drain(check)

    def update_ages(self) -> None:
        """Add what the lineage of the view has by now."""
        self._freshness.update(self.clock)

    def begin(self, seconds: float | None) -> RevenueChanges:
        """The scripted changes of a run of so many seconds."""
        return RevenueChanges(self, seconds)

    def count(self) -> int:
        """The orders that have been read."""
        return self.rows(ORDERS)

    def lag(self) -> str:
        """The orders that the view does not count yet."""
        return f"{max(0, self.count() - self.total(VIEW, 'orders')):,} orders"

    def verdict(self) -> list[str]:
        """Whether the view is what its orders give."""
        result = self.audit()
        return [
            f"audit: the view is {equality(result.equal)} to a batch recomputation from "
            f"{result.joined_rows:,} orders ({self.rows(UNMATCHED):,} without a customer)"
        ]

    def execute(self, statement: str) -> None:
        """Run a statement in MySQL."""
        self.mariadb.execute(statement, database="shop")

    def audit(self) -> Audit:
        """Audit the view."""
        return audit(self.view.warehouse, VIEW)

    def report(self, changes: ScriptedSteps) -> dict[str, Any]:
        """The demo's own part of what `streamhouse demo --json` prints."""
        self.update_ages()
        result = self.audit()
        return {
            "orders": self.rows(ORDERS),
            "matched": self._freshness.rows,
            "unmatched": self.rows(UNMATCHED),
            "equal": result.equal,
            "proved_from_snapshot": result.from_snapshot,
            "merge_ok": changes.succeeded,
            **({} if self.kafka is None else {"produced": self.kafka.produced}),
        }

    def fill_customers(self) -> None:
        """Run the job that fills `customers` in MySQL."""
        path = self._write("customers.sql", username=_WRITER)
        execute(self.warehouse.path, path.read_text())
        self._filled = True

    def _write_script(self, orders: int) -> None:
        self._write(
            "revenue.sql", username=USER, orders_per_second=self.orders_per_second, orders=orders
        )

    def _write(self, name: str, **values: object) -> Path:
        """Write a script into the demo's folder, with these values and those of the server."""
        here = Path(__file__).parent
        text = (here / name).read_text()
        if self.kafka is not None:
            orders = (here / "kafka_orders.sql").read_text()
            values = {**values, "servers": self.kafka.servers}
            text = _GENERATOR.sub(lambda _: orders, text)
        template = Template(text)
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(template.substitute(port=self.mariadb.port, password=PASSWORD, **values))
        return path


_TIME = "order_time"
"""The column with the time at which an order was made (UTC)."""


class Freshness:
    """Adds the ages of orders when the view shows them, from its lineage and a `SnapshotClock`.

    Orders that waited for their lookup count when they are joined.
    """

    def __init__(self, address: TableAddress, ages: Latencies) -> None:
        self._address, self._ages = address, ages
        self._done: dict[str, int] = {}
        self._waiting: dict[str, WaitingRows | None] = {}
        """The rows of each query that wait after the batch that `_done` has."""
        self.rows = 0
        """How many rows the view includes according to its lineage; each has been recomputed."""

    def update(self, clock: SnapshotClock) -> None:
        """Add the lineage's new batches."""
        try:
            recorded = RecordedBatches.read(self._address, self._done)
        except TableError:
            # There is no batch yet.
            return
        for user, batches in recorded.of_query.items():
            past = Recomputation(recorded, self._waiting.get(user))
            for step in past.steps(batches, grouped=False):
                self._done[user], self._waiting[user] = step.last.number, past.waiting
                self.rows += step.hits.num_rows
                seen = clock.seen_ms(user, step.last.number)
                if seen is not None and step.hits.num_rows:
                    times = step.hits.column(_TIME).cast(pa.timestamp("ms")).cast(pa.int64())
                    self._ages.add(times.to_numpy().astype(np.float64), seen)


class RevenueChanges(ScriptedSteps):
    """Moves a customer, adds Santa, and merges the countries into the view.

    Each step waits until the view shows the one before it, so that the result is the same whenever
    the driver is killed: once an order has counted for China, none can count for France any more.
    """

    def __init__(self, scenario: Scenario, seconds: float | None) -> None:
        super().__init__(scenario)
        whole = float("inf") if seconds is None else seconds
        self._execute = scenario.execute
        self._move_s = min(_MOVE_S, whole * 0.25)
        self._santa_s = min(_SANTA_S, whole * 0.5)

    @property
    def succeeded(self) -> bool:
        """Whether the merge had the expected effect, and later orders have not undone it."""
        rows = self._view()
        empty = rows.get(EMPTY)
        return (
            self.done
            and empty is not None
            and (empty["orders"], empty["revenue"]) == (0, 0)
            and OLD not in rows
            and rows.get(NEW, {}).get("orders", 0) > 0
        )

    def _run_steps(self) -> Iterator[str | None]:
        yield from self._pause(self._move_s, self._started)
        self._execute(MOVE)
        yield f"in MySQL: {MOVE} — new orders of this customer count for {NEW}"
        yield from self._pause(self._santa_s, self._started)
        yield from self._until(lambda: NEW in self._view(), f"{NEW} to appear in the view")
        self._execute(SANTA)
        yield f"in MySQL: {SANTA}"
        yield from self._until(
            lambda: any(row["id"] == 11 for row in self._rows(CUSTOMERS)),
            "Santa to reach the warehouse",
        )
        yield "MERGE INTO country_sales: inserts all countries of customers, deletes others"
        yield from self._run("run", str(_MERGE))
        self.done = self.followed = True
        yield f"merged: added {EMPTY} with 0, and deleted {OLD}, where no customer lives any more"

    def _view(self) -> dict[str, dict[str, Any]]:
        return {row["country"]: row for row in self._rows(VIEW)}
