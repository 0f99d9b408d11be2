"""Reads the current rows of a MySQL table: those of some keys, or all, several ranges at once."""

import contextlib
import datetime
import socket
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa
import pymysql

from streamhouse.arrow_batches import read_ahead
from streamhouse.close_matches import nearest
from streamhouse.connectors.jdbc.options import ScanOptions
from streamhouse.errors import OptionError, TableError
from streamhouse.mysql.columns import selected_columns, server_zone
from streamhouse.mysql.connection import Session, close_quietly, connect, readable
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import load_columns
from streamhouse.mysql.values.result_rows import stream_columns
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.types import MySqlColumn, quote
from streamhouse.sql.plan import Column

MOST_CONNECTIONS = 8

Connection: TypeAlias = "pymysql.Connection[Any]"


_EPOCH = datetime.datetime(1970, 1, 1)
_NUMBER_FAMILIES = ("int", "uint64", "decimal", "year", "float", "double")
_TIMESTAMPS = ("date", "datetime", "timestamp")
_FIRST_YEAR = 1901
_SECOND = datetime.timedelta(seconds=1)
KEYS_PER_STATEMENT = 500
"""The most keys in one IN list; MariaDB turns lists of 1,000 and more into a temporary table."""
BYTES_PER_STATEMENT = 1 << 20
Key = tuple[Any, ...]


def conditions(
    session: Session, table: str, columns: Sequence[MySqlColumn], scan: ScanOptions
) -> list[str]:
    """The WHERE clause of each range; without bounds, the ranges contain all rows.

    `table`: its quoted name. Raises `TableError` or `OptionError` for a column or bounds that
    cannot be split.
    """
    column = _column(columns, scan.column)
    name, to_literal = quote(column.name), _literal(column)
    first = last = ""
    if scan.lower is not None and scan.upper is not None:
        low, first = _bound(column, scan.lower, "lower-bound")
        high, last = _bound(column, scan.upper, "upper-bound")
        if low > high:
            raise OptionError(
                f"option 'scan.partition.lower-bound': '{scan.lower}' is greater than "
                f"'scan.partition.upper-bound', '{scan.upper}'"
            )
        first, last = f"{name} >= {first}", f"{name} <= {last}"
    else:
        # Zero dates have no place on the time line, and years of two digits mean others; they are
        # in the first range.
        real = f" WHERE {name} >= '1000-01-01'" if column.family in _TIMESTAMPS else ""
        if column.family == "year":
            real = f" WHERE {name} >= {_FIRST_YEAR}"
        least, greatest = session.rows(f"SELECT MIN({name}), MAX({name}) FROM {table}{real}")[0]
        if least is None:
            return ["TRUE"]
        low, _ = _bound(column, _whole_date(str(least)), "lower-bound")
        high, _ = _bound(column, _whole_date(str(greatest)), "upper-bound")
    if column.family == "year":
        low = max(low, _FIRST_YEAR)
    count = max(1, min(scan.number, high - low + 1))
    starts = [low + (high - low + 1) * number // count for number in range(1, count)]
    literals = [to_literal(start) for start in starts]
    lower = [first, *(f"{name} >= {start}" for start in literals)]
    upper = [*(f"{name} < {start}" for start in literals), last]
    found = [" AND ".join(filter(None, ends)) or "TRUE" for ends in zip(lower, upper, strict=True)]
    if literals and not first:
        found[0] = f"({found[0]} OR {name} IS NULL)"
    return found


def _whole_date(text: str) -> str:
    """The text of a value that bounds a range; a month or a day can be zero."""
    return text.replace("-00", "-01")


def _column(columns: Sequence[MySqlColumn], name: str) -> MySqlColumn:
    by_name = {column.name: column for column in columns}
    if name not in by_name:
        raise TableError(
            f"option 'scan.partition.column': MySQL has no column '{name}'; "
            f"{nearest(name, by_name)}"
        )
    column = by_name[name]
    if column.family not in (*_NUMBER_FAMILIES, *_TIMESTAMPS):
        raise TableError(
            f"option 'scan.partition.column': '{name}' is {column.column_type}; it must be a "
            "number, a date or a timestamp"
        )
    return column


def _bound(column: MySqlColumn, text: str, bound: str) -> tuple[int, str]:
    """A bound as a whole number (of seconds since 1970, for timestamps), and as a literal."""
    try:
        if column.family in _NUMBER_FAMILIES:
            number = Decimal(text)
            return int(number.to_integral_value(ROUND_FLOOR)), f"{number:f}"
        timestamp = datetime.datetime.fromisoformat(text)
        return (timestamp - _EPOCH) // _SECOND, f"'{timestamp.isoformat(' ')}'"
    except (InvalidOperation, ValueError, TypeError):
        kind = "a number" if column.family in _NUMBER_FAMILIES else "a date such as '2024-01-31'"
        raise OptionError(
            f"option 'scan.partition.{bound}': '{text}' is not {kind}, as column '{column.name}' "
            f"({column.column_type}) needs"
        ) from None


def _literal(column: MySqlColumn) -> Callable[[int], str]:
    if column.family in _NUMBER_FAMILIES:
        return str
    if column.family == "date":
        return lambda seconds: f"'{(_EPOCH + seconds * _SECOND).date().isoformat()}'"
    return lambda seconds: f"'{(_EPOCH + seconds * _SECOND).isoformat(' ')}'"


class JdbcReader:
    """Reads a MySQL table, by key or as a whole. Connects when it is made; not thread-safe.

    `columns`: the declared columns to read, matched by name and cast to the declared types as in
    `mysql-cdc`; None: all columns of the table. Raises `OptionError`, `ConnectError` or
    `TableError`.
    """

    def __init__(self, options: MySqlOptions, columns: Sequence[Column] | None = None) -> None:
        self._options = options
        self._session = Session(options)
        try:
            self._available = load_columns(self._session, options)
            self._selected = selected_columns(options, self._available, columns)
            option = "serverTimezone in the option 'url'"
            zone = server_zone(self._session, options, self._selected, option)
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
        """The conditions that split a read of all rows."""
        return conditions(self._session, _table(self._options), self._available, scan)

    def all_rows(self, ranges: Sequence[str] = ("TRUE",)) -> Iterator[pa.RecordBatch]:
        """Stream the rows of these conditions in any order, over several connections at once."""
        left, connections = iter(ranges), list[Connection]()

        def read() -> Iterator[pa.RecordBatch]:
            for condition in left:
                yield from self._range_rows(condition, connections)

        batches = read_ahead(*[read] * min(MOST_CONNECTIONS, len(ranges)))
        try:
            # `yield from` would wait for the reads before their connections are closed.
            for batch in batches:  # noqa: UP028
                yield batch
        finally:
            # No other range is read, and reads that wait for the server fail.
            list(left)
            for connection in connections:
                underlying: Any = connection._sock  # type: ignore[attr-defined]
                if underlying is not None:
                    with contextlib.suppress(OSError):
                        underlying.shutdown(socket.SHUT_RDWR)
            batches.close()

    def _range_rows(
        self, condition: str, connections: list[Connection]
    ) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(self._selects)
        text = f"SELECT {columns} FROM {_table(self._options)} WHERE {condition}"
        connection: Connection | None = None
        try:
            connection = connect(self._options)
            connections.append(connection)
            for values in stream_columns(connection, text):
                yield self._batch(values)
        except (pymysql.err.MySQLError, OSError) as error:
            raise readable(error, self._options) from None
        finally:
            close_quietly(connection)

    def close(self) -> None:
        self._session.close()

    @property
    def _selects(self) -> list[str]:
        return [column.select for column, _ in self._selected]

    def _batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        return self._writer.snapshot(columns).select(self.schema.names)


def statement(
    options: MySqlOptions, selects: Sequence[str], names: Sequence[str], keys: Sequence[Key]
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


def _table(options: MySqlOptions) -> str:
    return f"{quote(options.database)}.{quote(options.table)}"
