"""Writes a relay log: selects the binlog events that concern followed tables."""

import struct
import time
from collections.abc import Sequence
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.change_decoder import (
    folded_names,
    names_of,
    table_id,
    table_names,
)
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    HEADER,
    PARTIAL_UPDATE,
    ROWS,
    STATEMENTS,
    TABLE_MAP,
    PositionTracker,
)
from streamhouse.connectors.mysql_cdc.binlog.gtids import gtid_of
from streamhouse.connectors.mysql_cdc.binlog.query import statement_of
from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import TableName
from streamhouse.connectors.mysql_cdc.binlog.transactions import Committed, Transactions
from streamhouse.connectors.mysql_cdc.binlog.xa import read_prepared
from streamhouse.connectors.mysql_cdc.relay.files import FrameWriter
from streamhouse.connectors.mysql_cdc.relay.state import KEPT_STATEMENTS, RelayState, StateWriter
from streamhouse.mysql.gtids import known_gtids
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogIdentity, BinlogPosition
from streamhouse.mysql.table import Server

_SEGMENT_BYTES = 8 * 1024 * 1024
_FRAME_BYTES = 1024 * 1024
_SIZE_AT, _SIZE_AND_END, _FLAGS_AT = 9, struct.Struct("<II"), 17
"""Where an event's header has its bytes and its end position."""
_BINLOGS = 64
_NONE: frozenset[str] = frozenset()


class RelayLog:
    """Writes the log of `tables` in `folder`, from `start` on; one process writes it.

    The log contains the changes of committed transactions only. It has the events of an XA
    transaction at the position of its commit. `undo` removes events that are not published yet.
    Raises `OSError` if the files cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        tables: Sequence[TableNames],
        start: BinlogPosition,
        most_bytes: int,
        server: Server,
        gtids: str | None = None,
    ) -> None:
        self._selection = _EventSelection(tables, server)
        self._state_file = StateWriter(folder)
        self._files = FrameWriter(folder, max(1, min(_SEGMENT_BYTES, most_bytes // 8)))
        self._files.begin(start)
        changed = {".".join(table): start for table in tables}
        self.state = RelayState(start, changed, {}, {}, {}, {}, gtids)
        self._mariadb = server.mariadb
        self._gtids = known_gtids(gtids, self._mariadb)
        self._binlogs: dict[str, BinlogIdentity] = {}
        self._complete: list[bytes] = []
        self._changed: set[str] = set()
        self._seconds: dict[str, int] = {}
        self._boundary = start
        self._state_file.write(self.state)

    def selects(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Whether the event concerns a followed table."""
        return bool(self._selection.of(kind, data, at, end))

    def follow(self, tables: Sequence[TableNames]) -> None:
        """Keep the events of more tables, too, in blocks after this call."""
        self._selection.add(tables)
        joined = {".".join(table): self.state.end for table in tables}
        self.state = self.state._replace(changed={**joined, **self.state.changed})

    def connect(self, track: PositionTracker, options: MySqlOptions) -> None:
        """Continue with a binlog connection that starts at the last published end."""
        binlog, server = self.state.binlogs.get(self.state.end.file), f"MySQL at {options.address}"
        self._transactions = Transactions(track, self.selects, server, binlog, self.state.prepared)
        self._options = options

    def keep(self, block: bytes) -> None:
        """Add a block of events of the connection."""
        at, transactions, track = 0, self._transactions, self._transactions.track
        while at < len(block):
            file = track.file
            at, committed = transactions.advance(block, at)
            if track.binlog is not None:
                self._binlogs[track.file] = track.binlog
            if track.file != file:
                self._commit()
                self._files.begin(track.position)
            if committed is not None:
                self._add(committed)
            if track.between:
                self._boundary = track.position
                self._executed(track)
        self._commit()

    def _executed(self, track: PositionTracker) -> None:
        """Note the transaction that has just ended."""
        event, track.gtid = track.gtid, None
        if event is not None and self._gtids is not None:
            _, kind, server, *_ = HEADER.unpack_from(event)
            origin, number = gtid_of(kind, event, 0)
            # A server that gives no GTIDs knows a stream's place by file and position only.
            self._gtids = self._gtids.with_one(origin, number, server) if origin else None

    def heard(self) -> None:
        """Publish that the server has sent something."""
        self._state_file.heard()

    def undo(self) -> None:
        """Remove the events after the last published end."""
        self._files.undo()
        self._complete, self._changed, self._boundary = [], set(), self.state.end
        self._seconds, self._gtids = {}, known_gtids(self.state.gtids, self._mariadb)

    def _add(self, committed: Committed) -> None:
        track = self._transactions.track
        end, group = track.position, committed.group
        if group is None:
            # Prepared before this connection.
            group = read_prepared(self._options, self.selects, committed, track.group)
        of, size = self._selection.of, 0
        # Not in `_complete` yet: a statement in this transaction publishes only earlier ones.
        events: list[bytes] = []
        last_rows: dict[frozenset[str], tuple[bytes, int]] = {}
        changed: set[str] = set()
        for kind, data, at, stop, pos in group.events():
            names = of(kind, data, at, stop)
            if self._selection.altered:
                self._alter(self._selection.altered)
            if not names:
                continue
            # An XA transaction has the position of its commit.
            events.append(_stored(data, at, stop, end.pos if committed.xid else pos))
            if kind in ROWS:
                last_rows[names] = data, at
            else:
                changed |= names
            size += stop - at
            if size > _FRAME_BYTES:
                # All frames of a transaction but the last end before the transaction does.
                self._commit()
                inside = BinlogPosition(end.file, end.pos - 1)
                self._files.append(inside, events, partial=True)
                events, size = [], 0
        for names, (data, at) in last_rows.items():
            changed |= names
            self._seconds |= dict.fromkeys(names, HEADER.unpack_from(data, at)[0])
        group.close()
        self._complete += events
        self._changed |= changed

    def _alter(self, names: frozenset[str]) -> None:
        """Record a statement about tables, before which batches end: it may alter the columns."""
        self._commit()
        before = self._boundary
        altered = {
            name: [*self.state.altered.get(name, ()), before][-KEPT_STATEMENTS:] for name in names
        }
        self.state = self.state._replace(altered={**self.state.altered, **altered})

    def close(self) -> None:
        """Publish to the readers that the log has ended."""
        self._state_file.write(None)
        self._state_file.close()
        self._files.close()

    def _commit(self) -> None:
        """Publish the events up to the end of the last transaction."""
        end = self._boundary
        new = end.file in self._binlogs.keys() - self.state.binlogs.keys()
        if not (self.state.end < end or new):
            return
        if self._complete:
            self._files.append(end, self._complete)
        self._files.commit(end)
        changed = dict(self.state.changed) | dict.fromkeys(self._changed, end)
        while len(self._binlogs) > _BINLOGS:
            del self._binlogs[next(iter(self._binlogs))]
        binlogs = dict(self._binlogs)
        prepared = {xid: at for xid, at in self._transactions.prepared.items() if at < end}
        arrived = time.time_ns() // 1_000_000
        times = {name: (seconds, arrived) for name, seconds in self._seconds.items()}
        times = {**self.state.times, **times}
        gtids = None if self._gtids is None else str(self._gtids)
        self.state = RelayState(end, changed, self.state.altered, prepared, binlogs, times, gtids)
        self._complete, self._changed, self._seconds = [], set(), {}
        self._state_file.write(self.state)


def _stored(data: bytes, at: int, end: int, pos: int) -> bytes:
    """The event at bytes `at` to `end`, without a checksum, with `pos` as its end position."""
    size_and_end = _SIZE_AND_END.pack(end - at, pos)
    return data[at : at + _SIZE_AT] + size_and_end + data[at + _FLAGS_AT : end]


class _EventSelection:
    """Decides which of the followed tables an event concerns.

    `altered`: the tables that the last event, if it was a statement, defines, alters or drops.
    """

    def __init__(self, tables: Sequence[TableNames], server: Server) -> None:
        self._server = server
        self._parsed: dict[str, TableName] = {}
        self._names: dict[bytes, frozenset[str]] = {}
        self._by_table_id: dict[bytes, frozenset[str]] = {}
        self.altered = _NONE
        self.add(tables)

    def add(self, tables: Sequence[TableNames]) -> None:
        """Follow these tables, too."""
        for table in tables:
            full, name = ".".join(table), folded_names(names_of(*table), self._server.ignores_case)
            self._names[name] = frozenset({full})
            # Keeps too many statements rather than too few: readers compare as the server does.
            self._parsed[full] = TableName.parsed(*table, ignores_case=True)

    def of(self, kind: int, data: bytes, at: int, end: int) -> frozenset[str]:
        """The followed tables that the event at bytes `at` to `end` concerns; empty: none."""
        self.altered = _NONE
        if kind in ROWS or kind == PARTIAL_UPDATE:
            return self._by_table_id.get(table_id(data, at), _NONE)
        if kind == TABLE_MAP:
            name = folded_names(table_names(data, at), self._server.ignores_case)
            names = self._names.get(name, _NONE)
            self._by_table_id[table_id(data, at)] = names
            return names
        return self._affected(kind, data, at, end) if kind in STATEMENTS else _NONE

    def _affected(self, kind: int, data: bytes, at: int, end: int) -> frozenset[str]:
        """The tables that a statement concerns, or whose rows it may change."""
        statement = statement_of(kind, data, at, end, self._server.mariadb, ignores_case=True)
        if statement is None:
            return _NONE
        names = self._parsed.items()
        self.altered = frozenset(full for full, name in names if statement.is_about(name))
        return frozenset(full for full, name in names if statement.may_write(name))
