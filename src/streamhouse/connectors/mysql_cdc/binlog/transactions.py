"""Assembles binlog events into committed transactions (decision 141)."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    FORMAT,
    GTIDS,
    HEADER,
    INCIDENT,
    PARTIAL_UPDATE,
    QUERY,
    ROTATE,
    ROWS,
    STATEMENTS,
    STOP,
    TABLE_MAP,
    PositionTracker,
    Step,
)
from streamhouse.connectors.mysql_cdc.binlog.gtids import gtid_of
from streamhouse.connectors.mysql_cdc.binlog.transaction_buffer import TransactionBuffer
from streamhouse.errors import DataLossError
from streamhouse.mysql.gtids import GtidSet
from streamhouse.mysql.position import START_AGAIN, BinlogIdentity, BinlogPosition

_ROW_EVENTS = ROWS | {PARTIAL_UPDATE}
_OTHER_WRITES = STATEMENTS - {QUERY}
_ENDS = (Step.COMMIT, Step.STATEMENT, Step.ROLLBACK)
_PREPARED_BYTES = 32 * 1024 * 1024


EventFilter: TypeAlias = Callable[[int, bytes, int, int], bool]
"""Selects events by their kind and bytes: TABLE_MAP events, statements, and those that cannot be
decoded."""


class Committed(NamedTuple):
    """A committed transaction, or the statements of one that was rolled back.

    `group`: its events. None if it was prepared earlier and its events are no longer known: they
    begin at `begin` (None: unknown). `rolled_back`: it was rolled back, but no PREPARE of it is
    known; the reader has to check that it was not committed before.
    """

    group: TransactionBuffer | None
    xid: str | None = None
    begin: BinlogPosition | None = None
    rolled_back: bool = False


class Transactions:
    """Assembles the events that `event_filter` selects, and their rows, into transactions.

    The first event must be the first one of a transaction, in the binlog `expected` (None: any).
    `prepared`: XA transactions that were prepared earlier. `skipped`: transactions to leave out.
    `server`: for messages. Raises `DataLossError`.
    """

    def __init__(
        self,
        track: PositionTracker,
        event_filter: EventFilter,
        server: str,
        expected: BinlogIdentity | None = None,
        prepared: Mapping[str, BinlogPosition] | None = None,
        skipped: GtidSet | None = None,
    ) -> None:
        self.track = track
        self._event_filter = event_filter
        self._server = server
        self._expected = expected
        self._skipped = skipped
        self._skips = False
        self._group = TransactionBuffer()
        self._followed: set[bytes] = set()
        self._others: set[bytes] = set()
        self._prepared = _Prepared(prepared or {})

    @property
    def prepared(self) -> dict[str, BinlogPosition]:
        """Where XA transactions begin that are neither committed nor rolled back."""
        return self._prepared.positions

    def advance(self, block: bytes, at: int) -> tuple[int, Committed | None]:
        """Take events from byte `at` on, up to an end of a transaction or of the block.

        Returns the byte after them, and the transaction if it was committed.
        """
        track, trailer = self.track, self.track.trailer
        followed, end = self._followed, len(block)
        while at < end:
            _, kind, _, size, pos, _ = HEADER.unpack_from(block, at)
            if kind in _ROW_EVENTS:
                number = block[at + 19 : at + 25]
                if number in followed:
                    self._group.add(kind, block, at, at + size - trailer, pos)
                elif number not in self._others:
                    raise self._inside()
                if pos > track.pos:
                    track.pos = pos
            elif kind == TABLE_MAP:
                self._map(block, at, at + size - trailer, pos)
            else:
                committed = self._other(kind, block, at, size, pos)
                trailer = track.trailer
                if track.between:
                    return at + size, committed
            at += size
        return at, None

    def take_prepared(self, xid: str) -> Committed:
        """Remove a prepared transaction; returns its events, if they are known."""
        return self._prepared.take(xid)

    def _map(self, block: bytes, at: int, end: int, pos: int) -> None:
        track, number = self.track, block[at + HEADER.size : at + HEADER.size + 6]
        if track.between:
            raise self._inside()
        if self._event_filter(TABLE_MAP, block, at, end):
            self._followed.add(number)
            self._others.discard(number)
            self._group.add(TABLE_MAP, block, at, end, pos)
        else:
            self._others.add(number)
            self._followed.discard(number)
        if pos > track.pos:
            track.pos = pos

    def _other(self, kind: int, block: bytes, at: int, size: int, pos: int) -> Committed | None:
        track = self.track
        step = track.take(block, at)
        end = at + size - track.trailer
        if kind in (ROTATE, STOP):
            # After a crash of the server, a file ends inside a transaction.
            self._group.close()
        elif kind == FORMAT:
            expected, self._expected = self._expected, None
            if track.binlog is not None and expected not in (None, track.binlog):
                raise other_binlog(self._server, track.file, expected, track.binlog)
        elif kind == INCIDENT:
            raise DataLossError(
                f"the binlog of {self._server} lacks changes at {track.position}, as the server "
                f"itself says (an INCIDENT event); {START_AGAIN}"
            )
        elif kind in GTIDS:
            self._begin(kind, block, at, end)
        elif (kind == QUERY and step in (None, Step.STATEMENT)) or kind in _OTHER_WRITES:
            if self._event_filter(kind, block, at, end):
                self._group.add(kind, block, at, end, pos)
        return None if step is None else self._step(step)

    def _begin(self, kind: int, block: bytes, at: int, end: int) -> None:
        if self._group:
            raise DataLossError(
                f"a transaction in the binlog of {self._server} has no end before "
                f"{self.track.group}; {START_AGAIN}"
            )
        if self._skipped is not None:
            self._skips = self._skipped.contains(*gtid_of(kind, block, at))

    def _step(self, step: Step) -> Committed | None:
        name, group = self.track.name, self._group
        if step is Step.ROLLBACK:
            group.rollback()
        if step in _ENDS:
            self._group = TransactionBuffer()
            if group and not self._skips:
                return Committed(group)
            group.close()
        elif step is Step.SAVEPOINT:
            group.savepoint(name)
        elif step is Step.ROLLBACK_TO:
            self._rollback_to(name)
        elif step is Step.PREPARE:
            self._group = TransactionBuffer()
            statements = group.take_statements()
            self._prepared.add(name, self.track.group, group)
            return Committed(statements) if statements and not self._skips else None
        elif step is Step.XA_COMMIT:
            if self._skips:
                self._prepared.drop(name)
                return None
            return self._prepared.take(name)
        elif step is Step.XA_ROLLBACK and not self._prepared.drop(name):
            return Committed(None, name, rolled_back=True)
        return None

    def _rollback_to(self, name: str) -> None:
        try:
            self._group.rollback_to(name)
        except DataLossError as error:
            raise DataLossError(
                f"the binlog of {self._server} at {self.track.position}: {error}; {START_AGAIN}"
            ) from None

    def _inside(self) -> DataLossError:
        return DataLossError(
            f"the position {self.track.position} in the binlog of {self._server} is inside a "
            f"transaction, where reading cannot start; {START_AGAIN}, or from the start of a "
            "transaction"
        )


class _Prepared:
    """Prepared XA transactions: where they begin, and their events as far as memory allows."""

    def __init__(self, positions: Mapping[str, BinlogPosition]) -> None:
        self.positions = dict(positions)
        self._groups: OrderedDict[str, TransactionBuffer] = OrderedDict()

    def add(self, xid: str, begin: BinlogPosition, group: TransactionBuffer) -> None:
        self.drop(xid)
        self.positions[xid] = begin
        self._groups[xid] = group
        held = sum(one.memory_bytes for one in self._groups.values())
        while held > _PREPARED_BYTES and len(self._groups) > 1:
            _, oldest = self._groups.popitem(last=False)
            held -= oldest.memory_bytes
            oldest.close()

    def take(self, xid: str) -> Committed:
        return Committed(self._groups.pop(xid, None), xid, self.positions.pop(xid, None))

    def drop(self, xid: str) -> bool:
        """Remove a transaction; returns whether it was known."""
        dropped = self.take(xid)
        if dropped.group is not None:
            dropped.group.close()
        return dropped.begin is not None


def other_binlog(
    server: str, file: str, expected: BinlogIdentity, found: BinlogIdentity
) -> DataLossError:
    """The error for a binlog file that differs from the one that was read before."""
    return DataLossError(
        f"the binlog file {file} of {server} is another one than was read before ({found}, not "
        f"{expected}): the binlog was reset (RESET MASTER), or this is another server; "
        f"{START_AGAIN}"
    )
