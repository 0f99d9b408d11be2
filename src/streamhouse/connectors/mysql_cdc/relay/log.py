"""Writes a relay log: selects the binlog events that concern followed tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.changes import (
    PASSING,
    names_of,
    table_names,
    table_number,
)
from streamhouse.connectors.mysql_cdc.binlog.events import (
    COMPRESSED,
    HEADER,
    PARTIAL_UPDATE,
    QUERY,
    ROWS,
    TABLE_MAP,
    Track,
    query_of,
)
from streamhouse.connectors.mysql_cdc.binlog.query import (
    EXECUTE_LOAD_QUERY,
    OLD_LOADS,
    statement_of,
)
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement
from streamhouse.connectors.mysql_cdc.relay.files import FrameWriter, State, StateWriter
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.connectors.mysql_cdc.server.table import Server

_SEGMENT_BYTES = 16 * 1024 * 1024
_FRAME_BYTES = 1024 * 1024
_ALTERED = 16


@dataclass(frozen=True)
class RelayTable:
    """The names of a followed table."""

    database: str
    name: str

    @property
    def full_name(self) -> str:
        """`database.table`."""
        return f"{self.database}.{self.name}"


class RelayLog:
    """Writes the log of `tables` in `folder`, from `start` on; one process writes it.

    Readers see only whole transactions; `undo` removes the events of a transaction that has not
    ended. Raises `OSError` if the files cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        tables: Sequence[RelayTable],
        start: Position,
        most_bytes: int,
        server: Server | None = None,
    ) -> None:
        self._selection = _EventSelection(tables, server or Server(True, ""))
        self._state_file = StateWriter(folder)
        self._files = FrameWriter(folder, max(1, min(_SEGMENT_BYTES, most_bytes // 8)))
        self._files.begin(start)
        self.state = State(start, {table.full_name: start for table in tables}, {})
        self._complete: list[bytes] = []
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._changed: set[str] = set()
        self._open_tables: set[str] = set()
        self._boundary = start
        self._state_file.write(self.state)

    def keep(self, track: Track, block: bytes) -> None:
        """Add a block of events; `track` is at the start of the first one."""
        at = 0
        while at < len(block):
            _, kind, _, size, _, _ = HEADER.unpack_from(block, at)
            self._take(track, block, at, kind, size)
            at += size
        self._commit(track.checksums)

    def undo(self) -> None:
        """Remove the events after the end that was last published to the readers."""
        self._discard_open()
        self._complete, self._changed, self._boundary = [], set(), self.state.end
        self._selection.forget()

    def _take(self, track: Track, block: bytes, at: int, kind: int, size: int) -> None:
        file, checksums = track.position.file, track.checksums
        track.take(block, at)
        if track.position.file != file:
            # If a crash of the server cut off a transaction, it ends here without an end event.
            self._discard_open()
            self._commit(checksums)
            self._files.begin(track.position)
        names = self._selection.of(kind, block, at, at + size - track.trailer)
        if self._selection.altered:
            self._alter(self._selection.altered, checksums)
        if names:
            self._open_tables |= names
            self._open.append(block[at : at + size])
            self._open_bytes += size
        if track.between:
            self._complete += self._open
            self._changed |= self._open_tables
            self._open, self._open_bytes, self._open_tables = [], 0, set()
            self._boundary = track.position
        elif self._open_bytes > _FRAME_BYTES:
            self._commit(track.checksums)
            self._files.append(track.position, self._open, track.checksums)
            self._open, self._open_bytes = [], 0

    def _alter(self, names: frozenset[str], checksums: bool) -> None:
        """End a batch before a statement about tables: their columns may differ after it."""
        self._commit(checksums)
        before = self._boundary
        altered = {name: [*self.state.altered.get(name, ()), before][-_ALTERED:] for name in names}
        self.state = self.state._replace(altered={**self.state.altered, **altered})

    def _discard_open(self) -> None:
        self._open, self._open_bytes, self._open_tables = [], 0, set()
        self._files.undo()

    def close(self) -> None:
        """Publish to the readers that the log has ended."""
        self._state_file.write(None)
        self._state_file.close()
        self._files.close()

    def _commit(self, checksums: bool) -> None:
        """Publish the events up to the end of the last transaction."""
        end = self._boundary
        if not self.state.end < end:
            return
        if self._complete:
            self._files.append(end, self._complete, checksums)
        self._files.commit(end)
        changed = dict(self.state.changed) | dict.fromkeys(self._changed, end)
        self.state = State(end, changed, self.state.altered)
        self._complete, self._changed = [], set()
        self._state_file.write(self.state)


class _EventSelection:
    """Decides which of the followed tables an event concerns.

    `altered`: those that the last event, a statement, defines, alters or drops.
    """

    def __init__(self, tables: Sequence[RelayTable], server: Server) -> None:
        self._tables = list(tables)
        self._server = server
        self._all = frozenset(table.full_name for table in tables)
        self._names = {
            self._folded(names_of(table.database, table.name)): frozenset({table.full_name})
            for table in tables
        }
        self._by_table_id: dict[bytes, frozenset[str]] = {}
        self.altered: frozenset[str] = frozenset()

    def of(self, kind: int, data: bytes, at: int, end: int) -> frozenset[str]:
        """The followed tables that the event at bytes `at` to `end` concerns; empty: skip it."""
        if self.altered:
            self.altered = frozenset()
        if kind in ROWS or kind == PARTIAL_UPDATE:
            return self._by_table_id.get(table_number(data, at), frozenset())
        if kind == TABLE_MAP:
            names = self._names.get(self._folded(table_names(data, at)), frozenset())
            self._by_table_id[table_number(data, at)] = names
            return names
        if kind in (QUERY, EXECUTE_LOAD_QUERY):
            return self._affected(kind, data, at, end)
        return self._all if kind in COMPRESSED or kind in OLD_LOADS else frozenset()

    def forget(self) -> None:
        """Forget the table ids, which are valid for one connection only."""
        self._by_table_id.clear()

    def _folded(self, names: bytes) -> bytes:
        if not self._server.ignores_case:
            return names
        return names.decode("utf-8", "replace").lower().encode()

    def _affected(self, kind: int, data: bytes, at: int, end: int) -> frozenset[str]:
        """The tables that a statement concerns, or whose rows it may change."""
        if kind == QUERY and query_of(data, at, end)[1] in PASSING:
            return frozenset()
        statement = statement_of(kind, data, at, end, self._server.mariadb)
        # Readers compare names as the server does: here, a statement too many does no harm.
        parsed = ParsedStatement(statement, ignores_case=True)
        names = {one.full_name: parsed.name(one.database, one.name) for one in self._tables}
        self.altered = frozenset(
            full for full, name in names.items() if parsed.concerns(name) or parsed.hides(name)
        )
        return frozenset(full for full, name in names.items() if parsed.may_write(name))
