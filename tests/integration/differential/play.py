"""Runs one case: its tables, its readers, and the differences that were found."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.integration.differential.case import STREAMED, Case
from tests.integration.differential.core import ADDED, JavaCore
from tests.integration.differential.filtered_readers import FILTERED
from tests.integration.differential.history import Round, history_of
from tests.integration.differential.lookup_readers import Waiting, strategies
from tests.integration.differential.model import Event
from tests.integration.differential.readers import PLAIN, Given, Reader, Seen, differences
from tests.integration.differential.source import Source, rows_of
from tests.integration.runtime.conftest import CollectedOutput

from streamhouse import execute
from streamhouse.errors import StreamhouseError
from streamhouse.procedures.compaction.compact import compact
from streamhouse.procedures.context import Context
from streamhouse.procedures.expiry import expire_snapshots
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

SCRIPT = "differential.sql"
FILLING = "filling.sql"
_RESTS_S = 3.0
_TOP = 5
"""The highest level of a table, by default."""
_ALL: tuple[type[Reader], ...] = (*PLAIN, *FILTERED, Waiting, *strategies())
READERS = {one.name: one for one in _ALL}


@dataclass(frozen=True)
class Problem:
    """Something that is not as it must be, after a round."""

    case: Case
    round: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.case}\n  round {self.round}, {self.what}: {self.text}"


@dataclass(frozen=True)
class Refusal:
    """What the product does not take, and what it said."""

    case: Case
    what: str
    text: str


class Play:
    """A case: makes its tables, fills them round by round, compares."""

    def __init__(self, case: Case, core: JavaCore, history: Sequence[Round] | None = None) -> None:
        self.case, self._core, self._warehouse = case, core, core.warehouse
        self.history = history_of(case) if history is None else history
        self.source = Source(core, f"{case.database}.s", case.source, case.feed)
        self.other: Source | None = None
        self.readers: list[Reader] = []
        self.problems: list[Problem] = []
        self.refusals: list[Refusal] = []
        self._since: dict[str, int] = {}
        self._latest: dict[str, tuple[int, float]] = {}
        self._compared: set[str] = set()
        self.round = 0
        self.refused = False

    @property
    def sources(self) -> list[Source]:
        return [self.source] if self.other is None else [self.source, self.other]

    # Making.

    def make(self) -> bool:
        """Make the tables; whether anything of the case can be run."""
        case = self.case
        self._warehouse.create_database(case.database)
        if not self._made("source", self.source.ddl()):
            return False
        if any(name.startswith("union") for name in case.readers):
            other = Source(self._core, f"{case.database}.o", case.other, case.feed)
            if self._made("other", other.ddl()):
                self.other = other
        self.readers = [one for name in case.readers if (one := self._reader(name)) is not None]
        if not any(reader.name.startswith("union") for reader in self.readers):
            # Nobody reads it as a stream, so nobody compacts it.
            self.other = None
        filled = not self.source.streams or self._planned("feed", [self.source.query()])
        return filled and bool(self.readers)

    def _reader(self, name: str) -> Reader | None:
        made = READERS[name](self.case)
        if name.startswith("union") and self.other is None:
            return None
        if name == "union" and self.case.source.keyed != self.case.other.keyed:
            # The rows of both have no key, and a table without one takes no changes.
            return None
        taken = self._made(name, made.ddl()) and self._planned(name, list(made.queries()))
        return made if taken else None

    def _made(self, what: str, statements: Iterator[str]) -> bool:
        try:
            for sql in statements:
                execute(self._warehouse, sql)
        except StreamhouseError as error:
            self._refused(what, error)
            return False
        return True

    def _planned(self, what: str, queries: Sequence[str]) -> bool:
        """Whether the queries are taken; those that are refused must be so when they are run."""
        try:
            self._run_here(f"EXPLAIN {query}" for query in queries)
        except StreamhouseError as error:
            self._refused(what, error)
            try:
                self._run_here(queries)
            except StreamhouseError:
                return False
            self.problem(what, f"EXPLAIN refused it, but it ran: {error}")
            return False
        return True

    def _run_here(self, statements: Iterator[str] | Sequence[str]) -> None:
        options = ScriptOptions(SCRIPT, self._warehouse.options, until_caught_up=True)
        ScriptRunner(options, CollectedOutput()).run(parse_script(";\n".join(statements)))

    def _refused(self, what: str, error: StreamhouseError) -> None:
        self.refusals.append(Refusal(self.case, what, str(error)))

    def problem(self, what: str, text: str) -> None:
        self.problems.append(Problem(self.case, self.round, what, text))

    def _lacks_added(self, table: str) -> bool:
        """Whether the column that an ALTER TABLE adds is not there yet."""
        return ADDED not in self._warehouse.table(table).arrow_schema.names

    def compared(self) -> Iterator[tuple[str, str]]:
        """The dimensions' values that were compared with the model: nothing of what was refused."""
        if not self._compared:
            return
        for name, value in self.case.named():
            if name not in ("reader", "between"):
                yield name, value
        for name in sorted(self._compared):
            yield "reader", name
        for value in self.case.betweens[: self.round]:
            yield "between", value

    # Rounds.

    def fill(self) -> None:
        """Write the changes of the round into the sources, or what they are filled from."""
        now = self.history[self.round]
        for source, changes in zip(self.sources, (now.source, now.other), strict=False):
            try:
                source.fill(changes)
            except StreamhouseError as error:
                if self._core.latest(source.table):
                    raise
                self._refused("writing", error)
                self.refused = True
                return
        for reader in self.readers:
            for sql in reader.fills(now):
                execute(self._warehouse, sql, self._core.sidecar)

    def between(self, context: Context) -> None:
        """What happens to the sources after the round."""
        done = self.case.betweens[self.round]
        for source in self.sources:
            if done == "compact":
                compact(context, source.table, compact_strategy="minor")
            elif done == "compact-full":
                compact(context, source.table)
            elif done == "add-column" and self._lacks_added(source.table):
                execute(self._warehouse, f"ALTER TABLE {source.table} ADD ({ADDED} STRING)")
            elif done == "expire":
                expire_snapshots(context, source.table, retain_max=1, retain_min=1)

    def follow(self) -> None:
        """The queries start now: what they find at first is no change."""
        for source in self.sources:
            source.follow()
            self._since[source.table] = self._core.latest(source.table)

    def queries(self) -> list[str]:
        """The continuous queries of the readers, after those that fill their sources."""
        filling = [source.query() for source in self.sources] if self.case.feed in (
            "stream", "keyed-stream") else []  # fmt: skip
        return [*filling, *(query for reader in self.readers for query in reader.queries())]

    def filling(self) -> list[str]:
        """The continuous queries of another pipeline that fills the sources."""
        other = self.case.feed in ("stopped", "lives")
        return [source.query() for source in self.sources] if other else []

    def reached(self) -> bool:
        """Whether all is as it must be by now, as far as the tables tell."""
        if self.case.feed in STREAMED and not self.filled():
            return False
        given = list(self._given())
        return not any(self._wrong(reader, given) for reader in self.readers)

    def _wrong(self, reader: Reader, given: Sequence[Given]) -> list[str]:
        """What is wrong with a target, whichever rows of the sources have been seen."""
        rows, texts = rows_of(self._warehouse, reader.target), list[str]()
        for one in given:
            texts = list(reader.problems(one, rows))
            if not texts:
                break
        return texts

    def filled(self) -> bool:
        """Whether the sources have all rows that they are to have, as far as they show them."""
        return not any(
            text
            for source in self.sources
            for text in differences(source.model.current(), rows_of(self._warehouse, source.table))
            if not (source.layout.hides and source.layout.may_wait and self._rests(source.table))
        )

    def _rests(self, table: str) -> bool:
        """Whether a table has rows, and has got none for some seconds."""
        latest, now = self._core.latest(table), time.monotonic()
        if self._latest.get(table, (0, now))[0] != latest:
            self._latest[table] = latest, now
        return latest > 0 and now - self._latest[table][1] > _RESTS_S

    def _given(self) -> Iterator[Given]:
        """What readers may have seen: of rows that may wait for a compaction more or fewer."""
        others = [Seen()] if self.other is None else list(self._seen(self.other))
        for source in self._seen(self.source):
            for other in others:
                yield Given(source, other, self.history[: self.round + 1])

    def check(self, notices: Sequence[str]) -> None:
        """Compare everything; `notices` is what the readers' script told."""
        for source in self.sources:
            self._check_source(source)
            self._check_notice(source, notices)
        given = list(self._given())
        for reader in self.readers:
            self._check_reader(reader, given)
        if self._last:
            self._check_between()

    @property
    def _last(self) -> bool:
        """Whether this is the last round."""
        return self.round == len(self.case.betweens)

    def _check_between(self) -> None:
        """Audit the tables that queries fill and read: streamed sources, and middles."""
        tables = [table for reader in self.readers for table in reader.middles]
        for source in self.sources if self.case.feed in STREAMED else ():
            if not (source.layout.may_wait and source.layout.hides):
                tables.append(source.table)
        wrong = {problem.what for problem in self.problems}
        for table in tables:
            self._check_audit(table, table in wrong)

    def _check_source(self, source: Source) -> None:
        rows = rows_of(self._warehouse, source.table)
        java = self._core.rows(source.table)
        for text in differences(java, rows):
            self.problem(f"{source.table} as Java reads it", text)
        if source.layout.may_wait and source.layout.hides:
            return
        for text in differences(source.model.current(), rows):
            self.problem(source.table, text)

    def _check_notice(self, source: Source, notices: Sequence[str]) -> None:
        """Rows that wait for a compaction must be announced, with their number."""
        if not source.layout.may_wait:
            return
        least = 1 if source.layout.producer != "full-compaction" else _TOP
        waiting = self._core.waiting(source.table, least)
        about = [line for line in notices if f"{source.table}: " in line]
        output = [int(n) for line in about for n in re.findall(r": (\d+) rows? waits?", line)]
        if waiting and not any(output):
            self.problem("notice", f"{waiting} rows of {source.table} wait, but told: {about}")

    def _seen(self, source: Source) -> Iterator[Seen]:
        layout, model = source.layout, source.model
        if layout.may_wait:
            latest = self._core.latest(source.table)
            # What deletion vectors hide from a SELECT, our readers do not see either; Flink's do.
            for snapshot in range(max(self._since.get(source.table, 1), 1), latest + 1):
                rows = self._core.at(source.table, snapshot, followed=not layout.hides)
                yield Seen([("+I", row) for row in rows], rows, source.states, certain=False)
            return
        late = self.case.feed == "java-write-only" and layout.hides
        events: list[Event] = [("+I", row) for row in model.rows.values()]
        certain = not (self.case.concurrent or late)
        yield Seen(events, model.current(), source.states, certain)

    def _check_reader(self, reader: Reader, given: Sequence[Given]) -> None:
        rows, found = rows_of(self._warehouse, reader.target), self._wrong(reader, given)
        if any(one.source.events or one.other.events for one in given):
            self._compared.add(reader.name)
        for text in found:
            self.problem(reader.target, text)
        for text in differences(self._core.rows(reader.target), rows):
            self.problem(f"{reader.target} as Java reads it", text)
        if found or self._last:
            self._check_audit(reader.target, bool(found))

    def _check_audit(self, table: str, wrong: bool) -> None:
        if not self._core.latest(table):
            # No query has seen a row yet, so none has written it.
            return
        try:
            equal = audit(self._warehouse.options, table).equal
        except StreamhouseError as error:
            if not wrong:
                self.problem(f"audit of {table}", str(error))
            return
        if equal == wrong:
            self.problem(f"audit of {table}", "equal" if equal else "not equal")
