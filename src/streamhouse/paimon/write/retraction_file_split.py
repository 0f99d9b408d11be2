"""Puts rows of one key into separate files where merging them into one file would be wrong.

- A table with `merge-engine` = `partial-update` may aggregate columns of a sequence group. When the
  Rust core merges rows in memory, it drops the retraction by the first of them: `-U` of 6 and `+U`
  of 14 become 14 instead of 8, and the sum keeps the 6 for ever. It merges files correctly.
- Where a `-D` removes the record (`remove-record-on-delete`), both cores merge it and the row after
  it into one row, and lose the information that the record in older files is removed.

Rows after such a retraction go into later files of the same commit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.remove_record_option import removes_records
from streamhouse.source import ROW_KIND


def _loses_removals(table: Table) -> bool:
    return table.options.get("merge-engine") == "partial-update" and any(
        key.endswith("aggregate-function") for key in table.options
    )


def needs_separate_files(table: Table) -> bool:
    """Whether rows of a key may have to go into several files."""
    return _loses_removals(table) or removes_records(table.options)


class SeparateFiles:
    """Holds back rows that must not be in one file with an earlier retraction of their key."""

    def __init__(self, table: Table) -> None:
        self._keys = list(table.primary_key)
        self._first_kinds = ("-U", "-D") if _loses_removals(table) else ()
        self._separating_kinds = ("-D",) if removes_records(table.options) else ()
        self._written_keys: set[tuple[Any, ...]] = set()
        self._removed_keys: set[tuple[Any, ...]] = set()
        self._held: list[pa.RecordBatch] = []

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for the files that are being written; holds back the others."""
        has_kinds = ROW_KIND in batch.schema.names
        kinds = batch.column(ROW_KIND).to_pylist() if has_kinds else ["+I"] * batch.num_rows
        if (
            not self._first_kinds
            and not self._removed_keys
            and not set(self._separating_kinds) & set(kinds)
        ):
            return batch
        columns = [batch.column(name).to_pylist() for name in self._keys]
        writable = np.ones(batch.num_rows, bool)
        for index, (kind, key) in enumerate(zip(kinds, zip(*columns, strict=True), strict=True)):
            if key in self._removed_keys:
                writable[index] = False
            elif kind in self._separating_kinds or (
                kind in self._first_kinds and key not in self._written_keys
            ):
                self._removed_keys.add(key)
            else:
                self._written_keys.add(key)
        if writable.all():
            return batch
        self._held.append(batch.filter(pa.array(~writable)))
        return batch.filter(pa.array(writable))

    def next(self) -> list[pa.RecordBatch]:
        """The held rows for the next files; an empty list when there are none."""
        held, self._held = self._held, []
        self._written_keys, self._removed_keys = set(), set()
        return [rows for rows in map(self.take, held) if rows.num_rows]
