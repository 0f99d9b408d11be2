"""Resolves `scan.startup.mode` to the position where a stream begins; driver only."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TypeAlias

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.dump import (
    BinlogDump,
    RawEvent,
    earliest_position,
    log_files,
)
from streamhouse.connectors.mysql_cdc.binlog.format.events import GTIDS, HEADER, ROWS
from streamhouse.connectors.mysql_cdc.binlog.gtids import gtid_list, gtid_of, previous_gtids
from streamhouse.errors import DataLossError, OptionError
from streamhouse.mysql.connection import Session, readable
from streamhouse.mysql.gtids import GtidSet, parse_gtids
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BINLOG_START, START_AGAIN, BinlogPosition, BinlogState, Skip
from streamhouse.mysql.table import Server

_PREVIOUS_GTIDS, _GTID_LIST = 35, 163
_GTID_OPTION = "scan.startup.specific-offset.gtid-set"
_WITH_SNAPSHOT = "use 'scan.startup.mode' = 'initial'"


_Event: TypeAlias = tuple[RawEvent, BinlogPosition, BinlogPosition, bool]
"""An event, where it begins and ends in the binlog, and whether it ends a transaction."""


def check_startup(session: Session, options: MySqlOptions, server: Server) -> None:
    """Raise `OptionError` for a GTID set of another kind of server, or a time in the future."""
    gtids = options.startup_gtids
    if gtids is not None and parse_gtids(gtids).mariadb != server.mariadb:
        kind, form = (
            ("MariaDB", "domain-server-sequence, such as '0-1-270'")
            if server.mariadb
            else ("MySQL", "UUID:interval, such as '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7'")
        )
        raise OptionError(
            f"option '{_GTID_OPTION}': '{gtids}' is not a GTID set of this server, which is "
            f"{kind}; write {form}"
        )
    if options.startup_timestamp_ms is not None:
        now = float(session.rows("SELECT UNIX_TIMESTAMP(NOW(3))")[0][0]) * 1000
        if options.startup_timestamp_ms > now + 1000:
            raise OptionError(
                "option 'scan.startup.timestamp-millis': "
                f"'{options.startup_timestamp_ms}' is in the future of the server, where it is "
                f"{now:.0f} now"
            )


def startup_position(binlog: BinlogInspector) -> tuple[BinlogPosition, BinlogState]:
    """The startup position of the modes `earliest-offset`, `specific-offset` and `timestamp`.

    Raises `DataLossError` if the server no longer has the binlog from there on, and `OptionError`
    if it never had it.
    """
    position, skip = _searched_position(binlog)
    return position, replace(binlog.state_at(position), prepared={}, skip=skip)


def position_on_other_server(
    binlog: BinlogInspector, state: BinlogState, name: str
) -> tuple[BinlogPosition, BinlogState] | None:
    """Where the stream `name` goes on whose offset is of another server; None if it is of this one.

    Only a server with another id counts as another: after RESET MASTER, GTIDs are given again.
    Raises `DataLossError` if the server lacks a transaction that the stream has read, or the binlog
    after it.
    """
    if state.binlog is None or not state.gtids:
        return None
    server, current = binlog.server, binlog.server.position(binlog.session)
    if binlog.identity(current.file).server == state.binlog.server:
        return None
    why = "it has no GTIDs of that kind"
    if state.prepared or state.skip:
        why = "XA transactions are prepared, or others left out, at the last position"
    elif parse_gtids(state.gtids).mariadb == server.mariadb:
        search = _Search(binlog.session, binlog.options, current)
        try:
            start, skip = search.after_gtids(parse_gtids(state.gtids), server)
            return start, BinlogState(binlog.identity(start.file), {}, skip, state.gtids)
        except (OptionError, DataLossError) as error:
            why = str(error).removeprefix(f"option '{_GTID_OPTION}': ")
    raise DataLossError(
        f"MySQL at {binlog.options.address} is another server than before, and {name} cannot go "
        f"on there: {why}. If it is a replica that is behind, wait for it; else {START_AGAIN}"
    )


def _searched_position(binlog: BinlogInspector) -> tuple[BinlogPosition, Skip | None]:
    """The position, and what the stream leaves out after it."""
    session, options, server = binlog.session, binlog.options, binlog.server
    search = _Search(session, options, server.position(session))
    try:
        skip: Skip | None = None
        if options.startup_gtids is not None:
            start, skip = search.after_gtids(parse_gtids(options.startup_gtids), server)
        elif options.startup_timestamp_ms is not None:
            start = search.at_seconds(options.startup_timestamp_ms // 1000)
        elif options.startup_position is not None:
            start = options.startup_position
        else:
            start = earliest_position(session)
        if options.skip_events or options.skip_rows:
            skip = search.after_events(start, options.skip_events, options.skip_rows, skip)
        return start, skip
    except (pymysql.err.MySQLError, OSError) as error:
        raise readable(error, options) from None


class _Search:
    """Searches the binlog up to `end`."""

    def __init__(self, session: Session, options: MySqlOptions, end: BinlogPosition) -> None:
        self._session = session
        self._options = options
        self._end = end

    def after_gtids(self, wanted: GtidSet, server: Server) -> tuple[BinlogPosition, Skip | None]:
        """The first transaction that is not in a set; and the set, if later ones are in it."""
        self._check_executed(wanted, server)
        file, previous = self._file_after(wanted)
        missing = _missing(wanted, previous)
        for origin in previous.servers:
            if wanted.ranges[origin] == previous.ranges[origin]:
                self._check_same(wanted, origin, previous.servers[origin])
        start: BinlogPosition | None = None
        until: BinlogPosition | None = None
        anonymous: BinlogPosition | None = None
        skipping, last = False, dict[str, int]()
        for event, begin, end, ends_group in self._events(BinlogPosition(file, BINLOG_START)):
            if event.kind in GTIDS:
                origin, number = gtid_of(event.kind, event.data, event.at)
                skipping = wanted.contains(origin, number)
                if not origin:
                    anonymous = anonymous or begin
                elif skipping and anonymous is not None:
                    reason = f"the transaction at {anonymous}, before others of them, has no GTID"
                    raise OptionError(self._not_logged(wanted, reason))
                if wanted.mariadb and missing.get(origin) == number:
                    self._check_same(wanted, origin, HEADER.unpack_from(event.data, event.at)[2])
                if wanted.mariadb and missing and number < last.get(origin, 0):
                    raise self._unordered(begin)
                last[origin] = number
                if not skipping and start is None:
                    start = begin
                if skipping and wanted.mariadb and missing.get(origin) == number:
                    del missing[origin]
            if ends_group and skipping:
                until = end
            if ends_group and wanted.mariadb and not missing and start is not None:
                break
        if missing and wanted.mariadb:
            lacks = ", ".join(f"{origin}-…-{number}" for origin, number in missing.items())
            raise OptionError(self._not_logged(wanted, f"it lacks {lacks}"))
        if start is None:
            return self._end, None
        if until is None or until <= start:
            return start, None
        return start, Skip(gtids=str(wanted), until=until)

    def _check_same(self, wanted: GtidSet, origin: str, server: int) -> None:
        """After a failover, two servers may have given the same number to two transactions."""
        if wanted.servers[origin] != server:
            number = wanted.ranges[origin][-1][1]
            reason = f"there, {number} in domain {origin} is of the server with the id {server}"
            raise OptionError(self._not_logged(wanted, reason))

    def at_seconds(self, seconds: int) -> BinlogPosition:
        """The first transaction that ended at or after a time, in seconds since 1970."""
        names = [name for name, _ in log_files(self._session)]
        for file in reversed(names):
            created, previous = self._head(file)
            if created < seconds:
                break
        else:
            if previous is None or previous.ranges:
                raise DataLossError(
                    "option 'scan.startup.timestamp-millis': the oldest binlog file of MySQL at "
                    f"{self._options.address}, {names[0]}, is younger; the changes before it are "
                    f"lost: {_WITH_SNAPSHOT}, or a later time"
                )
        begin = BinlogPosition(file, BINLOG_START)
        for event, at, end, ends_group in self._events(begin):
            if event.kind in GTIDS:
                begin = at
            if ends_group:
                if event.seconds >= seconds:
                    return begin
                begin = end
        return self._end

    def after_events(
        self, start: BinlogPosition, events: int, rows: int, skip: Skip | None
    ) -> Skip:
        """Skip some events, and some rows of the row event after them."""
        position, remaining = start, events
        row_event: BinlogPosition | None = None
        for event, _, end, _ in self._events(start):
            if remaining:
                remaining -= 1
                position = end
            elif event.kind in ROWS or not rows:
                row_event = end if rows else None
                break
        else:
            if remaining or rows:
                raise OptionError(
                    "options 'scan.startup.specific-offset.skip-events' and '.skip-rows': the "
                    f"binlog of MySQL at {self._options.address} has only {events - remaining} "
                    f"events after {start}, or no row event after them"
                )
        former = skip or Skip()
        ends = (position, row_event, former.until)
        until = max(end for end in ends if end is not None)
        return Skip(former.gtids, until, position, row_event, rows)

    def _events(self, start: BinlogPosition) -> Iterator[_Event]:
        """The events from `start` to the end, without those that are not in the binlog itself."""
        if start >= self._end:
            return
        with closing(BinlogDump(self._options, start)) as dump:
            track, begin, between = dump.track, start, True
            for event in dump.up_to(self._end):
                end = track.position
                if event.pos and end != begin:
                    ends = track.between and not between
                    yield event, begin, end, ends
                begin, between = end, track.between

    def _head(self, file: str) -> tuple[int, GtidSet | None]:
        """When a file was created, and the GTIDs before it (None: the file does not have them)."""
        created = 0
        with closing(BinlogDump(self._options, BinlogPosition(file, BINLOG_START))) as dump:
            track = dump.track
            for _, kind, _, pos, data, at, _ in dump.up_to(self._end):
                created = track.binlog.created if track.binlog is not None else created
                if kind == _GTID_LIST and pos:
                    return created, gtid_list(data, at)
                if kind == _PREVIOUS_GTIDS:
                    return created, previous_gtids(data, at)
                if kind in GTIDS or not track.between:
                    break
        return created, None

    def _file_after(self, wanted: GtidSet) -> tuple[str, GtidSet]:
        """The newest file before which all transactions are in a set."""
        names = [name for name, _ in log_files(self._session)]
        for file in reversed(names):
            _, previous = self._head(file)
            if previous is not None and wanted.includes(previous):
                return file, previous
        raise DataLossError(
            f"option '{_GTID_OPTION}': MySQL at {self._options.address} has removed the binlog "
            f"with transactions that are not in '{wanted}' (the oldest file is {names[0]}): "
            f"{_WITH_SNAPSHOT}"
        )

    def _check_executed(self, wanted: GtidSet, server: Server) -> None:
        """Check that MySQL has executed a set, and logged what it has executed besides.

        A replica's binlog may lack transactions: of the time before its copy was made, or all of
        its source (`log_replica_updates`).
        """
        if server.mariadb:
            return
        executed = self._gtids("gtid_executed")
        if not executed.includes(wanted):
            raise OptionError(self._not_logged(wanted, f"it has '{executed}'"))
        if not wanted.includes(purged := self._gtids("gtid_purged")):
            raise DataLossError(
                f"option '{_GTID_OPTION}': the binlog of MySQL at {self._options.address} lacks "
                f"transactions that are not in '{wanted}' (its gtid_purged is '{purged}'): "
                f"{_WITH_SNAPSHOT}"
            )

    def _gtids(self, variable: str) -> GtidSet:
        text = str(self._session.rows(f"SELECT @@GLOBAL.{variable}")[0][0] or "").strip()
        return parse_gtids(text) if text else GtidSet({}, False, {})

    def _not_logged(self, wanted: GtidSet, reason: str) -> str:
        return (
            f"option '{_GTID_OPTION}': MySQL at {self._options.address} has not logged all of "
            f"'{wanted}' ({reason})"
        )

    def _unordered(self, position: BinlogPosition) -> OptionError:
        return OptionError(
            f"option '{_GTID_OPTION}': the GTIDs in the binlog of MySQL at "
            f"{self._options.address} are not in order at {position}; start with "
            "'scan.startup.specific-offset.file' and '.pos'"
        )


def _missing(wanted: GtidSet, previous: GtidSet) -> dict[str, int]:
    """The last transactions of a MariaDB set that a file itself must have."""
    return {
        origin: ranges[-1][1]
        for origin, ranges in wanted.ranges.items()
        if wanted.mariadb and ranges[-1][1] and not previous.contains(origin, ranges[-1][1])
    }
