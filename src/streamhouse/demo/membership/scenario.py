"""Sets up the membership demo: the business in a MariaDB, the four layers, their verification."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamhouse.demo.driver import Check
from streamhouse.demo.latency import Latencies, SnapshotClock
from streamhouse.demo.membership.business import DATABASE, DESK, Business
from streamhouse.demo.membership.expected_results import EXPECTED, ResultComparison
from streamhouse.demo.scenario import FIRST_SECONDS, DemoScenario, ScriptedSteps, equality
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.state.lineage import SUFFIX

if TYPE_CHECKING:
    from streamhouse.demo.membership.steps import MembershipChanges


LAYERS = ("ods.sql", "dwd.sql", "dws.sql", "app.sql")
SPRINT_BOARD, MEMBER_BOARD = "membership.app_sprint_board", "membership.app_member_board"
_PORT = "'port' = '3306'"
_SHOWN_S = 30.0
"""How long the board may take to show the last orders."""
_FIRST_ORDERS = 5_000


class Membership(DemoScenario):
    """Four layers of tables over the orders of a business, and two boards."""

    title = "membership, live"
    starting = "starting Spark and the four layers"
    result = "board"
    verification = "recomputing all results from ODS and from MySQL"
    boards = (SPRINT_BOARD, MEMBER_BOARD)
    counted = "changes in MySQL"
    measured = "MySQL to board"
    max_messages = 5
    drained = True
    catch_up_s = 300.0

    def __init__(
        self,
        folder: Path,
        changes_per_second: int,
        seed: int = 1,
        warehouse: str | None = None,
    ) -> None:
        super().__init__(folder, warehouse, LAYERS)
        self.business = Business(self.mariadb, changes_per_second, seed)
        self.probes = FreshnessProbe(self.business, FIRST_SECONDS)
        self.ages = self.probes.ages

    def _prepare(self) -> None:
        self.business.create(_FIRST_ORDERS)
        for path in self.scripts:
            text = (Path(__file__).parent / path.name).read_text()
            path.write_text(text.replace(_PORT, f"'port' = '{self.mariadb.port}'"))

    def _begin_measuring(self) -> SnapshotClock:
        return SnapshotClock(self.view, self.probes.committed)

    def _close(self) -> None:
        self.business.stop()

    def introduction(self) -> str:
        """What the demo runs."""
        return (
            f"MariaDB runs on port {self.mariadb.port}; the demo will insert, correct "
            "and cancel orders of members there, some of them late."
        )

    def raise_if_failed(self) -> None:
        """Raise the error of the pipeline or of the business, if one has failed."""
        super().raise_if_failed()
        self.business.raise_if_failed()

    def progress(self) -> str:
        """A part of a progress message: the changes, and the freshness of the last orders."""
        return f"{self.business.changes:,} changes, {super().progress()}"

    def begin(self, seconds: float | None) -> MembershipChanges:
        """Start the business; returns the scripted changes."""
        from streamhouse.demo.membership.steps import MembershipChanges

        self.business.start()
        return MembershipChanges(self)

    def end(self) -> None:
        """Stop the business."""
        self.business.stop()

    def end_measuring(self, check: Check) -> None:
        """Stop the business, and wait until the board shows all orders of the desk.

        So no restart is measured.
        """
        self.end()
        deadline = time.monotonic() + _SHOWN_S
        while self.probes.waiting and time.monotonic() < deadline:
            check()
            self.driver.raise_if_failed()
            time.sleep(0.05)
        self.probes.stop()

    def count(self) -> int:
        """The changes in MySQL."""
        return self.business.changes

    def lag(self, count: int, rows: pa.Table | None) -> str:
        """The orders of the desk that the board does not show yet."""
        return f"{self.probes.waiting:,} of the desk's orders"

    def verdict(self) -> list[str]:
        """Whether all tables are as ODS and MySQL give them."""
        proofs = self.proofs()
        return [
            f"{proofs['orders']:,} orders; DWS and APP are {equality(proofs['equal'])} to batch "
            f"queries over ODS and over MySQL, and {equality(proofs['audited'])} by `streamhouse "
            "audit`",
            *(f"  [red]{wrong}[/red]" for wrong in proofs["wrong"]),
        ]

    def report(self, changes: ScriptedSteps) -> dict[str, Any]:
        """The demo's own part of what `streamhouse demo membership --json` prints."""
        return {
            **self.proofs(),
            "changes": self.business.changes,
            "queries": self.queries,
            "act_ok": changes.succeeded,
            "freshness_ms": self.probes.ages.percentiles(),
        }

    @property
    def queries(self) -> int:
        """How many continuous queries have committed, by the tables of their lineage."""
        return sum(name.endswith(f"__{SUFFIX}") for name in self.warehouse.tables(DATABASE))

    def proofs(self) -> dict[str, Any]:
        """Verify that all tables are as they should be; exact only while nothing changes.

        `equal`: DWS and APP equal the results computed from ODS and from MySQL. `audited`:
        `streamhouse audit` finds each table that is computed from others equal.
        """
        comparison = ResultComparison(self.warehouse, self.mariadb)
        ods, mysql = comparison.orders()
        compared = comparison.compare()
        audits = {
            name: audit(self.warehouse.options, f"{DATABASE}.{name}").equal
            for name in ("dwd_member_order", *EXPECTED)
        }
        wrong = [
            f"{result.table} against {result.against}" for result in compared if not result.equal
        ]
        wrong += [f"{name} audited" for name, equal in audits.items() if not equal]
        if ods != mysql:
            wrong.append(f"ods_member_order: {ods} orders, should be {mysql}")
        return {
            "orders": ods,
            "equal": ods == mysql and all(result.equal for result in compared),
            "audited": all(audits.values()),
            "compared": len(compared) + len(audits) + 1,
            "wrong": wrong,
        }


_RECENT_COMMITS = 50
_FILTER = {"method": "equal", "field": "agent_id", "literals": [DESK]}


class FreshnessProbe:
    """Reads each new snapshot of the board, and measures each order of the desk once.

    The desk's orders never change, and arrive in the order of their commits: a board that shows n
    of them shows the first n. Orders from before the start do not count; `skip_s`: see `Latencies`.
    """

    def __init__(self, business: Business, skip_s: float = 0.0) -> None:
        self._business = business
        self._displayed = 0
        self._stopped = False
        self.ages = Latencies(skip_s, _RECENT_COMMITS)

    @property
    def waiting(self) -> int:
        """The number of the desk's orders that MySQL has and the board does not show yet."""
        return len(self._business.desk_ms) - self._displayed

    def stop(self) -> None:
        """Orders that the board shows from now on do not count."""
        self._stopped = True

    def committed(self, board: Table, snapshot: int, at_s: float) -> None:
        """Measure the orders that a snapshot, which could be read at a time, has more."""
        for batch in board.read(["agent_id", "orders"], snapshot=snapshot, filter=_FILTER):
            for row in batch.to_pylist():
                if row["agent_id"] == DESK and not self._stopped:
                    self._take(int(row["orders"] or 0), at_s * 1000)

    def _take(self, displayed: int, now_ms: float) -> None:
        made = self._business.desk_ms[self._displayed : displayed]
        if made:
            self._displayed += len(made)
            self.ages.add(np.array(made), now_ms)
