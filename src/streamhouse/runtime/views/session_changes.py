"""Changes of rows in sessions that the watermark has closed, and which sessions are open.

A row that enters is late if it would join a session that was closed before, or be in one of new
rows alone. A row that leaves is late if it is in no open session, or if a part of its session would
have been closed before without it. So sessions that were closed never change, and follow from the
rows and the late ones: nothing else need be known of former batches.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import duckdb
import pyarrow as pa

from streamhouse.duckdb_engine import Batches, Limits, opened
from streamhouse.operators.planning.closed_windows import LATE
from streamhouse.runtime.query_operator import conformed
from streamhouse.runtime.views.inputs import MEMORY, ViewInputs
from streamhouse.runtime.views.late_changes import NOW_MS, LateChanges, batches_of, scanner_of_late
from streamhouse.sql.batch.closed_windows import FOREVER, KINDS, between, late_table
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.parser.windowed_rows import BEGIN, KEY, MOMENT, UNTIL
from streamhouse.sql.plan import BoundedQuery, BoundedScan

_OLD = "before_"
_GAPS = (16, 256)
"""How many gaps before a watermark sessions that are open at it are looked for at first."""
_KEYS = rf"{re.escape(KEY)}\d+"


class SessionChanges(LateChanges):
    """The late changes of a table function SESSION, and its open sessions."""

    @cached_property
    def _sessions(self) -> BoundedQuery:
        """The query of the sessions of all rows that may be in an open one."""
        sessions = self._late.sessions
        assert sessions is not None
        return replace(sessions, sql=between(sessions.sql, None, FOREVER, self.first_read_ms))

    @cached_property
    def _since(self) -> int | None:
        """No row before this time was in an open session, or joins one; None if not known."""
        since: int | None = self._task.end.get("open_since")
        if since is None or self.unchanged:
            return since
        times = self._changed_rows["entered"].column(MOMENT).cast(pa.timestamp("ms"))
        for time in sorted(times.cast(pa.int64()).to_pylist(), reverse=True):
            if since - self._late.window.size <= time < since:
                since = time
        return since

    @property
    def first_read_ms(self) -> int | None:
        """The time from which on rows may be in an open session, or are near one."""
        return None if self._since is None else self._since - 2 * self._late.window.size - 1

    def rows(self) -> Iterator[pa.Table]:
        yield from self._rows

    @cached_property
    def _changed_rows(self) -> dict[str, pa.Table]:
        """The rows that `entered`, and those that are `gone`."""
        with self._opened() as connection:
            queries = zip(("entered", "gone"), self._entered_and_left(), strict=True)
            return {name: connection.sql(sql).to_arrow_table() for name, sql in queries}

    @cached_property
    def _rows(self) -> list[pa.Table]:
        if self.unchanged:
            return []
        more = {name: batches_of(rows) for name, rows in self._changed_rows.items()}
        before = ViewInputs(self._spec, self._task.start).scanner(self._sessions)
        for scan in self._sessions.scans:
            if scan.table.connector != LATE:
                self._check_start(scan)
                more[f"{_OLD}{scan.relation}"] = before(scan)
        with self._combined(self._recorded, more) as connection:
            for statement in self._statements():
                connection.execute(statement)
            listed = ", ".join(quote(column.name) for column in self._late.columns)
            rows = connection.sql(f"SELECT {listed}, _kind, {self._constants} FROM late")
            return [conformed(rows.to_arrow_table(), self._schema)]

    def _combined(
        self,
        late: Mapping[str, pa.Table],
        more: Mapping[str, tuple[pa.Schema, Batches]] = MappingProxyType({}),
        query: BoundedQuery | None = None,
    ) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A database for a query of sessions after the batch, without `late` rows."""
        query = query or self._sessions
        tables = ViewInputs(self._spec, self._task.end).scanner(query)
        limits, scanner = Limits(memory=MEMORY), scanner_of_late(tables, late)
        return opened(query, scanner, limits, now_ms=NOW_MS, more=more)

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
        yield f"CREATE TEMP TABLE old AS {self._with_scans(self._old_scan)}"
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
        yield f"CREATE TEMP TABLE new AS {self._with_scans(self._late_scan)}"
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

    def _with_scans(self, relation: Callable[[BoundedScan], str]) -> str:
        """The SQL of the sessions, with other relations in the place of its scans."""
        scans = {scan.relation: scan for scan in self._sessions.scans}
        return re.sub(r'"(scan_\d+)"', lambda match: relation(scans[match[1]]), self._sessions.sql)

    def _old_scan(self, scan: BoundedScan) -> str:
        """A scan before the batch."""
        return f'"{"" if scan.table.connector == LATE else _OLD}{scan.relation}"'

    def _late_scan(self, scan: BoundedScan) -> str:
        """A scan after the batch, with the late rows that are known so far."""
        if scan.table.connector != LATE:
            return quote(scan.relation)
        listed, name = ", ".join(map(quote, scan.columns)), scan.table.name[-1]
        (kind,) = (each for each in KINDS if late_table(self._number, each) == name)
        return (
            f"(SELECT {listed} FROM {quote(scan.relation)} UNION ALL SELECT {listed} FROM late "
            f"WHERE _kind = '{kind}')"
        )

    def open_since(self, after: int) -> int:
        """The first time of the sessions that are open at a watermark; at most that.

        They begin shortly before it, as a rule: so rows of some time before it are read first. If
        none of their open sessions begins within a gap of that time, none began before.
        """
        assert self._late.sessions is not None
        size, known = self._late.window.size, self.first_read_ms
        for gaps in (*_GAPS, None):
            since = known
            if gaps is not None:
                near = after - gaps * size
                since = near if known is None else max(near, known)
            query = replace(
                self._late.sessions, sql=between(self._late.sessions.sql, None, FOREVER, since)
            )
            sql = (
                f"SELECT epoch_ms(min({quote(BEGIN)})) FROM ({query.sql}) "
                f"WHERE {quote(UNTIL)} > make_timestamp_ms({after + 1})"
            )
            with self._combined(self.late, query=query) as connection:
                found: int | None = connection.execute(sql).fetchall()[0][0]
            if since is None or since == known or found is None or found > since + 2 * size:
                break
        return after if found is None else min(after, found)
