"""Sets up the revenue demo: a MariaDB with customers, the pipeline, and its measurements."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from streamhouse.demo.driver import Check, Driver
from streamhouse.demo.folder import Folder
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.demo.revenue.freshness import Freshness, SnapshotClock
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.audit.audit import Audit, audit
from streamhouse.runtime.execute import execute

if TYPE_CHECKING:
    from streamhouse.demo.kafka.orders import KafkaOrders

VIEW, ORDERS, CUSTOMERS = "shop.country_sales", "shop.orders", "shop.customers"
UNMATCHED = f"{VIEW}__unmatched"
NO_END = 9_000_000_000_000_000_000
FIRST_SECONDS = 15.0
_CATCH_UP_S = 180.0
_MEMORY_EVERY_S = 3.0
_MEMORY_REST = 20
"""The least pause between two measurements, as a multiple of the time that one takes: the system
walks through all memory of a process to compute its share, which may take long."""
_WRITER = "writer"
"""The user of the job that fills MySQL; `USER`, who follows the changes, cannot write."""
_MYSQL = (
    "DROP DATABASE IF EXISTS shop",
    "CREATE DATABASE shop",
    "CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(100), country VARCHAR(100), "
    "zip VARCHAR(20))",
    f"CREATE USER IF NOT EXISTS '{_WRITER}'@'%' IDENTIFIED BY '{PASSWORD}'",
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO '{_WRITER}'@'%'",
)
_GENERATOR = re.compile(r"CREATE TEMPORARY TABLE order_generator \(.*?\n\);\n", re.DOTALL)
"""The orders in `revenue.sql`, which `kafka_orders.sql` replaces."""
MOVE = "UPDATE customers SET country = 'China' WHERE id = 7"
SANTA = "INSERT INTO customers VALUES (11, 'Santa', 'North Pole', '000001')"


class Scenario:
    """Starts and stops all processes of a demo in one folder; the tables stay there."""

    def __init__(
        self,
        folder: Path,
        orders_per_second: int,
        warehouse: str | None = None,
        with_kafka: bool = False,
    ) -> None:
        """`with_kafka`: orders come from a Kafka broker of its own instead of `datagen`."""
        self._own = Folder(folder, warehouse)
        self.folder = self._own.path
        self.orders_per_second = orders_per_second
        self.warehouse = self._own.warehouse
        self.view = TableAddress(Warehouse(self.warehouse).options, VIEW)
        self.mariadb = MariaDB(self.folder / "mariadb")
        scripts = [self.folder / "revenue.sql"]
        self.driver = Driver(scripts, self._own.run_arguments, self._own.log)
        self._filled = False
        self.kafka: KafkaOrders | None = None
        if with_kafka:
            from streamhouse.demo.kafka.orders import KafkaOrders

            self.kafka = KafkaOrders(self.folder / "kafka", orders_per_second)

    def __enter__(self) -> Scenario:
        self._own.claim()
        try:
            self.mariadb.start()
            self.mariadb.execute(*_MYSQL)
            if self.kafka is not None:
                self.kafka.open()
        except BaseException:
            self.__exit__()
            raise
        self.clock = SnapshotClock(self.view)
        self.freshness = Freshness(self.view, self.clock, "order_time", FIRST_SECONDS)
        return self

    def __exit__(self, *exception: object) -> None:
        self.driver.kill()
        if hasattr(self, "clock"):
            self.clock.stop()
        if self.kafka is not None:
            self.kafka.close()
        self.mariadb.stop()
        self._own.release()

    def start(self) -> None:
        """Start the pipeline, or start it again; meanwhile the first time, fill MySQL."""
        self._write_script(NO_END)
        self.driver.start()
        if self.kafka is not None:
            self.kafka.begin()
        if not self._filled:
            self.fill_customers()

    def drain(self, check: Check | None = None) -> None:
        """Run the pipeline once more without new orders, until it has caught up."""
        if self.kafka is not None:
            self.kafka.end()
        self._write_script(1)
        self.driver.start("--until-caught-up")
        self.driver.wait(_CATCH_UP_S, check)

    def execute(self, statement: str) -> None:
        """Run a statement in MySQL."""
        self.mariadb.execute(statement, database="shop")

    def rows(self, table: str) -> int:
        """How many rows a table has; 0 while it does not exist."""
        try:
            opened = Warehouse(self.warehouse).table(table)
        except TableError:
            return 0
        latest = opened.latest_snapshot_id()
        return 0 if latest is None else opened.snapshot(latest).total_record_count or 0

    def audit(self) -> Audit:
        """Audit the view."""
        return audit(self.view.warehouse, VIEW)

    def fill_customers(self) -> None:
        """Run the job that fills `customers` in MySQL."""
        path = self._write("customers.sql", username=_WRITER)
        execute(self.warehouse, path.read_text())
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


class Killable(Protocol):
    """A pipeline that `Kills` can kill and restart, with the clock of its view's snapshots."""

    driver: Driver
    clock: SnapshotClock

    def start(self) -> None:
        """Start the pipeline again."""


@dataclass
class Kills:
    """SIGKILLs the driver repeatedly, each time about `every_s` seconds after it has recovered.

    Halfway between two kills it kills only the Java sidecar, if one runs.
    """

    every_s: float
    times: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    sidecars: int = 0
    _next: float | None = None
    _sidecar: float = 0.0

    def step(self, scenario: Killable) -> str | None:
        """Kill and restart if it is time; returns a message for the user, if any."""
        if len(self.recoveries) < len(self.times):
            recovered = scenario.clock.first_after(self.times[-1])
            if recovered is None:
                return None
            self.recoveries.append(recovered - self.times[-1])
            self._next = None
        now = time.time()
        if self._next is None:
            if scenario.clock.first_after(0) is not None:
                pause = self.every_s * random.uniform(0.75, 1.25)
                self._next, self._sidecar = now + pause, now + pause / 2
            return None
        if now >= self._next:
            self.times.append(now)
            scenario.driver.kill()
            scenario.start()
            return f"SIGKILL number {len(self.times)}: restarting the driver"
        if now >= self._sidecar:
            self._sidecar = self._next
            if scenario.driver.kill_sidecar():
                self.sidecars += 1
                return f"SIGKILL number {self.sidecars} of the Java sidecar"
        return None


class PeakMemory:
    """The peak memory of this process and its descendants, in MiB; measured by a thread.

    Memory that processes share, such as libraries and unchanged pages after a fork, counts once.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._stopped.set()
        self._thread.join(5)
        return self.peak_mb

    def _run(self) -> None:
        me = psutil.Process()
        pause = _MEMORY_EVERY_S
        while not self._stopped.wait(pause):
            began, total = time.monotonic(), 0
            for process in [me, *me.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    total += _memory(process)
            self.peak_mb = max(self.peak_mb, total / 2**20)
            pause = max(_MEMORY_EVERY_S, _MEMORY_REST * (time.monotonic() - began))


def _memory(process: psutil.Process) -> int:
    """A process's memory in bytes, with its share of shared pages (PSS); else its RSS."""
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


def report(
    scenario: Scenario, kills: Kills | None, merge_ok: bool, peak_mb: float
) -> dict[str, Any]:
    """The object that `streamhouse demo --json` prints."""
    scenario.freshness.update()
    result = scenario.audit()
    return {
        "orders": scenario.rows(ORDERS),
        "matched": scenario.freshness.rows,
        "unmatched": scenario.rows(UNMATCHED),
        "equal": result.equal,
        "proved_from_snapshot": result.from_snapshot,
        "merge_ok": merge_ok,
        "freshness_ms": scenario.freshness.percentiles(),
        "restarts": len(kills.times) if kills else 0,
        "sidecar_kills": kills.sidecars if kills else 0,
        "recovery_s": round(max(kills.recoveries), 2) if kills and kills.recoveries else None,
        "peak_rss_mb": round(peak_mb),
        **({} if scenario.kafka is None else {"produced": scenario.kafka.produced}),
    }
