"""Limits how far a batch reads the server's binlog: up to an end of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump
from streamhouse.errors import ConnectError, DataLossError
from streamhouse.mysql.connection import Session, retried
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BINLOG_START, START_AGAIN, BinlogPosition
from streamhouse.mysql.table import TableDefinition

_MOST_BYTES = 256 * 1024 * 1024
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
    options: MySqlOptions,
    table: TableDefinition,
    start: BinlogPosition,
    current: BinlogPosition,
    max_rows: int | None,
) -> BinlogPosition:
    """The end of a batch, between `start` and `current`; a transaction is never split.

    The batch has about `max_rows` rows of all tables, estimated from bytes (eight per column), and
    at most about 256 MB. Raises `DataLossError` if the server no longer has the file of `start`.
    """
    budget, following = byte_budget(table, max_rows), current
    size = current.pos if start.file == current.file else 0
    if start.file != current.file:
        files = log_files(session)
        names = [name for name, _ in files]
        if start.file not in names:
            raise purged_file_error(table.full_name, start.file, names)
        at = names.index(start.file)
        if sum(size for _, size in files[at:]) - start.pos <= budget:
            return current
        size, following = files[at][1], BinlogPosition(names[at + 1], BINLOG_START)
    if size - start.pos <= budget:
        return following
    return retried(options, lambda: _transaction_end(options, start, following, budget))


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


def _transaction_end(
    options: MySqlOptions, start: BinlogPosition, last: BinlogPosition, budget: int
) -> BinlogPosition:
    """The first end of a transaction past `budget` bytes of a file; `last` if it has none."""
    with closing(BinlogDump(options, start)) as dump:
        track = dump.track
        for _ in dump.events():
            if track.between and (track.file != start.file or track.position >= last):
                break
            if track.between and track.pos - start.pos >= budget:
                return track.position
    return last
