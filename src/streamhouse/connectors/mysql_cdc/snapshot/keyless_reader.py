"""Reads a table without a key exactly as of a binlog position.

The rows are a multiset. A short lock determines which changes a SELECT sees. Those between the
position and the lock are undone (docs/decisions/001-mysql-chunks.md)."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pymysql
from pymysql.constants import ER

from streamhouse.background import ticking
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.dump import reset_error
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import ChangedRows
from streamhouse.connectors.mysql_cdc.binlog.xa import prepared_xids, xid_sql
from streamhouse.connectors.mysql_cdc.change_reader import (
    TablePosition,
    changed_rows,
    open_reader,
)
from streamhouse.errors import ConnectError, DataLossError, StreamhouseError
from streamhouse.mysql.connection import Backoff, Session, close_quietly, connect, run
from streamhouse.mysql.position import START_AGAIN, BinlogPosition
from streamhouse.mysql.table_lock import TableLock
from streamhouse.mysql.values.dates import DateReading, ZeroDates
from streamhouse.mysql.values.result_rows import Columns, stream_columns
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.types import MySqlColumn, from_texts, from_values, quote, to_values
from streamhouse.paimon.read.key_set import KeySet

_IN_MEMORY_BYTES = 32 << 20
_QUIET_S, _PROGRESS_S = 5.0, 15.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


class KeylessReader:
    """Reads all rows as of a position, on an executor.

    It writes the rows to a temporary file, and returns them only after the whole SELECT has
    succeeded. So it can start again after a lost connection.
    """

    def __init__(self, captured: CapturedTable, as_of: TablePosition, writer: RowWriter) -> None:
        self._writer = writer
        self._captured, self._server, self._as_of = captured, captured.server, as_of
        self._options, self._table = captured.options, captured.table
        self._name = f"{quote(self._table.database)}.{quote(self._table.name)}"
        self._session = Session(captured.options)
        self._relayed = True
        self._rows = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows as of the position, in pieces."""
        backoff = Backoff(self._options)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
            while True:
                try:
                    with ticking(self._report, _QUIET_S, _PROGRESS_S):
                        missing = self._spool(file)
                    break
                except (pymysql.err.MySQLError, OSError) as error:
                    backoff.retry(error, ER.TABLE_DEF_CHANGED)
                    self._relayed = False
                    file.seek(0)
                    file.truncate()
            file.seek(0)
            with pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield self._writer.snapshot(batch.columns)
            if missing:
                yield self._writer.inserted(missing)

    def close(self) -> None:
        self._session.close()

    def _spool(self, file: IO[bytes]) -> list[pa.Array]:
        """Write the selected rows that existed at the position; returns those deleted since."""
        self._rows = 0
        with ExitStack() as stack:
            lock = TableLock(self._options, self._table)
            stack.callback(lock.release)
            connection = lock.connection
            if self._table.consistent:
                connection = connect(self._options)
                stack.callback(close_quietly, connection)
                run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            lock.acquire()
            if self._table.consistent:
                run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
                seen = lock.position(self._server)
                lock.release()
                # From here on, no statement can alter the table until the transaction ends.
                run(connection, f"SELECT 1 FROM {self._name} LIMIT 0")
            else:
                self._check_prepared()
                seen = lock.position(self._server)
            differences = self._differences(seen, self._server.position(self._session))
            self._select(connection, file, differences)
        if differences.surplus:
            raise DataLossError(
                f"MySQL table {self._table.full_name} has no key, and lacks {differences.surplus} "
                f"of the rows that its binlog has after {self._as_of.position}, so that its rows "
                f"as of then are not known: they were changed without the binlog; {START_AGAIN}"
            )
        return differences.missing()

    def _select(
        self, connection: pymysql.Connection[Any], file: IO[bytes], differences: RowDifferences
    ) -> None:
        columns = [column.select for column in self._captured.columns]
        schema = pa.schema([(str(number), pa.binary()) for number in range(len(columns))])
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(file, schema, options=options) as writer:
            statement = f"SELECT {', '.join(columns)} FROM {self._name}"
            for piece in stream_columns(connection, statement):
                self._rows += len(piece[0])
                _write(writer, pa.record_batch(differences.without(piece), schema))

    def _differences(self, seen: BinlogPosition, now: BinlogPosition) -> RowDifferences:
        """How the rows at the position differ from those that the SELECT sees, at `seen`.

        Raises the error of a statement about the table between `seen` and `now`, too.
        """
        if seen < self._as_of.position:
            raise reset_error(self._options.address, seen, self._as_of.position)
        differences = RowDifferences(self._captured.columns, self._options.zero_dates)
        if self._as_of.position < now:
            with closing(open_reader({self._captured: self._as_of}, self._relayed)) as reader:
                differences.add(changed_rows(reader, seen))
                for _ in reader.row_events(now):
                    pass
        differences.complete()
        return differences

    def _check_prepared(self) -> None:
        """Raise `ConnectError` while XA transactions are prepared, as the lock waits for none."""
        prepared = prepared_xids(self._session, self._server.mariadb)
        if prepared:
            raise ConnectError(
                f"MySQL table {self._table.full_name} has no key, and its storage engine is not "
                "InnoDB, so its snapshot cannot be read while XA transactions are prepared; end "
                f"{xid_sql(min(prepared))}"
            )

    def _report(self, seconds: float) -> None:
        if self._rows:
            whole = self._table.size.rows
            share = f" of about {whole:,}" if whole > self._rows else ""
            print(
                f"{self._table.full_name}: {self._rows:,}{share} rows read in one transaction, "
                f"{self._rows / seconds:,.0f} rows/s",
                file=sys.stderr,
                flush=True,
            )


def _write(writer: Any, batch: pa.RecordBatch) -> None:
    try:
        writer.write_batch(batch)
    except OSError as error:
        if error.errno in _FULL:
            raise StreamhouseError(
                f"the temporary folder {tempfile.gettempdir()} is full: a table without a key is "
                "kept in it while it is read; free space, or set TMPDIR"
            ) from None
        raise


_Row: TypeAlias = tuple[Any, ...]


class RowDifferences:
    """How many more or fewer times each row existed before some changes than after them.

    Usage: `add` the changes, call `complete`, pass the rows after the changes through `without`,
    and append `missing`: these are the rows before. Rows are equal if all `columns` have exactly
    the same values. `zero_dates`: how to read zero dates.
    """

    def __init__(
        self, columns: Sequence[MySqlColumn], zero_dates: ZeroDates = "CONVERT_TO_NULL"
    ) -> None:
        self._columns, self._reading = columns, DateReading(zero_dates)
        self._counts: dict[_Row, int] = {}
        self._surplus: dict[_Row, int] = {}
        self._added: KeySet | None = None

    def add(self, changes: Iterable[ChangedRows]) -> None:
        """Add changes, in any order."""
        counts = self._counts
        for rows in changes:
            befores = rows.befores().to_pylist()
            pairs = zip(self._columns, rows.columns, strict=True)
            columns = [to_values(column, _exact(values)) for column, values in pairs]
            for before, row in zip(befores, zip(*columns, strict=True), strict=True):
                count = counts.get(row, 0) + (1 if before else -1)
                if count:
                    counts[row] = count
                else:
                    del counts[row]

    def complete(self) -> None:
        """End the changes; call `without` and `missing` after this."""
        self._surplus = {row: -count for row, count in self._counts.items() if count < 0}
        self._counts = {row: count for row, count in self._counts.items() if count > 0}

    @property
    def surplus(self) -> int:
        """How many rows `without` still has to remove; 0 after all rows have passed through it."""
        return sum(self._surplus.values())

    def without(self, rows: Columns) -> Columns:
        """The rows of a SELECT, without rows that the changes have added."""
        if not self._surplus:
            return rows
        pairs = zip(self._columns, rows, strict=True)
        columns = [_exact(from_texts(column, raw, self._reading)) for column, raw in pairs]
        if self._added is None:
            own = zip(self._columns, zip(*self._surplus, strict=True), strict=True)
            self._added = KeySet(_table([_exact(_array(column, values)) for column, values in own]))
        kept = np.ones(len(rows[0]), np.bool_)
        (indexes,) = np.nonzero(self._added.mask(_table(columns)))
        if not len(indexes):
            return rows
        some = [
            to_values(column, values.take(pa.array(indexes)))
            for column, values in zip(self._columns, columns, strict=True)
        ]
        for index, row in zip(indexes, zip(*some, strict=True), strict=True):
            left = self._surplus.get(row, 0)
            if left:
                kept[index] = False
                if left == 1:
                    del self._surplus[row]
                else:
                    self._surplus[row] = left - 1
        return [column.filter(pa.array(kept)) for column in rows]

    def missing(self) -> list[pa.Array]:
        """The plain arrays of the rows that the changes have removed."""
        rows = [row for row, count in self._counts.items() for _ in range(count)]
        if not rows:
            return []
        columns = zip(self._columns, zip(*rows, strict=True), strict=True)
        return [_array(column, values) for column, values in columns]


def _table(columns: Sequence[pa.Array]) -> pa.Table:
    return pa.table(columns, [str(number) for number in range(len(columns))])


def _exact(plain: pa.Array) -> pa.Array:
    """A plain array in a type in which `==` compares exact values."""
    # -0.0 is not 0.0
    return plain.view(pa.int64()) if pa.types.is_float64(plain.type) else plain


def _array(column: MySqlColumn, values: Sequence[Any]) -> pa.Array:
    """The plain array of values that `to_values` has returned for `_exact` arrays."""
    if pa.types.is_float64(column.plain):
        return pa.array(values, pa.int64()).view(column.plain)
    return from_values(column, values)
