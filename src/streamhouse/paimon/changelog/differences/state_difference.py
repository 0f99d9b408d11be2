"""Computes the changes between two states of a table, as rows with row kinds.

DuckDB compares the rows and returns only row numbers. The values are taken from the two Arrow
tables, so no type is converted. Columns are renamed for DuckDB, whose names ignore case. Keys are
compared bit by bit, as Paimon does: 0.0 and -0.0, which DuckDB considers equal, are two keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamhouse.paimon.read.key_set import KeySet, float_bits
from streamhouse.source import ROW_KIND, ROW_KINDS

if TYPE_CHECKING:
    from streamhouse.duckdb_connection import LastingConnection

_ROW = "row"
RowNumbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""Row numbers."""


def _distinct(kind: pa.DataType, a: str, b: str) -> str:
    return f"{a} IS DISTINCT FROM {b}"


def _changed(
    schema: pa.Schema,
    left_out: Collection[str],
    differs: Callable[[pa.DataType, str, str], str] = _distinct,
) -> str:
    """SQL for whether the values of two rows differ."""
    compared = ((i, field.type) for i, field in enumerate(schema) if field.name not in left_out)
    return " OR ".join(differs(kind, f"o.c{i}", f"n.c{i}") for i, kind in compared) or "false"


class Differ:
    """Compares states of one table; after `prepare`, holds an in-memory DuckDB until `close`."""

    _connection: LastingConnection | None = None

    def prepare(self) -> LastingConnection:
        """Import DuckDB, if that is not done; a comparison does it, too."""
        if self._connection is None:
            # Slow to import, and most readers of a table compare nothing.
            from streamhouse.duckdb_connection import LastingConnection

            self._connection = LastingConnection(threads=2)
        return self._connection

    def close(self) -> None:
        """Free what DuckDB holds."""
        if self._connection is not None:
            self._connection.close()

    def by_key(
        self,
        old: pa.Table,
        new: pa.Table,
        key: Sequence[str],
        kept: Collection[str] = (),
        differs: Callable[[pa.DataType, str, str], str] = _distinct,
    ) -> pa.Table:
        """The changes that turn `old` into `new`, in the order of the key, -U just before its +U.

        Both have the same columns; the key is unique in each. `kept` columns are not compared, and
        updates leave them as they are; the others are compared by the SQL that `differs` returns
        for a type and two columns. Returns `rowkind`, then the columns.
        """
        names = new.schema.names
        keys = [names.index(name) for name in key]
        join_condition = _same_keys(new, keys)
        changed = _changed(new.schema, (*key, *kept), differs)
        floats = [i for i in keys if pa.types.is_floating(new.schema.field(i).type)]
        sort_columns = [*(f"c{i}" for i in keys), *(f"b{i}" for i in floats)]
        order = ", ".join(f"coalesce(o.{name}, n.{name})" for name in sort_columns)
        pairs = self._pairs(
            old,
            new,
            f"SELECT o.{_ROW} AS o, n.{_ROW} AS n FROM old o "
            f"FULL OUTER JOIN new n ON {join_condition} "
            f"WHERE o.{_ROW} IS NULL OR n.{_ROW} IS NULL OR {changed} ORDER BY {order}",
            key,
        )
        return _changes(old, new, *pairs, kept)

    def renewed(
        self,
        old: pa.Table,
        new: pa.Table,
        key: Sequence[str],
        sequence: Sequence[str] = (),
        descending: bool = False,
        always: pa.Table | None = None,
    ) -> pa.Table:
        """The rows of `new` that differ from the row of their key in `old`, or have none there.

        Returns changes as `by_key`, in the order of `new`. Leaves out rows that are older than the
        one in `old` by the `sequence` columns (if `descending`, those with greater values), unless
        their key is in `always`. Rows whose key is in `always` are included even if they are equal.
        """
        names = new.schema.names
        keys = [names.index(name) for name in key]
        join_condition = _same_keys(new, keys)
        late = _earlier([names.index(name) for name in sequence], descending)
        condition = f"o.{_ROW} IS NULL OR (({_changed(new.schema, key)}) AND NOT {late})"
        if always is not None:
            condition += f" OR n.c{len(names)}"
            included = KeySet(always.select(list(key))).mask(new)
            new = new.append_column("", pa.array(included))
        pairs = self._pairs(
            old,
            new,
            f"SELECT o.{_ROW} AS o, n.{_ROW} AS n FROM new n LEFT JOIN old o ON {join_condition} "
            f"WHERE {condition} ORDER BY n.{_ROW}",
            key,
        )
        return _changes(old, new.select(names), *pairs)

    def by_row(self, old: pa.Table, new: pa.Table) -> pa.Table:
        """As `by_key` for tables without a key: removed rows (-D), then added ones (+I)."""
        columns = ", ".join(f"c{i}" for i in range(new.num_columns))
        # A running number distinguishes equal rows, which are counted as EXCEPT ALL does.
        copy_number = f"row_number() OVER (PARTITION BY {columns} ORDER BY {_ROW}) AS copy"
        same_values = " AND ".join(
            f"o.c{i} IS NOT DISTINCT FROM n.c{i}" for i in range(new.num_columns)
        )
        pairs = self._pairs(
            old,
            new,
            f"SELECT o.{_ROW} AS o, n.{_ROW} AS n "
            f"FROM (SELECT *, {copy_number} FROM old) o "
            f"FULL OUTER JOIN (SELECT *, {copy_number} FROM new) n "
            f"ON o.copy = n.copy AND {same_values} "
            f"WHERE o.{_ROW} IS NULL OR n.{_ROW} IS NULL "
            f"ORDER BY n.{_ROW} NULLS FIRST, o.{_ROW}",
        )
        return _changes(old, new, *pairs)

    def where(self, table: pa.Table, condition: str) -> pa.Table:
        """The rows that meet a condition of DuckDB, in which the columns are `c0`, `c1`, …"""
        sql = f"SELECT {_ROW} FROM t WHERE {condition} ORDER BY {_ROW}"
        return table.take(self.prepare().run(sql, t=_numbered(table)).column(0))

    def _pairs(
        self, old: pa.Table, new: pa.Table, query: str, key: Sequence[str] = ()
    ) -> tuple[RowNumbers, RowNumbers]:
        pairs = self.prepare().run(query, old=_numbered(old, key), new=_numbered(new, key))
        return _row_numbers(pairs, "o"), _row_numbers(pairs, "n")


def _earlier(positions: Sequence[int], descending: bool) -> str:
    """SQL for whether the new row is older than the old one, never null.

    False if the first column that differs is null in one of the rows: the merge engine decides.
    """
    operator = ">" if descending else "<"
    terms, equal_so_far = [], ""
    for i in positions:
        terms.append(f"({equal_so_far}coalesce(n.c{i} {operator} o.c{i}, false))")
        equal_so_far += f"n.c{i} IS NOT DISTINCT FROM o.c{i} AND "
    return f"({' OR '.join(terms)})" if terms else "false"


def _row_numbers(pairs: pa.Table, name: str) -> RowNumbers:
    """Row numbers; -1 where there is no row."""
    filled = pairs.column(name).fill_null(-1).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def _changes(
    old: pa.Table,
    new: pa.Table,
    old_rows: RowNumbers,
    new_rows: RowNumbers,
    kept: Collection[str] = (),
) -> pa.Table:
    """For each pair, the row before the change, then the row after it, if they exist."""
    in_old, in_new = old_rows >= 0, new_rows >= 0
    before = np.where(in_new, ROW_KINDS.index("-U"), ROW_KINDS.index("-D"))
    after = np.where(in_old, ROW_KINDS.index("+U"), ROW_KINDS.index("+I"))
    exists = np.column_stack((in_old, in_new)).ravel()
    kinds = np.column_stack((before, after)).ravel()[exists].astype(np.int32)
    both, later = pa.concat_tables([old, new]), new_rows + old.num_rows
    rows = pa.array(np.column_stack((old_rows, later)).ravel()[exists])
    present = np.where(in_old, old_rows, later)
    rows_kept = pa.array(np.column_stack((present, present)).ravel()[exists])
    arrays = [
        values.take(rows_kept if name in kept else rows)
        for name, values in zip(both.schema.names, both.columns, strict=True)
    ]
    column = pa.array(ROW_KINDS, pa.string()).take(pa.array(kinds))
    changes = pa.Table.from_arrays(arrays, schema=both.schema)
    return changes.add_column(0, ROW_KIND, column)


def _same_keys(table: pa.Table, positions: Sequence[int]) -> str:
    """SQL for whether an old and a new row have the same key, whose columns are at `positions`."""
    floating = [pa.types.is_floating(table.schema.field(at).type) for at in positions]
    names = [f"b{at}" if bits else f"c{at}" for at, bits in zip(positions, floating, strict=True)]
    return " AND ".join(f"o.{name} = n.{name}" for name in names)


def _numbered(table: pa.Table, key: Sequence[str] = ()) -> pa.Table:
    """The columns as `c0`, `c1`, …, the bits of floating-point key columns as `b<i>`, the row."""
    numbered = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
    for i, field in enumerate(table.schema):
        if field.name in key and pa.types.is_floating(field.type):
            numbered = numbered.append_column(f"b{i}", float_bits(table.column(i)))
    return numbered.append_column(_ROW, pa.array(np.arange(table.num_rows)))
