"""Finds XA transactions in the binlog that were prepared before a reader's start."""

import logging
from collections.abc import Collection
from contextlib import closing

from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump, log_files
from streamhouse.connectors.mysql_cdc.binlog.format.events import Step, xid_text
from streamhouse.connectors.mysql_cdc.binlog.transaction_buffer import TransactionBuffer
from streamhouse.connectors.mysql_cdc.binlog.transactions import (
    Committed,
    EventFilter,
    Transactions,
)
from streamhouse.errors import ConnectError, DataLossError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BINLOG_START, START_AGAIN, BinlogPosition

log = logging.getLogger("streamhouse.mysql")
_DENIED = "XAER_RMERR"
"""What MySQL reports to a user without the privilege XA_RECOVER_ADMIN."""


def prepared_xids(session: Session, mariadb: bool) -> set[str]:
    """The transactions that the server lists as prepared; empty if the user may not see them."""
    statement = "XA RECOVER" if mariadb else "XA RECOVER CONVERT XID"
    try:
        rows = session.rows(statement)
    except ConnectError as error:
        if not mariadb and _DENIED in str(error):
            return set()
        raise
    return {_listed_xid(*row) for row in rows}


def _listed_xid(format_id: object, first: object, second: object, data: object) -> str:
    if isinstance(data, bytes):
        raw = data
    else:
        text = str(data)
        # MySQL: CONVERT XID writes hexadecimal digits.
        raw = bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode("utf-8")
    length = int(str(first))
    return xid_text(int(str(format_id)), raw[:length], raw[length : length + int(str(second))])


class XaScan:
    """Follows the XA transactions that are prepared from `start` on; reads event headers only."""

    def __init__(self, options: MySqlOptions, start: BinlogPosition) -> None:
        self._dump = BinlogDump(options, start)
        self.prepared: dict[str, BinlogPosition] = {}
        self.decided: dict[str, Step] = {}

    @property
    def position(self) -> BinlogPosition:
        return self._dump.track.position

    def advance(self, end: BinlogPosition, file_only: bool = False) -> None:
        """Read up to `end`; with `file_only`, at most to the end of the first file."""
        track = self._dump.track
        file = track.file
        for event in self._dump.up_to(end):
            step = event.step
            if step is Step.PREPARE:
                self.prepared[track.name] = track.group
                self.decided.pop(track.name, None)
            elif step in (Step.XA_COMMIT, Step.XA_ROLLBACK):
                self.prepared.pop(track.name, None)
                self.decided[track.name] = step
            if file_only and track.file != file:
                return

    def close(self) -> None:
        self._dump.close()


def prepared_before(
    session: Session, options: MySqlOptions, end: BinlogPosition, wanted: Collection[str]
) -> tuple[dict[str, BinlogPosition], dict[str, Step]]:
    """Where those of the `wanted` transactions begin that are prepared and undecided at `end`.

    Also returns those that were decided before, and how. Reads the binlog file by file, backwards
    from the newest; transactions that are not in the binlog are in neither result.
    """
    found: dict[str, BinlogPosition] = {}
    decided: dict[str, Step] = {}
    remaining = set(wanted)
    files = [name for name, _ in log_files(session)]
    if end.file not in files:
        return found, decided
    for file in reversed(files[: files.index(end.file) + 1]):
        if not remaining:
            break
        log.info("mysql-cdc: searching %s for prepared XA transactions", file)
        with closing(XaScan(options, BinlogPosition(file, BINLOG_START))) as scan:
            scan.advance(end, file_only=file != end.file)
        found |= {xid: at for xid, at in scan.prepared.items() if xid in remaining}
        decided |= {xid: step for xid, step in scan.decided.items() if xid in remaining}
        remaining -= found.keys() | decided.keys()
    return found, decided


def read_prepared(
    options: MySqlOptions, event_filter: EventFilter, committed: Committed, before: BinlogPosition
) -> TransactionBuffer:
    """The events of a prepared transaction whose XA COMMIT or ROLLBACK begins at `before`.

    Reads them again from their first event; if that is unknown, searches it backwards.
    Raises `DataLossError` if the server no longer has them.
    """
    assert committed.xid is not None
    begin, xid = committed.begin, committed.xid
    if begin is None:
        with closing(Session(options)) as session:
            found, decided = prepared_before(session, options, before, [xid])
        last = decided.get(xid)
        expected = Step.XA_ROLLBACK if committed.rolled_back else Step.XA_COMMIT
        if last is not None and last is not expected:
            raise DataLossError(
                f"the binlog of MySQL at {options.address} ends the XA transaction {xid_sql(xid)} "
                f"twice, with XA COMMIT and XA ROLLBACK, the second time at {before}: the server "
                f"lost the first one in a crash; {START_AGAIN}"
            )
        if last is not None or committed.rolled_back:
            # It had no changes: the server logs its end, but not that it was prepared.
            return TransactionBuffer()
        begin = found.get(xid)
    if begin is None:
        raise DataLossError(
            f"the XA transaction {xid_sql(xid)} is committed at {before} in the binlog of "
            f"MySQL at {options.address}, but the server no longer has the binlog in which it was "
            f"prepared; {START_AGAIN}, and keep binlogs longer than XA transactions stay prepared"
        )
    return _read_group(options, event_filter, begin, xid)


def _read_group(
    options: MySqlOptions, event_filter: EventFilter, begin: BinlogPosition, xid: str
) -> TransactionBuffer:
    with closing(BinlogDump(options, begin)) as dump:
        server, track = f"MySQL at {options.address}", dump.track
        transactions = Transactions(track, event_filter, server)
        while True:
            block, at = dump.block(), 0
            while at < len(block):
                at, _ = transactions.advance(block, at)
                if xid in transactions.prepared:
                    group = transactions.take_prepared(xid).group
                    return TransactionBuffer() if group is None else group
                if track.between and track.position > begin:
                    raise DataLossError(
                        f"the binlog of MySQL at {options.address} has no prepared XA transaction "
                        f"{xid_sql(xid)} at {begin}; {START_AGAIN}"
                    )


def xid_sql(xid: str) -> str:
    """An identifier for messages, as in XA COMMIT."""
    format_id, gtrid, bqual = xid.split(":")
    return f"X'{gtrid}',X'{bqual}',{format_id}"
