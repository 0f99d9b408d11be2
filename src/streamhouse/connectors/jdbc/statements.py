"""The statements that write rows, within size limits; Arrow values as literals of MySQL's SQL."""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import LAST, last_positions
from streamhouse.connectors.jdbc.target import TargetTable
from streamhouse.errors import TableError
from streamhouse.mysql.values.dates import texts_of
from streamhouse.mysql.values.types import MySqlColumn, quote, zoned
from streamhouse.source import ROW_KIND

_NOTHING = pa.scalar(b"")
_QUOTE = pa.scalar(b"'")
_BINARY = pa.scalar(b"_binary'")
_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_TIME_TEXT = len("03:04:05")
_WHOLE_NUMBERS = ("int", "uint64", "year")
_EXACT = "DECIMAL(65, 27)"
"""Holds all numbers of 38 digits before the point, and 27 after it."""
_SAFE_DIGITS = {"float": 6, "double": 15}
"""Any number of so many digits is read back as it was written."""


_STATEMENT_BYTES = 1 << 20
_PACKET_RESERVE = 64 << 10
_DELETED_KEYS = 500
"""The most keys of a DELETE; MariaDB turns lists of 1,000 and more into a temporary table."""
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 65_536, 64 << 20


def literals(column: MySqlColumn, values: pa.Array, zone: str) -> pa.Array:
    """A literal for each value, as binary values; nulls stay null.

    The session's time zone is UTC, and its SQL mode has backslash escapes. `zone`: between DATETIME
    and instants, as for reading. Raises `TableError` for values that MySQL cannot hold.
    """
    kind = values.type
    _check_number_of_member(column, values)
    _check_null(column, values)
    if column.family == "year":
        values = _years(column, values)
        kind = values.type
    if pa.types.is_boolean(kind):
        return pc.if_else(values, pa.scalar(b"1"), pa.scalar(b"0"))
    if pa.types.is_integer(kind):
        _check_approximate(column, values)
        return _text(values)
    if pa.types.is_floating(kind):
        _check_finite(column, values)
        _check_whole(column, values)
        return _quoted(_text(values))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(_escaped(values.cast(pa.string()).cast(pa.binary())))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _bytes(column, values.cast(pa.binary()))
    if pa.types.is_timestamp(kind):
        return _quoted(_timestamps(column, values, zone))
    if pa.types.is_time(kind):
        return _quoted(_times(column, values))
    if pa.types.is_decimal(kind):
        _check_whole(column, values)
        _check_approximate(column, values)
        if column.family == "string":
            return _quoted(_plain_digits(values))
        return _quoted(_text(values))
    if pa.types.is_date(kind):
        return _quoted(_text(values))
    if pa.types.is_list(kind) and column.family == "set":
        return _quoted(_escaped(pc.binary_join(values, ",").cast(pa.binary())))
    raise TableError(
        f"column '{column.name}': MySQL has no type for {kind}; write it as text, such as "
        "JSON_OBJECT(…) AS STRING, or leave the column out"
    )


def key_literals(column: MySqlColumn, values: pa.Array, zone: str) -> pa.Array:
    """A literal for each value, to compare with the column, as binary values.

    The server compares numbers with texts as doubles, in which different keys are equal. So each
    literal has the type of the column.
    """
    kind, family = values.type, column.family
    if family == "bit" and pa.types.is_binary(kind):
        numbers = [int.from_bytes(value, "big") for value in values.to_pylist()]
        return pa.array([b"%d" % number for number in numbers], pa.binary())
    if family == "binary" and column.data_type == "binary":
        padded = [
            value.ljust(column.length, b"\0") for value in values.cast(pa.binary()).to_pylist()
        ]
        return literals(column, pa.array(padded, pa.binary()), zone)
    found = literals(column, values, zone)
    quoted = not (pa.types.is_integer(kind) or pa.types.is_boolean(kind))
    if family == "float":
        return _cast(found, "FLOAT")
    if quoted and family in (*_WHOLE_NUMBERS, "decimal", "bit"):
        return _cast(found, _EXACT)
    if not quoted and family not in (*_WHOLE_NUMBERS, "decimal", "bit", "double"):
        return _quoted(found)
    return found


def _cast(literals: pa.Array, kind: str) -> pa.Array:
    end = f" AS {kind})".encode()
    return pc.binary_join_element_wise(pa.scalar(b"CAST("), literals, pa.scalar(end), _NOTHING)


def _text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.binary())


def _plain_digits(values: pa.Array) -> pa.Array:
    """As `_text`, but no decimal as `1E-10`."""
    texts = _text(values)
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    plain = [None if value is None else f"{value:f}".encode() for value in values.to_pylist()]
    return pa.array(plain, pa.binary())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING)


def _escaped(texts: pa.Array) -> pa.Array:
    for mark in (b"\\", b"'"):
        if pc.any(pc.match_substring(texts, mark)).as_py():
            texts = pc.replace_substring(texts, pattern=mark, replacement=b"\\" + mark)
    return texts


def _bytes(column: MySqlColumn, values: pa.Array) -> pa.Array:
    if column.family == "bit":
        hexadecimal = [
            None if v is None else b"X'" + v.hex().encode() + b"'" for v in values.to_pylist()
        ]
        return pa.array(hexadecimal, pa.binary())
    return pc.binary_join_element_wise(_BINARY, _escaped(values), _QUOTE, _NOTHING)


def _timestamps(column: MySqlColumn, values: pa.Array, zone: str) -> pa.Array:
    """Texts of timestamps, without the digits that the column does not hold."""
    zoned_type = _LOCAL if values.type.tz is None else _INSTANT
    micros = values.cast(zoned_type, safe=False)
    if column.family == "timestamp":
        micros = zoned(micros, _INSTANT, zone)
    elif column.family in ("datetime", "date"):
        micros = zoned(micros, _LOCAL, zone)
    digits = column.fraction if column.family in ("datetime", "timestamp") else 6
    return texts_of(micros, digits).cast(pa.binary())


def _times(column: MySqlColumn, values: pa.Array) -> pa.Array:
    """Texts of times, without the digits that the column does not hold."""
    texts = values.cast(pa.string())
    if column.family == "time":
        digits = column.fraction
        texts = pc.utf8_slice_codeunits(texts, 0, _TIME_TEXT + (1 + digits if digits else 0))
    return texts.cast(pa.binary())


def _check_null(column: MySqlColumn, values: pa.Array) -> None:
    """MariaDB stores the current time for a NULL in such a column."""
    if values.null_count and column.family == "timestamp" and not column.nullable:
        raise TableError(
            f"column '{column.name}' ({column.column_type} NOT NULL) cannot be null; write another "
            "value, or leave the column out"
        )


def _check_whole(column: MySqlColumn, values: pa.Array) -> None:
    """MySQL rounds without a word."""
    if column.family not in _WHOLE_NUMBERS:
        return
    fractions = values.filter(pc.not_equal(values, pc.floor(values)))
    if len(fractions):
        raise TableError(
            f"column '{column.name}' ({column.column_type}) has no fractions, and MySQL would "
            f"round {fractions[0]}; round it in the query, such as by ROUND, or change the column"
        )


def _check_approximate(column: MySqlColumn, values: pa.Array) -> None:
    """MySQL stores the nearest FLOAT or DOUBLE of an exact number without a word."""
    safe = _SAFE_DIGITS.get(column.family)
    if safe is None:
        return
    scale = values.type.scale if pa.types.is_decimal(values.type) else 0
    if not column.scale or scale <= column.scale:
        limit = pa.scalar(Decimal(10) ** (safe - scale))
        exact = values.cast(pa.decimal128(19, 0)) if pa.types.is_integer(values.type) else values
        within = pc.and_(pc.less(exact, limit), pc.greater(exact, pc.negate(limit)))
        values = values.filter(pc.invert(within))
    for value in map(Decimal, values.drop_null().unique().to_pylist()):
        if not _is_held(column, value):
            raise TableError(
                f"column '{column.name}' ({column.column_type}) does not hold all digits of "
                f"{value:f}, and MySQL would change it; CAST it to DOUBLE in the query to allow "
                "this, or change the column to DECIMAL or BIGINT"
            )


def _is_held(column: MySqlColumn, value: Decimal) -> bool:
    """Whether the column's value is this number, or has its digits after the point as text."""
    nearest = np.float64(value) if column.family == "double" else np.float32(value)
    if column.scale:
        nearest = nearest.round(column.scale)
    return Decimal(float(nearest)) == value or (value % 1 != 0 and Decimal(str(nearest)) == value)


def _years(column: MySqlColumn, values: pa.Array) -> pa.Array:
    """Values of a YEAR, none of which MySQL takes for the last two digits of another."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(values.type) or pa.types.is_floating(values.type):
        if pa.types.is_floating(values.type):
            _check_finite(column, values)
        _check_whole(column, values)
        values = values.cast(pa.int64())
    if pa.types.is_integer(values.type):
        wrong = values.filter(pc.and_(pc.greater(values, 0), pc.less(values, 100)))
    elif pa.types.is_string(values.type):
        wrong = values.filter(pc.invert(pc.match_substring_regex(values, r"^\d{4}$")))
    else:
        return values
    if len(wrong):
        raise TableError(
            f"column '{column.name}' ({column.column_type}) would take {wrong[0]} for another "
            "year; write all four digits"
        )
    return values


def _check_number_of_member(column: MySqlColumn, values: pa.Array) -> None:
    """MySQL takes a number, also as text, for the member of that number."""
    if column.family not in ("enum", "set"):
        return
    texts = values.flatten() if pa.types.is_list(values.type) else values
    texts = texts.cast(pa.string()).drop_null().unique()
    numbers = [text for text in texts.to_pylist() if text.isdigit() or text in ("true", "false")]
    wrong = [text for text in numbers if text not in column.members]
    if wrong:
        raise TableError(
            f"column '{column.name}' ({column.column_type}) has no member '{wrong[0]}'; write one "
            "of its members, as STRING"
        )


def _check_finite(column: MySqlColumn, values: pa.Array) -> None:
    if not pc.all(pc.is_finite(values)).as_py() and values.null_count < len(values):
        raise TableError(
            f"column '{column.name}' ({column.column_type}): MySQL has no NaN and no infinity; "
            f"write NULL instead, such as IF(IS_DECIMAL(CAST(x AS STRING)), x, NULL)"
        )


def net_changes(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The last change of each key: the rows to upsert, and the keys to delete, sorted by key.

    `rows` may have a column `rowkind`. Raises `TableError` for a key with a null.
    """
    for name in key:
        if rows.column(name).null_count:
            raise TableError(
                f"column '{name}' of the PRIMARY KEY has a NULL; filter these rows, such as by "
                f"WHERE {name} IS NOT NULL"
            )
    # Rows in the order of the key are fast to insert, and lock each other in one order.
    positions = last_positions(rows, key).sort_by([(name, "ascending") for name in key])
    last = rows.take(positions.column(LAST))
    if ROW_KIND not in rows.column_names:
        return last, last.slice(0, 0).select(list(key))
    kept = pc.is_in(last.column(ROW_KIND), pa.array(["+I", "+U"]))
    upserts = last.filter(kept).drop_columns([ROW_KIND])
    return upserts, last.filter(pc.invert(kept)).select(list(key))


class Statements:
    """The SQL texts that write rows into a table."""

    def __init__(self, target: TargetTable, most_rows: int | None) -> None:
        self._target = target
        self._most_rows = most_rows or _ROWS_AT_ONCE
        self._bytes = min(_STATEMENT_BYTES, max(1024, target.packet_bytes - _PACKET_RESERVE))
        columns = [(quote(column.name), column) for column in target.columns]
        keys = [name for name, column in columns if column.name in target.key]
        names, key = ", ".join(name for name, _ in columns), ", ".join(keys)
        self._insert = f"INSERT INTO {target.quoted} ({names}) VALUES ".encode()
        self._key = [column for column in target.columns if column.name in target.key]
        where = f" FROM {target.quoted} WHERE {f'({key})' if len(keys) > 1 else key} IN ("
        self._where = where.encode()
        # A text that a collation takes for equal is another text: the key is written, too.
        updated = [
            name for name, column in columns if name not in keys or column.charset is not None
        ]
        # A row that another unique index found keeps its key, and is not counted later.
        kept = keys if target.other_keys else []
        sets = [
            f"{name} = IF({name} = VALUES({name}), VALUES({name}), {name})"
            if name in kept
            else f"{name} = VALUES({name})"
            for name in updated
        ]
        sets = sets or [f"{name} = {name}" for name in keys[:1]]
        self._on_duplicate = f" ON DUPLICATE KEY UPDATE {', '.join(sets)}".encode() if keys else b""

    def inserts(self, rows: pa.Table) -> Iterator[bytes]:
        """INSERTs of rows, which with a key update the rows whose keys exist."""
        for values in self._row_lists(rows, self._target.columns, self._most_rows):
            yield self._insert + values + self._on_duplicate

    def deletes(self, keys: pa.Table) -> Iterator[bytes]:
        """DELETEs of the rows with these keys."""
        return self._of_keys(b"DELETE", keys)

    def count(self, keys: pa.Table) -> Iterator[bytes]:
        """SELECTs that count the rows with these keys."""
        return self._of_keys(b"SELECT COUNT(*)", keys)

    def _of_keys(self, verb: bytes, keys: pa.Table) -> Iterator[bytes]:
        for values in self._row_lists(keys, self._key, _DELETED_KEYS, key_literals):
            yield verb + self._where + values + b")"

    def _row_lists(
        self,
        rows: pa.Table,
        columns: Sequence[MySqlColumn],
        most_rows: int,
        literals_of: Callable[[MySqlColumn, pa.Array, str], pa.Array] = literals,
    ) -> Iterator[bytes]:
        """Lists of rows, `(1, 'a'), (2, 'b')`, within the limits."""
        fitting = _BYTES_AT_ONCE * rows.num_rows // max(1, rows.nbytes)
        for batch in rows.to_batches(max_chunksize=max(1, min(_ROWS_AT_ONCE, fitting))):
            texts = [
                literals_of(column, batch.column(column.name), self._target.zone)
                for column in columns
            ]
            written = _row_texts(texts)
            self._check_longest(written)
            yield from _joined(written, most_rows, self._bytes)

    def _check_longest(self, texts: pa.Array) -> None:
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        limit = self._target.packet_bytes - len(self._insert) - len(self._on_duplicate)
        if longest > limit:
            raise TableError(
                f"MySQL table {self._target.name}: a row has {longest:,} bytes, more than the "
                f"server takes (max_allowed_packet = {self._target.packet_bytes:,}); raise that "
                "variable, or filter such rows"
            )


def _row_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """Each row as `(1,'a'),`, a binary array."""
    comma = pa.scalar(b",")
    parts: list[pa.Array | pa.Scalar] = [pa.scalar(b"(")]
    for number, column in enumerate(columns):
        parts += [comma, column] if number else [column]
    return pc.binary_join_element_wise(
        *parts, pa.scalar(b"),"), pa.scalar(b""), null_handling="replace", null_replacement="NULL"
    )


def _joined(texts: pa.Array, most_rows: int, most_bytes: int) -> Iterator[bytes]:
    """Adjacent texts, without the last comma: their bytes are adjacent in memory already."""
    _, bounds, data = texts.buffers()
    ends = np.frombuffer(bounds, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    view, first = memoryview(data), 0
    while first < len(texts):
        fits = int(np.searchsorted(ends, ends[first] + most_bytes, side="right")) - 1
        last = min(max(first + 1, fits), first + most_rows, len(texts))
        yield bytes(view[ends[first] : ends[last] - 1])
        first = last
