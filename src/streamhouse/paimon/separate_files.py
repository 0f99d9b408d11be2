"""Rows of one key that must not be merged into one file.

- A table with `merge-engine` = `partial-update` may aggregate columns of a sequence group. Merging
  rows in memory, the Rust core drops what the first of them takes back: `-U` of 6 and `+U` of 14
  become 14 instead of 8, and the sum keeps the 6 for ever. Merging files it does it right.
- Where a `-D` removes the record (`remove-record-on-delete`), both cores make one row of it and the
  row after it, and forget that older files hold a record that it has removed.

What follows such a row goes into later files of the same commit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.merge_functions import merge_function
from streamhouse.paimon.removed_records import removes_records
from streamhouse.paimon.table import Table
from streamhouse.source import ROW_KIND

_MERGED = ("aggregation", "partial-update")


def _loses_removals(table: Table) -> bool:
    return table.options.get("merge-engine") == "partial-update" and any(
        key.endswith("aggregate-function") for key in table.options
    )


def needs_separate_files(table: Table) -> bool:
    """Whether rows of a key may have to go into several files."""
    return _loses_removals(table) or removes_records(table)


class SeparateFiles:
    """Holds rows back that must not be in one file with a removal of their key before them."""

    def __init__(self, table: Table) -> None:
        self._keys = list(table.primary_key)
        self._first = ("-U", "-D") if _loses_removals(table) else ()
        self._any = ("-D",) if removes_records(table) else ()
        self._there: set[tuple[Any, ...]] = set()
        self._removed: set[tuple[Any, ...]] = set()
        self._held: list[pa.RecordBatch] = []

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that go into the files that are written now."""
        columns = [batch.column(name).to_pylist() for name in self._keys]
        has_kinds = ROW_KIND in batch.schema.names
        kinds = batch.column(ROW_KIND).to_pylist() if has_kinds else ["+I"] * batch.num_rows
        now = np.ones(batch.num_rows, bool)
        for place, (kind, key) in enumerate(zip(kinds, zip(*columns, strict=True), strict=True)):
            if key in self._removed:
                now[place] = False
            elif kind in self._any or (kind in self._first and key not in self._there):
                self._removed.add(key)
            else:
                self._there.add(key)
        if now.all():
            return batch
        self._held.append(batch.filter(pa.array(~now)))
        return batch.filter(pa.array(now))

    def next(self) -> list[pa.RecordBatch]:
        """The rows of the files after those that have been written; empty when there are none."""
        held, self._held = self._held, []
        self._there, self._removed = set(), set()
        return [rows for rows in map(self.take, held) if rows.num_rows]


def factor_columns(table: Table) -> list[str]:
    """Columns that are merged by `product`, from which no core takes anything back reliably."""
    options = table.options
    if options.get("merge-engine") not in _MERGED:
        return []
    return [
        column.name
        for column in table.columns
        if column.name not in table.primary_key
        and merge_function(options, column.name) == "product"
        and options.get(f"fields.{column.name}.ignore-retract", "").lower() != "true"
    ]


def check_factors(table: Table, columns: list[str], batch: pa.RecordBatch) -> None:
    """Raise `TableError` for a row that takes a factor back.

    A merge without the rows before it, in memory or of new files alone, multiplies by what is to
    be divided by: in the Rust core as in Paimon's `FieldProductAgg`.
    """
    if not columns or ROW_KIND not in batch.schema.names:
        return
    back = batch.filter(pc.is_in(batch.column(ROW_KIND), value_set=pa.array(["-U", "-D"])))
    for name in columns:
        if back.num_rows > back.column(name).null_count:
            raise TableError(
                f"table {table.identifier}: column '{name}' is merged by product, from which "
                f"nothing can be taken back, and {back.num_rows} row(s) are removed or updated; "
                f"ALTER TABLE: SET ('fields.{name}.ignore-retract' = 'true') keeps the factors"
            )
