"""Limits how far a batch reads the server's binlog: up to an end of a transaction."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streamhouse.errors import ConnectError, DataLossError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import BINLOG_START, START_AGAIN, BinlogPosition
from streamhouse.mysql.table import TableDefinition

_MOST_BYTES = 256 * 1024 * 1024
_EVENTS_PER_QUERY = 1000
_GROUP_ENDS = ("Xid", "XID", "XA_prepare", "Transaction_payload", "Rotate", "Stop")
_DATABASE = re.compile(r"\s*use `(?:[^`]|``)*`;\s*", re.IGNORECASE)
_COLUMN_BYTES = 8


def log_files(session: Session) -> list[tuple[str, int]]:
    """The binlog files that the server still has, with their bytes, oldest first."""
    return [(str(row[0]), int(row[1])) for row in session.rows("SHOW BINARY LOGS")]


def earliest_position(session: Session) -> BinlogPosition:
    """The start of the oldest binlog file."""
    files = log_files(session)
    if not files:
        raise ConnectError("the MySQL server has no binlog file; set log-bin = binlog")
    return BinlogPosition(files[0][0], BINLOG_START)


def bounded_end(
    session: Session,
    table: TableDefinition,
    start: BinlogPosition,
    current: BinlogPosition,
    max_rows: int | None,
) -> BinlogPosition:
    """The end of a batch, between `start` and `current`; a transaction is never split.

    The batch has about `max_rows` rows of all tables, estimated from bytes (eight per column), and
    at most about 256 MB. Raises `DataLossError` if the server no longer has the file of `start`.
    """
    if start.file == current.file:
        if current.pos - start.pos <= byte_budget(table, max_rows):
            return current
        return _transaction_end(session, start, byte_budget(table, max_rows)) or current
    files = log_files(session)
    names = [name for name, _ in files]
    if start.file not in names:
        raise purged_file_error(table.full_name, start.file, names)
    budget = byte_budget(table, max_rows)
    at = names.index(start.file)
    if sum(size for _, size in files[at:]) - start.pos <= budget:
        return current
    end = _transaction_end(session, start, budget) if files[at][1] - start.pos > budget else None
    return end or BinlogPosition(names[at + 1], BINLOG_START)


def purged_file_error(table: str, file: str, files: Sequence[str]) -> DataLossError:
    """The error for a needed binlog file that is not among the server's `files`."""
    oldest = files[0] if files else "none"
    return DataLossError(
        f"the server has removed the binlog file {file}, which {table} still needs (the oldest "
        f"file is {oldest}); {START_AGAIN}, and keep binlogs longer "
        "(expire_logs_days, binlog_expire_logs_seconds)"
    )


def reset_error(
    address: str, current: BinlogPosition, position: BinlogPosition, name: str = ""
) -> DataLossError:
    """The error for a binlog that ends at `current`, before a position that was in it."""
    again = f"start {name} again with a new checkpoint" if name else START_AGAIN
    return DataLossError(
        f"the binlog of MySQL at {address} ends at {current}, before {position}: it was reset "
        f"(RESET MASTER), or this is another server; {again}"
    )


def byte_budget(table: TableDefinition, max_rows: int | None) -> int:
    """About how many bytes of binlog hold `max_rows` rows, at most 256 MB."""
    if max_rows is None:
        return _MOST_BYTES
    return min(_MOST_BYTES, max_rows * _COLUMN_BYTES * (1 + len(table.columns)))


def _transaction_end(session: Session, start: BinlogPosition, budget: int) -> BinlogPosition | None:
    """The first end of a transaction past `budget` bytes; None if the file has none."""
    at = start.pos
    while True:
        rows = session.rows(
            f"SHOW BINLOG EVENTS IN '{start.file}' FROM {at} LIMIT {_EVENTS_PER_QUERY}"
        )
        for _, _, kind, _, end, info in rows:
            is_end = kind in _GROUP_ENDS or (kind.startswith("Query") and _ends_group(str(info)))
            if kind == "Rotate":
                return None
            if is_end and int(end) - start.pos >= budget:
                return BinlogPosition(start.file, int(end))
        if len(rows) < _EVENTS_PER_QUERY:
            return None
        at = int(rows[-1][4])


def _ends_group(info: str) -> bool:
    # Not "ROLLBACK TO `a`", which is inside a transaction.
    words = _DATABASE.sub("", info, count=1).strip().upper()
    return words in ("COMMIT", "ROLLBACK") or words.startswith(("XA COMMIT", "XA ROLLBACK"))
