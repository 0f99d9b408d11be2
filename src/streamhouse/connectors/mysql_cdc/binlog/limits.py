"""The files of the server's binlog, how much of them a batch reads, and errors about them."""

from collections.abc import Sequence

from streamhouse.errors import ConnectError, DataLossError
from streamhouse.mysql.connection import Session
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
