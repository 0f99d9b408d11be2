"""The statements that write rows: multi-row INSERTs, upserts and DELETEs, within size limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import LAST, last_positions
from streamhouse.connectors.jdbc.literals import key_literals, literals
from streamhouse.connectors.jdbc.target import TargetTable
from streamhouse.errors import TableError
from streamhouse.mysql.values.types import MySqlColumn, quote
from streamhouse.source import ROW_KIND

_STATEMENT_BYTES = 1 << 20
_PACKET_RESERVE = 64 << 10
_DELETED_KEYS = 500
"""The most keys of a DELETE; MariaDB turns lists of 1,000 and more into a temporary table."""
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 65_536, 64 << 20


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
        names = ", ".join(quote(column.name) for column in target.columns)
        self._insert = f"INSERT INTO {target.quoted} ({names}) VALUES ".encode()
        self._key = [column for column in target.columns if column.name in target.key]

    def inserts(self, rows: pa.Table) -> Iterator[tuple[bytes, int]]:
        """INSERTs of new rows, each with its number of rows."""
        yield from self._insert_statements(rows, b"")

    def upserts(self, rows: pa.Table) -> Iterator[tuple[bytes, int]]:
        """INSERTs that update the rows whose keys exist, each with its number of rows."""
        yield from self._insert_statements(rows, self._on_duplicate)

    def deletes(self, keys: pa.Table) -> Iterator[bytes]:
        """DELETEs of the rows with these keys."""
        for values in self._key_lists(keys):
            yield b"DELETE FROM %s WHERE %s IN (%s)" % (
                self._target.quoted.encode(),
                self._key_names,
                values,
            )

    def count(self, keys: pa.Table) -> Iterator[bytes]:
        """SELECTs that count the rows with these keys."""
        for values in self._key_lists(keys):
            yield b"SELECT COUNT(*) FROM %s WHERE %s IN (%s)" % (
                self._target.quoted.encode(),
                self._key_names,
                values,
            )

    @property
    def _key_names(self) -> bytes:
        names = ", ".join(quote(column.name) for column in self._key)
        return (f"({names})" if len(self._key) > 1 else names).encode()

    @property
    def _on_duplicate(self) -> bytes:
        # A text that a collation takes for equal is another text: the key is written, too.
        updated = [
            quote(column.name)
            for column in self._target.columns
            if column.name not in self._target.key or column.charset is not None
        ]
        if not self._key:
            return b""
        first = quote(self._key[0].name)
        keys = {quote(column.name) for column in self._key} if self._target.other_keys else ()
        sets = [self._set(name, name in keys) for name in updated] or [f"{first} = {first}"]
        return f" ON DUPLICATE KEY UPDATE {', '.join(sets)}".encode()

    @staticmethod
    def _set(name: str, key: bool) -> str:
        """`key`: a row that another unique index found keeps its key, and is not counted later."""
        if key:
            return f"{name} = IF({name} = VALUES({name}), VALUES({name}), {name})"
        return f"{name} = VALUES({name})"

    def _key_lists(self, keys: pa.Table) -> Iterator[bytes]:
        for values, _ in self._row_lists(keys, self._key, _DELETED_KEYS, key_literals):
            yield values

    def _insert_statements(self, rows: pa.Table, suffix: bytes) -> Iterator[tuple[bytes, int]]:
        for values, count in self._row_lists(rows, self._target.columns, self._most_rows):
            yield self._insert + values + suffix, count

    def _row_lists(
        self,
        rows: pa.Table,
        columns: Sequence[MySqlColumn],
        most_rows: int,
        literals_of: Callable[[MySqlColumn, pa.Array, str], pa.Array] = literals,
    ) -> Iterator[tuple[bytes, int]]:
        """Lists of rows, `(1, 'a'), (2, 'b')`, each with its number of rows; within the limits."""
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


def _joined(texts: pa.Array, most_rows: int, most_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Adjacent texts, without the last comma: their bytes are adjacent in memory already."""
    _, bounds, data = texts.buffers()
    ends = np.frombuffer(bounds, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    view, first = memoryview(data), 0
    while first < len(texts):
        fits = int(np.searchsorted(ends, ends[first] + most_bytes, side="right")) - 1
        last = min(max(first + 1, fits), first + most_rows, len(texts))
        yield bytes(view[ends[first] : ends[last] - 1]), last - first
        first = last
