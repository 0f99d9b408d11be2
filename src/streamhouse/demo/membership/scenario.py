"""Sets up the membership demo: the business in a MariaDB, the four layers, their verification."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamhouse.demo.driver import Check, Driver
from streamhouse.demo.folder import DemoFolder
from streamhouse.demo.latency import SnapshotClock, ages_text
from streamhouse.demo.mariadb import MariaDB
from streamhouse.demo.membership.business import DATABASE, Business
from streamhouse.demo.membership.expected_results import EXPECTED, ResultComparison
from streamhouse.demo.membership.freshness import FreshnessProbe
from streamhouse.demo.scripted_changes import ScriptedSteps
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.state.lineage import SUFFIX

if TYPE_CHECKING:
    from streamhouse.demo.membership.steps import MembershipChanges

LAYERS = ("ods.sql", "dwd.sql", "dws.sql", "app.sql")
SPRINT_BOARD, MEMBER_BOARD = "membership.app_sprint_board", "membership.app_member_board"
_PORT = "'port' = '3306'"
_CATCH_UP_S = 300.0
_SHOWN_S = 30.0
"""How long the board may take to show the last orders."""
_FIRST_ORDERS = 5_000
_FIRST_SECONDS = 15.0


class Membership:
    """Starts and stops all processes of a demo in one folder; the tables stay there."""

    result = "board"
    verification = "recomputing all results from ODS and from MySQL"

    def __init__(
        self,
        folder: Path,
        changes_per_second: int,
        seed: int = 1,
        warehouse: str | None = None,
    ) -> None:
        self._own = DemoFolder(folder, warehouse)
        self.folder = self._own.path
        self.log = self._own.log
        self.warehouse = Warehouse(self._own.warehouse)
        self.mariadb = MariaDB(self.folder / "mariadb")
        self.business = Business(self.mariadb, changes_per_second, seed)
        self.scripts = [self.folder / name for name in LAYERS]
        self.driver = Driver(self.scripts, self._own.run_arguments, self.log)

    def __enter__(self) -> Membership:
        self._own.claim()
        try:
            self.mariadb.start()
            self.business.create(_FIRST_ORDERS)
            self._write_scripts()
        except BaseException:
            self.__exit__()
            raise
        board = TableAddress(self.warehouse.options, SPRINT_BOARD)
        self.clock = SnapshotClock(board)
        self.probes = FreshnessProbe(board, self.business, _FIRST_SECONDS)
        return self

    def __exit__(self, *exception: object) -> None:
        self.business.stop()
        self.driver.kill()
        if hasattr(self, "clock"):
            self.clock.stop()
            self.probes.stop()
        self.mariadb.stop()
        self._own.release()

    def start(self) -> None:
        """Start the pipeline, or start it again."""
        self.driver.start()

    def drain(self, check: Check | None = None) -> None:
        """Run the pipeline once more, until it has processed all changes of MySQL."""
        self.driver.start("--until-caught-up")
        self.driver.wait(_CATCH_UP_S, check)

    def raise_if_failed(self) -> None:
        """Raise the error of the pipeline or of the business, if one has failed."""
        self.driver.raise_if_failed()
        self.business.raise_if_failed()

    def progress(self) -> str:
        """A part of a progress message: the changes, and the freshness of the last orders."""
        ages = ages_text(self.probes.ages.recent())
        return f"{self.business.changes:,} changes, MySQL to board {ages}"

    def freshness_window(self) -> dict[str, float] | None:
        """Percentiles of the orders that the board got since the last call."""
        return self.probes.ages.window()

    def begin(self, seconds: float | None) -> MembershipChanges:
        """Start the business; returns the scripted changes."""
        from streamhouse.demo.membership.steps import MembershipChanges

        self.business.start()
        return MembershipChanges(self)

    def end_measuring(self, check: Check) -> None:
        """Stop the business, and wait until the board shows all orders of the desk.

        So no restart is measured.
        """
        self.business.stop()
        deadline = time.monotonic() + _SHOWN_S
        while self.probes.waiting and time.monotonic() < deadline:
            check()
            self.driver.raise_if_failed()
            time.sleep(0.05)
        self.probes.stop()

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

    def orders(self) -> int:
        """How many orders ODS has; 0 while the table does not exist."""
        try:
            table = self.warehouse.table(f"{DATABASE}.ods_member_order")
            latest = table.latest_snapshot_id()
        except StreamhouseError:
            return 0
        return 0 if latest is None else table.snapshot(latest).total_record_count or 0

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

    def _write_scripts(self) -> None:
        for path in self.scripts:
            text = (Path(__file__).parent / path.name).read_text()
            path.write_text(text.replace(_PORT, f"'port' = '{self.mariadb.port}'"))
