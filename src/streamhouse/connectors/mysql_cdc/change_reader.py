"""Reads the changes of tables between two positions of the binlog, in its order."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.change_decoder import TableEvent, TablesDecoder
from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, ROWS
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import (
    MOST_BYTES,
    BatchDecoder,
    ChangedRows,
)
from streamhouse.connectors.mysql_cdc.binlog.transactions import Committed, Transactions
from streamhouse.connectors.mysql_cdc.binlog.xa import read_prepared
from streamhouse.connectors.mysql_cdc.relay.files import FrameReader
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.errors import DataLossError
from streamhouse.mysql.connection import Backoff
from streamhouse.mysql.gtids import parse_gtids
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import (
    NO_BINLOG_STATE,
    START_AGAIN,
    BinlogPosition,
    BinlogState,
    Skip,
)
from streamhouse.mysql.table import TableDefinition

_NO_END = 1 << 32
"""Greater than any position in a binlog file, since an event's header has 32 bits for it."""


class RelayReader:
    """Reads row events from a relay log, from `start` on.

    Raises `OSError` if the log lacks the requested range, or does not reach its end within 10 s.
    """

    def __init__(self, view: RelayView, decoder: TablesDecoder, start: BinlogPosition) -> None:
        self.position = start
        self.decoder = decoder
        self._view = view
        self._frames = FrameReader(view.folder, start)

    def row_events(self, end: BinlogPosition) -> Iterator[TableEvent]:
        """The row events from `position` to `end`; both must be between transactions."""
        if not self._view.reaches(end):
            raise FileNotFoundError(f"the relay log in {self._view.folder} does not reach {end}")
        start, decoder, header = self.position, self.decoder, HEADER.unpack_from
        for frame in self._frames.up_to(end):
            after, until = _within(start, frame.end), _within(end, frame.end)
            at, data = 0, frame.events
            while at < len(data):
                _, kind, _, size, pos, _ = header(data, at)
                if after < pos <= until:
                    if kind in ROWS:
                        event = decoder.row_event(kind, data, at, at + size)
                        if event is not None:
                            yield event
                    else:
                        decoder.process(kind, data, at, at + size, frame.end.file, pos)
                at += size
        self.position = max(start, end)

    def close(self) -> None:
        self._frames.close()


def _within(position: BinlogPosition, frame: BinlogPosition) -> int:
    """A position within a frame's binlog file; 0 or `_NO_END` if in an earlier or later file."""
    if position.file == frame.file:
        return position.pos
    return 0 if position < frame else _NO_END


@dataclass(frozen=True)
class TablePosition:
    """A position between two transactions, with the states of the binlog and of a table there.

    `table`: the table's columns at the position; None if they are not known.
    """

    position: BinlogPosition
    binlog_state: BinlogState = NO_BINLOG_STATE
    table: TableDefinition | None = None


class BinlogReader:
    """Reads row events over one binlog connection, from `start` on.

    It never reconnects: a stream that resumes inside a transaction would silently lose rows.
    Raises `DataLossError` if the server has another binlog than `binlog_state`.
    """

    def __init__(
        self,
        options: MySqlOptions,
        decoder: TablesDecoder,
        start: BinlogPosition,
        binlog_state: BinlogState,
    ) -> None:
        self._options, self.decoder = options, decoder
        self._skip = binlog_state.skip or Skip()
        self._dump = BinlogDump(options, start)
        self._track = self._dump.track
        self._transactions = Transactions(
            self._track,
            self.decoder.selects,
            f"MySQL at {options.address}",
            binlog_state.binlog,
            binlog_state.prepared,
            None if self._skip.gtids is None else parse_gtids(self._skip.gtids),
        )
        self._block = b""
        self._at = 0

    @property
    def position(self) -> BinlogPosition:
        return self._track.position

    def row_events(self, end: BinlogPosition) -> Iterator[TableEvent]:
        """The row events from `position` to `end`, which must be between transactions."""
        track, blocks = self._track, self._dump.blocks(end)
        while track.pos < end.pos if track.file == end.file else self.position < end:
            if self._at >= len(self._block):
                self._block, self._at = next(blocks), 0
            self._at, committed = self._transactions.advance(self._block, self._at)
            if committed is not None:
                yield from self._row_events(committed)
        if not track.between or self.position != end:
            raise DataLossError(
                f"the binlog of MySQL at {self._options.address} has no end of a "
                f"transaction at {end}: it was reset; {START_AGAIN}"
            )

    def continues(self, binlog_state: BinlogState) -> bool:
        """Whether the reader reads this binlog, and leaves out the same changes."""
        binlog = self._track.binlog
        return binlog_state.binlog in (None, binlog) and (binlog_state.skip or Skip()) == self._skip

    def close(self) -> None:
        self._dump.close()

    def _row_events(self, committed: Committed) -> Iterator[TableEvent]:
        """The row events of a transaction."""
        group, file = committed.group, self._track.file
        if group is None:
            group = read_prepared(self._options, self.decoder.selects, committed, self._track.group)
        decoder, skip = self.decoder, self._skip
        try:
            for kind, data, at, end, pos in group.events():
                if kind not in ROWS:
                    decoder.process(kind, data, at, end, file, pos)
                    continue
                skipped = 0
                if skip.events is not None:
                    position = BinlogPosition(file, pos)
                    if position <= skip.events:
                        continue
                    skipped = skip.rows if position == skip.row_event else 0
                event = decoder.row_event(kind, data, at, end, skipped)
                if event is not None:
                    yield event
        finally:
            group.close()


Reader: TypeAlias = BinlogReader | RelayReader
TableStarts: TypeAlias = Mapping[CapturedTable, TablePosition]
"""Tables whose changes are read, each from a position on."""
_ReaderKey: TypeAlias = tuple[int, tuple[CapturedTable, ...]]
_READERS: dict[_ReaderKey, Reader] = {}
_VIEWS: dict[tuple[int, Path], RelayView] = {}
_NO_FOLDER = Path(os.devnull)


def log_view(folder: Path | None) -> RelayView:
    """This process's view of the relay log in a folder; without a folder, of no log."""
    key = (os.getpid(), folder or _NO_FOLDER)
    if key not in _VIEWS:
        _VIEWS[key] = RelayView(key[1])
    return _VIEWS[key]


def open_reader(tables: TableStarts, relayed: bool = True) -> Reader:
    """A reader of tables that begin at the same position: of the relay log if that has it.

    Else, or if not `relayed`, it reads the server's binlog.
    """
    captured, start = next(iter(tables.items()))
    decoder = TablesDecoder(list(tables))
    decoder.set_tables([each.table for each in tables.values()])
    if relayed and _is_relayed(list(tables), start):
        with contextlib.suppress(OSError):
            return RelayReader(log_view(captured.relay), decoder, start.position)
    return BinlogReader(captured.options, decoder, start.position, start.binlog_state)


def _is_relayed(tables: Sequence[CapturedTable], start: TablePosition) -> bool:
    """Whether the relay log has all changes of the tables from a position on."""
    view, binlog_state, position = log_view(tables[0].relay), start.binlog_state, start.position
    names = [table.table.full_name for table in tables]
    followed = binlog_state.skip is None and view.continues(binlog_state.binlog, position)
    return followed and view.has_changes(names, position)


def changed_rows(reader: Reader, end: BinlogPosition) -> Iterator[ChangedRows]:
    """The changes of the reader's only table from its position to `end`, many at once."""
    gathered = BatchDecoder()
    for _, event in reader.row_events(end):
        gathered.add(event)
        if gathered.bytes >= MOST_BYTES:
            yield from gathered.drain()
    yield from gathered.drain()


def read_tables(tables: TableStarts, end: BinlogPosition) -> Iterator[TableEvent]:
    """The row events of the tables up to `end`, which must be between transactions, too.

    All begin at the same position, and are read in one pass. Keeps the reader for the next range in
    the same process. If the relay log lacks the range, this reads it from the server. After a lost
    connection, it reads the range again, and skips the events that it has yielded.
    """
    captured, start = next(iter(tables.items()))
    # The process id: a forked worker must not share its parent's connection.
    key = os.getpid(), tuple(tables)
    yielded, relayed, backoff = 0, True, Backoff(captured.options)
    while start.position < end:
        reader: Reader | None = None
        try:
            reader = _take_kept(key, start, relayed)
            if reader is None:
                close_readers(key[1])
                reader = open_reader(tables, relayed)
            reader.decoder.set_tables([each.table for each in tables.values()])
            for number, event in enumerate(reader.row_events(end)):
                if number >= yielded:
                    yielded += 1
                    yield event
            if reader.position == end and key not in _READERS:
                _READERS[key] = reader
            return
        except (pymysql.err.MySQLError, OSError) as error:
            if isinstance(reader, RelayReader):
                relayed = False
                continue
            backoff.retry(error)
        finally:
            if reader is not None and _READERS.get(key) is not reader:
                reader.close()


def _take_kept(key: _ReaderKey, start: TablePosition, relayed: bool) -> Reader | None:
    """Take the kept reader, if it is at `start` and reads the right log."""
    reader = _READERS.pop(key, None)
    if reader is None:
        return None
    from_relay = isinstance(reader, RelayReader)
    if reader.position == start.position and from_relay == (relayed and _is_relayed(key[1], start)):
        if isinstance(reader, RelayReader) or reader.continues(start.binlog_state):
            return reader
    reader.close()
    return None


def close_readers(captured: Iterable[CapturedTable]) -> None:
    """Close the readers that this process keeps for any of the tables."""
    wanted = set(captured)
    own = [key for key in _READERS if key[0] == os.getpid()]
    for key in [key for key in own if wanted.intersection(key[1])]:
        _READERS.pop(key).close()
