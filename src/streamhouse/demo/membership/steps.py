"""The scripted changes of the membership demo; each waits for its effect in the tables."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Generator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from streamhouse.demo.driver import start_command
from streamhouse.demo.membership.business import ACTOR, DATABASE
from streamhouse.demo.membership.scenario import SPRINT_BOARD, Membership
from streamhouse.demo.scenario import ScriptedSteps
from streamhouse.errors import StreamhouseError

_FIRST_S, _PAUSE_S = 15.0, 4.0
_ORDER, _OTHER = 9_000_000_001, 9_000_000_002
_SCORES, _ARCHIVE = f"{DATABASE}.dws_agent_score", f"{DATABASE}.order_archive"
_TAG, _DAY = "before-the-mistake", "2000-01-01"
_JOURNAL = "INSERT INTO member_event SELECT NULL, o.* FROM member_order AS o WHERE id = %s"


class MembershipChanges(ScriptedSteps):
    """Corrects, delays and cancels an order, repairs a day, and clusters an archive."""

    timeout_s = 120.0

    def __init__(self, scenario: Membership, first_s: float = _FIRST_S) -> None:
        super().__init__(scenario.log)
        self._scenario = scenario
        self._first_s, self._pause_s = first_s, _PAUSE_S
        self._cache_key: tuple[Any, ...] = ()
        self._cached_rows: list[dict[str, Any]] = []

    def _skip_pauses(self) -> None:
        self._first_s = self._pause_s = 0.0

    def _run_steps(self) -> Iterator[str | None]:
        yield from self._pause(self._first_s)
        yield from self._correction()
        yield from self._pause(self._pause_s)
        yield from self._late_event()
        yield from self._pause(self._pause_s)
        yield from self._cancellation()
        yield from self._pause(self._pause_s)
        yield from self._repair()
        yield from self._pause(self._pause_s)
        yield from self._closing()
        self.followed = True
        yield from self._pause(self._pause_s)
        yield from self._clustering()
        self.done = True

    def _correction(self) -> Iterator[str | None]:
        self._order(_ORDER, "100.00")
        yield "Zoe sells a membership for 100.00"
        yield from self._board(1, "100")
        self._mysql(
            ("UPDATE member_order SET amount = 150, event_time = %s WHERE id = %s",
             (_now(), _ORDER)),
            (_JOURNAL, (_ORDER,)),
        )  # fmt: skip
        yield "a correction in MySQL: the amount was 150.00"
        yield from self._board(1, "150")
        yield "Zoe's score on the board went from 100 to 150: the old row was retracted"

    def _late_event(self) -> Iterator[str | None]:
        self._mysql(
            ("UPDATE member_order SET amount = 999, event_time = %s WHERE id = %s",
             (_now(-3600), _ORDER)),
            (_JOURNAL, (_ORDER,)),
        )  # fmt: skip
        self._order(_OTHER, "1.00")
        yield "an event that is an hour late sets 999.00, and Zoe sells another for 1.00"
        yield from self._board(2, "151")
        yield "MySQL has 999.00, the board 151: the late event has an older event_time"

    def _cancellation(self) -> Iterator[str | None]:
        self._mysql(
            ("UPDATE member_order SET status = 'cancelled', event_time = %s WHERE id = %s",
             (_now(), _ORDER)),
            (_JOURNAL, (_ORDER,)),
            ("DELETE FROM member_order WHERE id = %s", (_ORDER,)),
        )  # fmt: skip
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
        self._mysql(
            ("INSERT INTO member_order VALUES (%s, %s, 1, %s, 1, 1, 'new', %s, 'paid', %s)",
             (number, at[:10], ACTOR, amount, at)),
            (_JOURNAL, (number,)),
        )  # fmt: skip

    def _mysql(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        with self._scenario.mariadb.connect(DATABASE) as connection:
            connection.begin()
            with connection.cursor() as cursor:
                for sql, parameters in statements:
                    cursor.execute(sql, parameters)
            connection.commit()

    def _board(self, orders: int, score: str) -> Iterator[None]:
        due = (orders, Decimal(score))
        yield from self._until(lambda: self._actor() == due, f"Zoe's board to show {due}")

    def _actor(self) -> tuple[int, Decimal] | None:
        rows = self._rows(SPRINT_BOARD, "agent_id", ACTOR)
        return (rows[0]["orders"], rows[0]["score"]) if rows else None

    def _scores(self, day: str) -> dict[int, tuple[int, Decimal]]:
        rows = self._rows(_SCORES, "v_date", day)
        return {row["agent_id"]: (row["orders"], row["score"]) for row in rows}

    def _rows(self, name: str, column: str, value: Any) -> list[dict[str, Any]]:
        only = {"method": "equal", "field": column, "literals": [value]}
        try:
            table = self._scenario.warehouse.table(name)
            latest = table.latest_snapshot_id()
            if latest is None:
                return []
            key = (name, column, value, latest)
            if key != self._cache_key:
                read = table.read(snapshot=latest, filter=only)
                rows = [row for batch in read for row in batch.to_pylist() if row[column] == value]
                self._cache_key, self._cached_rows = key, rows
            return self._cached_rows
        except StreamhouseError:
            # The table does not exist yet, or its snapshot expired while it was read.
            return []

    def _run(self, *words: str, log: Path | None = None) -> Iterator[None]:
        """Run a `streamhouse` command, as an operator would."""
        command = [*words, "--warehouse", self._scenario.warehouse.path]
        job = self._job = start_command(command, log or self._scenario.log)
        yield from self._until(lambda: job.poll() is not None, f"`{words[0]}` to finish")
        if job.returncode != 0:
            raise StreamhouseError(
                f"a step of the demo failed: streamhouse {' '.join(words)}; see "
                f"{log or self._scenario.log}"
            )

    def _pause(self, seconds: float) -> Iterator[None]:
        started = time.monotonic()
        # Evaluated each time, since `finish` shortens the pauses.
        while time.monotonic() - started < min(seconds, self._pause_s + self._first_s):
            yield None


def _now(later_s: float = 0.0) -> str:
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later_s)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"
