"""Changes of rows in sessions that the watermark has closed, and which sessions are open.

A row that enters is late if it would join a session that was closed before, or be in one of new
rows alone. A row that leaves is late if it is in no open session, or if a part of its session would
have been closed before without it. So sessions that were closed never change, and follow from the
rows and the late ones: nothing else need be known of former batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_engine import Batches, Limits, opened
from streamhouse.operators.planning.closed_windows import LATE
from streamhouse.paimon.read.conditions import Filter
from streamhouse.runtime.batch.scan_pruning import Pruning
from streamhouse.runtime.query_operator import conformed
from streamhouse.runtime.views.inputs import MEMORY
from streamhouse.runtime.views.windows.late_changes import (
    KINDS,
    NOW_MS,
    LateChanges,
    batches_of,
    recorded,
)  # fmt: skip
from streamhouse.sql.batch.closed_windows import FOREVER, between, late_table
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.parser.windowed_rows import BEGIN, KEY, MOMENT, UNTIL
from streamhouse.sql.plan import BoundedQuery, BoundedScan

_KEYS = rf"{re.escape(KEY)}\d+"


class SessionChanges(LateChanges):
    """The late changes of a table function SESSION, and its open sessions."""

    @property
    def _sessions(self) -> BoundedQuery:
        """The query of the sessions of all rows that may be in an open one."""
        sessions = self._late.sessions
        assert sessions is not None
        return replace(sessions, sql=between(sessions.sql, None, FOREVER, self.first_read_ms))

    @property
    def _since(self) -> int | None:
        """No row before this time was in an open session; None if that is not known."""
        since: int | None = self._task.end.get("open_since")
        return since

    @property
    def first_read_ms(self) -> int | None:
        """The time from which on rows were in an open session, or are near one."""
        windows = self._spec.plan.windows
        assert windows is not None
        gap = max(late.window.size for late in windows.late if late.sessions is not None)
        return None if self._since is None else self._since - 2 * gap - 1

    @cached_property
    def late(self) -> dict[str, pa.Table]:
        """The late rows up to the batch, for each kind by `late_table`."""
        rows = pa.concat_tables([self._schema.empty_table(), *self._rows])
        return {
            name: pa.concat_tables([known, rows.filter(pc.field("_kind") == self._kinds[name])])
            for name, known in self._recorded.items()
        }

    @property
    def _kinds(self) -> dict[str, str]:
        """The kinds of late rows by the names of their tables in the query of sessions."""
        return {late_table(self._number, kind): kind for kind in KINDS}

    def rows(self) -> Iterator[pa.Table]:
        yield from self._rows

    @cached_property
    def _recorded(self) -> dict[str, pa.Table]:
        """The late rows of former batches."""
        address = self._spec.late[self._number]
        return recorded(address, self._number, self._spec.query_id, self._task.batch - 1)

    @cached_property
    def _rows(self) -> list[pa.Table]:
        if self.unchanged:
            return []
        with self._opened() as connection:
            for name, sql in zip(("entered", "gone"), self._entered_and_left(), strict=True):
                connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
            for statement in self._statements():
                connection.execute(statement)
            listed = ", ".join(quote(column.name) for column in self._late.columns)
            rows = connection.sql(f"SELECT {listed}, _kind, {self._constants} FROM late")
            return [conformed(rows.to_arrow_table(), self._schema)]

    def _statements(self) -> Iterator[str]:
        """The SQL that fills the table `late` with the late changes among `entered` and `gone`."""
        assert self._before is not None
        size = self._late.window.size
        gap, at = f"to_milliseconds({size})", f"make_timestamp_ms({self._before + 1})"
        begin, until, moment = map(quote, (BEGIN, UNTIL, MOMENT))
        keys = [quote(name) for name in self._sessions.output if re.fullmatch(_KEYS, name)]
        equal = " AND ".join(["true", *(f"r.{key} IS NOT DISTINCT FROM s.{key}" for key in keys)])
        sessions = f"SELECT DISTINCT {', '.join([*keys, begin])}, {until} - {gap} AS last FROM"
        inside = f"{equal} AND r.{moment} BETWEEN s.{begin} AND s.last"
        near = f"{equal} AND r.{moment} BETWEEN s.{begin} - {gap} AND s.last + {gap}"
        overlap = f"{equal} AND r.{begin} <= s.last AND r.last >= s.{begin}"
        limit = 0 if self._since is None else self._since - size
        old = "false" if self._since is None else f"{moment} < make_timestamp_ms({limit})"
        yield f"CREATE TEMP TABLE old AS {self._sessions_at('start')}"
        yield f"CREATE TEMP TABLE closed AS {sessions} old WHERE {until} <= {at}"
        yield f"CREATE TEMP TABLE open AS {sessions} old WHERE {until} > {at}"
        yield (
            f"CREATE TEMP TABLE late AS SELECT '+I' AS _kind, * FROM entered AS r WHERE {old} OR "
            f"EXISTS (SELECT 1 FROM closed AS s WHERE {near})"
        )
        yield (
            "INSERT INTO late SELECT '-D', * FROM (SELECT * FROM gone EXCEPT ALL SELECT * EXCLUDE "
            f"({begin}, {until}) FROM old WHERE {until} > {at})"
        )
        # Sessions that would have been closed before: of new rows, or left over from an open one.
        yield f"CREATE TEMP TABLE new AS {self._sessions_at('end')}"
        yield (
            f"CREATE TEMP TABLE early AS {sessions} new WHERE {until} <= {at} EXCEPT SELECT * FROM "
            "closed"
        )
        yield (
            "CREATE TEMP TABLE broken AS SELECT * FROM open AS r WHERE EXISTS (SELECT 1 FROM early "
            f"AS s WHERE {overlap})"
        )
        yield (f"DELETE FROM early AS r WHERE EXISTS (SELECT 1 FROM broken AS s WHERE {overlap})")
        for kind, rows, found in (("+I", "entered", "early"), ("-D", "gone", "broken")):
            known = f"SELECT * EXCLUDE (_kind) FROM late WHERE _kind = '{kind}'"
            yield (
                f"INSERT INTO late SELECT '{kind}', * FROM (SELECT * FROM {rows} EXCEPT ALL "
                f"{known}) AS r WHERE EXISTS (SELECT 1 FROM {found} AS s WHERE {inside})"
            )

    def _sessions_at(self, end: str) -> str:
        """The SQL of the sessions at the `start` or the `end` of the batch."""
        scans = {scan.relation: scan for scan in self._sessions.scans}

        def relation(match: re.Match[str]) -> str:
            scan = scans[match[1]]
            if scan.table.connector != LATE:
                return quote(f"{end}_{scan.relation}")
            name = scan.table.name[-1]
            if end == "start":
                return quote(name)
            listed = ", ".join(map(quote, scan.columns))
            return (
                f"(SELECT {listed} FROM {quote(name)} UNION ALL SELECT {listed} FROM late "
                f"WHERE _kind = '{self._kinds[name]}')"
            )

        return re.sub(r'"(scan_\d+)"', relation, self._sessions.sql)

    def _more(self) -> dict[str, tuple[pa.Schema, Batches]]:
        scans = [scan for scan in self._sessions.scans if scan.table.connector != LATE]
        found = {name: batches_of(rows) for name, rows in self._recorded.items()}
        for scan in scans:
            found[f"start_{scan.relation}"] = self._at_start(scan, self._condition(scan))
            found[f"end_{scan.relation}"] = self._at(scan, self._task.end, self._condition(scan))
        return found

    @cached_property
    def _pruning(self) -> Pruning:
        return Pruning(self._sessions)

    def _condition(self, scan: BoundedScan) -> Filter | None:
        address = self._spec.address(scan)
        if address is None:
            return None
        return self._pruning.filter(scan.relation, address.planned().arrow_schema)

    def open_since(self, after: int) -> int:
        """The first time of the sessions that are open at a watermark; at most that."""
        query = self._sessions

        def scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
            if scan.table.connector == LATE:
                return batches_of(self.late[scan.table.name[-1]].select(scan.columns))
            return self._at(scan, self._task.end, self._condition(scan))

        with opened(query, scanner, Limits(memory=MEMORY), now_ms=NOW_MS) as connection:
            sql = (
                f"SELECT epoch_ms(min({quote(BEGIN)})) FROM ({query.sql}) "
                f"WHERE {quote(UNTIL)} > make_timestamp_ms({after + 1})"
            )
            found: int | None = connection.execute(sql).fetchall()[0][0]
        return after if found is None else min(after, found)
