"""Reads the current rows of a MySQL table: those of some keys, or all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pymysql

from streamhouse.connectors.jdbc.options import JdbcServer, ScanOptions
from streamhouse.connectors.jdbc.parallel_read import conditions, parallel_rows
from streamhouse.mysql.columns import selected_columns, server_zone
from streamhouse.mysql.connection import Session, close_quietly, connect, readable
from streamhouse.mysql.table import load_columns
from streamhouse.mysql.values.result_rows import stream_columns
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.types import MySqlColumn, quote
from streamhouse.sql.plan import Column

KEYS_PER_STATEMENT = 500
"""The most keys in one IN list; MariaDB turns lists of 1,000 and more into a temporary table."""
BYTES_PER_STATEMENT = 1 << 20

Key = tuple[Any, ...]


class JdbcReader:
    """Reads a MySQL table, by key or as a whole. Connects when it is made; not thread-safe.

    `columns`: the declared columns to read, matched by name and cast to the declared types as in
    `mysql-cdc`; None: all columns of the table. Raises `OptionError`, `ConnectError` or
    `TableError`.
    """

    def __init__(self, options: JdbcServer, columns: Sequence[Column] | None = None) -> None:
        self._options = options
        self._session = Session(options)
        try:
            available = load_columns(self._session, options)
            self._selected = selected_columns(options, available, columns)
            zone = options.server_time_zone or server_zone(
                self._session, self._selected, "serverTimezone in the option 'url'"
            )
        except Exception:
            self._session.close()
            raise
        self._writer = RowWriter(tuple(self._selected), zone)

    def __repr__(self) -> str:
        return f"JdbcReader({self._options.name} at {self._options.address})"

    @property
    def schema(self) -> pa.Schema:
        return self._writer.schema

    def comparable(self, names: Sequence[str]) -> tuple[str, ...]:
        """The columns of `names` that the server can compare with values of the declared type."""
        by_name = {column.name: (column, target) for column, target in self._selected}
        return tuple(name for name in names if _same_values(*by_name[name]))

    def rows(self, names: Sequence[str], keys: Sequence[Key]) -> pa.Table:
        """The rows whose columns `names` equal one of these keys, which contain no nulls.

        The server compares with its own collations, so rows of other keys may be among them.
        """
        batches = []
        for slice_of_keys in key_slices(keys):
            sql, values = statement(self._options, self._selects, names, slice_of_keys)
            texts = self._session.rows(sql, values, raw=True)
            if texts:
                columns = zip(*texts, strict=True)
                batches.append(self._batch([pa.array(column, pa.binary()) for column in columns]))
        return pa.Table.from_batches(batches, self.schema)

    def ranges(self, scan: ScanOptions) -> list[str]:
        """The conditions that split a read of all rows, see `jdbc.parallel_read`."""
        columns = load_columns(self._session, self._options)
        return conditions(self._session, _table(self._options), columns, scan)

    def all_rows(self, ranges: Sequence[str] = ("TRUE",)) -> Iterator[pa.RecordBatch]:
        """Stream the rows of these conditions from the server, each over its own connection."""
        if len(ranges) == 1:
            return self._range_rows(ranges[0], lambda connection: None)
        return parallel_rows(ranges, self._range_rows)

    def _range_rows(
        self, condition: str, opened: Callable[[pymysql.Connection[Any]], None]
    ) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(self._selects)
        text = f"SELECT {columns} FROM {_table(self._options)} WHERE {condition}"
        connection: pymysql.Connection[Any] | None = None
        try:
            connection = connect(self._options)
            opened(connection)
            for values in stream_columns(connection, text):
                yield self._batch(values)
        except (pymysql.err.MySQLError, OSError) as error:
            raise readable(error, self._options) from None
        finally:
            if connection is not None:
                close_quietly(connection)

    def close(self) -> None:
        self._session.close()

    @property
    def _selects(self) -> list[str]:
        return [column.select for column, _ in self._selected]

    def _batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        return self._writer.snapshot(columns).select(self.schema.names)


def statement(
    options: JdbcServer, selects: Sequence[str], names: Sequence[str], keys: Sequence[Key]
) -> tuple[str, list[Any]]:
    """The SELECT for the rows of some keys, and its parameters."""
    # A percent sign in a name must not look like a parameter.
    columns = ", ".join(selects).replace("%", "%%")
    key = ", ".join(quote(name) for name in names).replace("%", "%%")
    table = _table(options).replace("%", "%%")
    placeholder = ", ".join(["%s"] * len(names))
    if len(names) > 1:
        key, placeholder = f"({key})", f"({placeholder})"
    placeholders = ", ".join([placeholder] * len(keys))
    text = f"SELECT {columns} FROM {table} WHERE {key} IN ({placeholders})"
    return text, [value for values in keys for value in values]


def key_slices(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    """Slices of the keys, one for each statement: limited in number and in bytes."""
    first, size = 0, 0
    for index, key in enumerate(keys):
        key_size = sum(len(value) if isinstance(value, str | bytes) else 16 for value in key)
        full = index - first >= KEYS_PER_STATEMENT or size + key_size > BYTES_PER_STATEMENT
        if index > first and full:
            yield keys[first:index]
            first, size = index, 0
        size += key_size
    if first < len(keys):
        yield keys[first:]


def _same_values(column: MySqlColumn, target: pa.DataType) -> bool:
    """Whether values that are equal in the declared type are equal to the server, too."""
    accepts: dict[str, Callable[[pa.DataType], bool]] = {
        **dict.fromkeys(("int", "uint64", "year", "decimal"), _is_exact_number),
        **dict.fromkeys(("string", "enum", "set"), pa.types.is_string),
        "date": pa.types.is_date,
        "binary": pa.types.is_binary,
    }
    if column.family in accepts:
        return bool(accepts[column.family](target))
    if column.family not in ("datetime", "timestamp") or not pa.types.is_timestamp(target):
        return False
    whole = target.unit == "us" or column.fraction <= 3
    return bool(whole and (target.tz is None) == (column.family == "datetime"))


def _is_exact_number(target: pa.DataType) -> bool:
    return bool(pa.types.is_integer(target) or pa.types.is_decimal(target))


def _table(options: JdbcServer) -> str:
    return f"{quote(options.database)}.{quote(options.table)}"
