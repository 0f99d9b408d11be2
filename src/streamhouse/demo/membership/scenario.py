"""The membership demo: the business in a MariaDB, four layers, scripted changes, verification."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from streamhouse.background import wait_until
from streamhouse.demo.driver import Check
from streamhouse.demo.mariadb import MariaDB
from streamhouse.demo.membership.business import (
    ACTOR,
    DATABASE,
    DESK,
    Business,
    MysqlStatement,
    journal,
    time_text,
)
from streamhouse.demo.membership.expected_results import EXPECTED, compare, count_orders
from streamhouse.demo.scenario import DemoScenario, ScriptedSteps, equality
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.state.lineage import SUFFIX

LAYERS = ("ods.sql", "dwd.sql", "dws.sql", "app.sql")
SPRINT_BOARD, MEMBER_BOARD = "membership.app_sprint_board", "membership.app_member_board"
_PORT = "'port' = '3306'"
_SHOWN_S = 30.0
"""How long the board may take to show the last orders."""
_FIRST_ORDERS = 5_000
_OF_DESK = {"method": "equal", "field": "agent_id", "literals": [DESK]}
_FIRST_S, _PAUSE_S = 15.0, 4.0
_ORDER, _OTHER = 9_000_000_001, 9_000_000_002
_SCORES, _ARCHIVE = f"{DATABASE}.dws_agent_score", f"{DATABASE}.order_archive"
_TAG, _DAY = "before-the-mistake", "2000-01-01"


class Membership(DemoScenario):
    """Four layers of tables over the orders of a business, and two boards.

    Freshness is that of the desk's orders, which never change, and arrive in the order of their
    commits: a board that shows n of them shows the first n.
    """

    title = "membership, live"
    starting = "starting Spark and the four layers"
    verification = "recomputing all results from ODS and from MySQL"
    boards = (SPRINT_BOARD, MEMBER_BOARD)
    counted = "changes in MySQL"
    measured = "MySQL to board"
    drained = True

    def __init__(
        self,
        folder: Path,
        changes_per_second: int,
        seed: int = 1,
        warehouse: str | None = None,
    ) -> None:
        super().__init__(folder, warehouse, LAYERS)
        self.mariadb = MariaDB(self.folder / "mariadb")
        self.business = Business(self.mariadb, changes_per_second, seed)
        self._displayed = 0

    def _prepare(self) -> None:
        self.servers.enter_context(self.mariadb)
        self.business.create(_FIRST_ORDERS)
        for path in self.scripts:
            text = (Path(__file__).parent / path.name).read_text()
            path.write_text(text.replace(_PORT, f"'port' = '{self.mariadb.port}'"))

    def _committed(self, board: Table, snapshot: int, at_s: float) -> None:
        """Measure the orders that a snapshot has more."""
        for batch in board.read(["agent_id", "orders"], snapshot=snapshot, filter=_OF_DESK):
            for row in batch.to_pylist():
                if row["agent_id"] == DESK:
                    made = self.business.desk_ms[self._displayed : int(row["orders"] or 0)]
                    if made:
                        self._displayed += len(made)
                        self.ages.add(np.array(made), at_s * 1000)

    @property
    def _waiting(self) -> int:
        """The number of the desk's orders that MySQL has and the board does not show yet."""
        return len(self.business.desk_ms) - self._displayed

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

    def begin(self, seconds: float | None) -> MembershipChanges:
        """Start the business; returns the scripted changes."""
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

        def shown() -> bool:
            check()
            self.driver.raise_if_failed()
            return not self._waiting

        wait_until(shown, _SHOWN_S)
        super().end_measuring(check)

    def count(self) -> int:
        """The changes in MySQL."""
        return self.business.changes

    def lag(self) -> str:
        """The orders of the desk that the board does not show yet."""
        return f"{self._waiting:,} of the desk's orders"

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
        ods, mysql = count_orders(self.warehouse, self.mariadb)
        compared = compare(self.warehouse, self.mariadb)
        audits = {
            name: audit(self.warehouse.options, f"{DATABASE}.{name}").equal
            for name in ("dwd_member_order", *EXPECTED)
        }
        wrong = [name for name, equal in compared.items() if not equal]
        wrong += [f"{name} audited" for name, equal in audits.items() if not equal]
        if ods != mysql:
            wrong.append(f"ods_member_order: {ods} orders, should be {mysql}")
        return {
            "orders": ods,
            "equal": ods == mysql and all(compared.values()),
            "audited": all(audits.values()),
            "compared": len(compared) + len(audits) + 1,
            "wrong": wrong,
        }


class MembershipChanges(ScriptedSteps):
    """Corrects, delays and cancels an order, repairs a day, and clusters an archive."""

    def __init__(self, scenario: Membership) -> None:
        super().__init__(scenario)
        self._scenario = scenario

    def _run_steps(self) -> Iterator[str | None]:
        yield from self._pause(_FIRST_S)
        for change in (self._correction, self._late_event, self._cancellation, self._repair):
            yield from change()
            yield from self._pause(_PAUSE_S)
        yield from self._closing()
        self.followed = True
        yield from self._pause(_PAUSE_S)
        yield from self._clustering()
        self.done = True

    def _correction(self) -> Iterator[str | None]:
        self._order(_ORDER, "100.00")
        yield "Zoe sells a membership for 100.00"
        yield from self._board(1, "100")
        self._change("amount = 150", _now())
        yield "a correction in MySQL: the amount was 150.00"
        yield from self._board(1, "150")
        yield "Zoe's score on the board went from 100 to 150: the old row was retracted"

    def _late_event(self) -> Iterator[str | None]:
        self._change("amount = 999", _now(-3600))
        self._order(_OTHER, "1.00")
        yield "an event that is an hour late sets 999.00, and Zoe sells another for 1.00"
        yield from self._board(2, "151")
        yield "MySQL has 999.00, the board 151: the late event has an older event_time"

    def _cancellation(self) -> Iterator[str | None]:
        delete = MysqlStatement("DELETE FROM member_order WHERE id = %s", (_ORDER,))
        self._change("status = 'cancelled'", _now(), delete)
        yield "the first of Zoe's orders is cancelled: MySQL deletes it"
        yield from self._board(1, "1")
        yield "Zoe's score is 1: the cancelled order was retracted"

    def _repair(self) -> Iterator[str | None]:
        day = self._scenario.business.steps.closed_day
        before = self._scores(day)
        yield from self._run("call", f"sys.create_tag('{DATABASE}.ods_member_order', '{_TAG}')")
        yield from self._run(
            "execute", f"UPDATE {DATABASE}.ods_member_order SET amount = 0 WHERE v_date = '{day}'"
        )
        yield f"somebody sets all amounts of {day} to 0"
        zeros = {agent: (orders, Decimal(0)) for agent, (orders, _) in before.items()}
        yield from self._until(lambda: self._scores(day) == zeros, f"the scores of {day} to be 0")
        yield f"the scores of {day} are 0 in all layers; repair.sql inserts the day again"
        script = self._scenario.folder / "repair.sql"
        text = (Path(__file__).parent / "repair.sql").read_text()
        script.write_text(text.replace(_DAY, day))
        yield from self._run("run", str(script))
        yield from self._until(lambda: self._scores(day) == before, f"{day} to be repaired")
        yield f"repaired: the scores of {day} are as before, and the streams kept running"

    def _closing(self) -> Iterator[str | None]:
        day = self._scenario.business.steps.yesterday
        yield from self._run("call", f"sys.create_tag('{_SCORES}', 'closing')")
        query = (
            "query",
            f"SELECT SUM(score) AS s FROM {_SCORES} VERSION AS OF 'closing' WHERE v_date = '{day}'",
            *("--format", "json"),
        )
        (closed,) = yield from self._json_rows(*query)
        yield f"the tag 'closing' keeps the scores of {day}: {closed['s']} in total"
        yield from self._until(
            lambda: self._total(day) not in (None, Decimal(closed["s"])),
            "a correction of yesterday",
        )
        now = self._total(day)
        (unchanged,) = yield from self._json_rows(*query)
        if unchanged != closed:
            raise StreamhouseError(
                f"the tag returned {closed['s']}, and now returns {unchanged['s']}"
            )
        yield f"after corrections it is {now}; VERSION AS OF 'closing' still returns {closed['s']}"

    def _clustering(self) -> Iterator[str | None]:
        yield from self._run("run", str(Path(__file__).parent / "archive.sql"))
        sort = f"sys.compact('{_ARCHIVE}', order_strategy => 'zorder', order_by => 'agent_id,id')"
        rows = yield from self._json_rows("call", sort, "--format", "json")
        one = next(row for row in rows if row["filter"].startswith("agent_id"))
        if one["read_after"] >= one["files_after"]:
            raise StreamhouseError(f"the query reads no fewer files after clustering: {one}")
        yield (
            f"zorder: a query for {one['filter']} read {one['read_before']} of "
            f"{one['files_before']} files of the archive, and reads {one['read_after']} of "
            f"{one['files_after']} now"
        )

    def _total(self, day: str) -> Decimal | None:
        scores = self._scores(day)
        return sum((score for _, score in scores.values()), Decimal(0)) if scores else None

    def _json_rows(self, *words: str) -> Generator[None, None, list[dict[str, Any]]]:
        """The rows that a `streamhouse` command prints as JSON."""
        output = self._scenario.folder / "rows.json"
        output.unlink(missing_ok=True)
        yield from self._run(*words, log=output)
        parsed = json.loads(output.read_text())
        rows: list[dict[str, Any]] = parsed if isinstance(parsed, list) else [parsed]
        return rows

    def _order(self, number: int, amount: str) -> None:
        at = _now()
        sql = "INSERT INTO member_order VALUES (%s, %s, 1, %s, 1, 1, 'new', %s, 'paid', %s)"
        insert = MysqlStatement(sql, (number, at[:10], ACTOR, amount, at))
        self._scenario.business.execute(insert, journal(number))

    def _change(self, assignment: str, at: str, *more: MysqlStatement) -> None:
        """Change the first of Zoe's orders, and record it as an event."""
        sql = f"UPDATE member_order SET {assignment}, event_time = %s WHERE id = %s"
        update = MysqlStatement(sql, (at, _ORDER))
        self._scenario.business.execute(update, journal(_ORDER), *more)

    def _board(self, orders: int, score: str) -> Iterator[None]:
        due = (orders, Decimal(score))

        def shown() -> bool:
            rows = self._rows(SPRINT_BOARD, "agent_id", ACTOR)
            return any((row["orders"], row["score"]) == due for row in rows)

        yield from self._until(shown, f"Zoe's board to show {due}")

    def _scores(self, day: str) -> dict[int, tuple[int, Decimal]]:
        rows = self._rows(_SCORES, "v_date", day)
        return {row["agent_id"]: (row["orders"], row["score"]) for row in rows}


def _now(later_s: float = 0.0) -> str:
    return time_text(1000 * (time.time() + later_s))
