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

from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.removal_option import removes_records
from streamhouse.source import ROW_KIND


def _loses_removals(table: Table) -> bool:
    return table.options.get("merge-engine") == "partial-update" and any(
        key.endswith("aggregate-function") for key in table.options
    )


def needs_separate_files(table: Table) -> bool:
    """Whether rows of a key may have to go into several files."""
    return _loses_removals(table) or removes_records(table.options)


class SeparateFiles:
    """Holds rows back that must not be in one file with a removal of their key before them."""

    def __init__(self, table: Table) -> None:
        self._keys = list(table.primary_key)
        self._first = ("-U", "-D") if _loses_removals(table) else ()
        self._any = ("-D",) if removes_records(table.options) else ()
        self._there: set[tuple[Any, ...]] = set()
        self._removed: set[tuple[Any, ...]] = set()
        self._held: list[pa.RecordBatch] = []

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that go into the files that are written now."""
        has_kinds = ROW_KIND in batch.schema.names
        kinds = batch.column(ROW_KIND).to_pylist() if has_kinds else ["+I"] * batch.num_rows
        if not self._first and not self._removed and not set(self._any) & set(kinds):
            return batch
        columns = [batch.column(name).to_pylist() for name in self._keys]
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
