"""Puts rows of one key into separate files where merging them into one file would be wrong.

- A table with `merge-engine` = `partial-update` may aggregate columns of a sequence group. When the
  Rust core merges rows in memory, it drops the retraction by the first of them: `-U` of 6 and `+U`
  of 14 become 14 instead of 8, and the sum keeps the 6 for ever. It merges files correctly.
- Where a `-D` removes the record (`remove-record-on-delete`), both cores merge it and the row after
  it into one row, and lose the information that the record in older files is removed.
- A retraction sets a `last_non_null_value` column to null. Merged with other rows it is a plain row
  with a null, which leaves the value of older files as it was (decision 121).
- A retraction takes elements out of a `collect`, `merge_map` or `nested_update` column. Merged with
  other rows it takes them out of those only (decision 121).

Rows for which this matters go into later files of the same commit.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.read.key_set import KeySet, Mask, as_mask
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.nulling_columns import collecting_columns, nulling_columns
from streamhouse.source import ROW_KIND, with_kinds
from streamhouse.sql.options.merge_functions import (
    group_sequence_fields,
    removes_records,
    sequence_fields,
)

_RETRACTIONS = ("-U", "-D")
_Key: TypeAlias = tuple[Any, ...]


def _loses_removals(table: Table) -> bool:
    return table.options.get("merge-engine") == "partial-update" and any(
        key.endswith("aggregate-function") for key in table.options
    )


@dataclass
class _Written:
    """The rows of one key in the current files.

    `nulled` are the columns that a retraction has set to null and no later row to a value, each
    with the retraction's sequence. `closed`: all further rows of the key are held. `restricted`:
    not every row of the key may follow.
    """

    rows: int = 0
    nulled: dict[str, _Key] = field(default_factory=dict)
    closed: bool = False
    restricted: bool = False

    @property
    def keeps_nulls(self) -> bool:
        """Whether the merged row still sets `nulled` to null: a single row keeps its kind."""
        return not self.nulled or self.rows == 1


class _Rows:
    """The columns of a batch that decide which rows can be in one file."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        nulling: Sequence[str],
        collecting: Sequence[str],
        sequence: Sequence[str],
    ) -> None:
        names = batch.schema.names
        self.kinds: list[str] = batch.column(ROW_KIND).to_pylist()
        self.values = {name: batch.column(name).to_pylist() for name in nulling if name in names}
        retracted = pc.is_in(batch.column(ROW_KIND), value_set=pa.array(_RETRACTIONS))
        self.alone = as_mask(retracted) & _any_valid(batch, collecting)
        """The retractions that must be the only row of their key in a file."""
        self._sequences = [
            batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
            for name in sequence
        ]

    def sequence(self, number: int) -> _Key:
        return tuple(column[number] for column in self._sequences)


class SeparateFiles:
    """Holds back rows that must not be in one file with earlier rows of their key."""

    def __init__(self, table: Table) -> None:
        self._keys = list(table.primary_key)
        self._first_kinds = _RETRACTIONS if _loses_removals(table) else ()
        self._removing_kinds = ("-D",) if removes_records(table.options) else ()
        columns = [name for name in table.arrow_schema.names if name not in self._keys]
        self._nulling = nulling_columns(table.options, columns)
        self._collecting = collecting_columns(table.options, columns)
        self.needed = bool(
            self._first_kinds or self._removing_kinds or self._nulling or self._collecting
        )
        """Whether rows of a key may have to go into several files."""
        self._sequence = [*sequence_fields(table.options), *group_sequence_fields(table.options)]
        self._descending = "descending" in table.options.get("sequence.field.sort-order", "")
        self._held: list[pa.RecordBatch] = []
        self._start_files()

    def _start_files(self) -> None:
        self._written: dict[_Key, _Written] = {}
        self._restricted: list[pa.Table] = []
        """The keys that the files have and of which not every row may follow."""
        self._others_written = False
        """Whether the files have rows whose keys are not in `_written`."""

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for the files that are being written; holds back the others."""
        rows = with_kinds(batch)
        concerned = self._concerned(rows)
        held = np.zeros(rows.num_rows, bool)
        if concerned.any():
            places = np.flatnonzero(concerned)
            held[places[self._held_rows(rows.filter(pa.array(concerned)))]] = True
        self._others_written |= not concerned.all()
        if not held.any():
            return batch
        self._held.append(rows.filter(pa.array(held)))
        return batch.filter(pa.array(~held))

    def next(self) -> list[pa.RecordBatch]:
        """The held rows for the next files; an empty list when there are none."""
        held, self._held = self._held, []
        self._start_files()
        return [rows for rows in map(self.take, _joined(held)) if rows.num_rows]

    def _concerned(self, batch: pa.RecordBatch) -> Mask:
        """The rows of keys that have a row here which may have to be in another file."""
        if self._first_kinds:
            return np.ones(batch.num_rows, bool)
        keys = list(self._restricted)
        separating = self._separating(batch)
        if separating.any():
            keys.append(self._keys_of(batch.filter(pa.array(separating))))
        if not keys:
            return separating
        return KeySet(pa.concat_tables(keys)).mask(self._keys_of(batch))

    def _separating(self, batch: pa.RecordBatch) -> Mask:
        kinds = batch.column(ROW_KIND)
        found = as_mask(pc.is_in(kinds, value_set=pa.array(self._removing_kinds, pa.string())))
        if self._nulling or self._collecting:
            retracted = as_mask(pc.is_in(kinds, value_set=pa.array(_RETRACTIONS)))
            found |= retracted & _any_valid(batch, self._collecting)
            # Whether the next row is merged later is decided row by row.
            found |= retracted if self._sequence else _left_null(
                batch, self._keys, self._nulling, retracted
            )  # fmt: skip
        return found

    def _keys_of(self, batch: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([batch.select(self._keys)])

    def _held_rows(self, batch: pa.RecordBatch) -> list[int]:
        """The rows of a batch that may not be in the current files; notes the others."""
        rows = _Rows(batch, self._nulling, self._collecting, self._sequence)
        held: list[int] = []
        restricted: list[int] = []
        for key, numbers in _by_key(batch, self._keys).items():
            written = self._written.setdefault(key, _Written(int(self._others_written)))
            count = self._count(written, rows, numbers)
            held += numbers[count:]
            written.closed |= count < len(numbers)
            if not written.restricted and (written.closed or written.nulled):
                written.restricted = True
                restricted.append(numbers[0])
        if restricted:
            self._restricted.append(self._keys_of(batch.take(pa.array(restricted))))
        return held

    def _count(self, written: _Written, rows: _Rows, numbers: Sequence[int]) -> int:
        """How many of a key's rows can go into the current files; notes them as written."""
        count = 0
        for position, number in enumerate(numbers, 1):
            if written.closed:
                break
            kind, is_first = rows.kinds[number], not written.rows
            if rows.alone[number] and not is_first:
                break
            written.rows += 1
            self._note(written, rows, number)
            if written.keeps_nulls:
                count = position
            written.closed = (
                kind in self._removing_kinds
                or bool(rows.alone[number])
                or (is_first and kind in self._first_kinds)
            )
        return count

    def _note(self, written: _Written, rows: _Rows, number: int) -> None:
        """Update the columns that are set to null by one more row."""
        kind = rows.kinds[number]
        if kind in self._removing_kinds:
            written.nulled.clear()
            return
        sequence = rows.sequence(number)
        for name, values in rows.values.items():
            if values[number] is None:
                continue
            if kind in _RETRACTIONS:
                written.nulled[name] = sequence
            elif name in written.nulled and self._is_later(sequence, written.nulled[name]):
                del written.nulled[name]

    def _is_later(self, sequence: _Key, than: _Key) -> bool:
        """Whether a row is certainly merged after a retraction that was written before it."""
        if self._sequence and (self._descending or None in sequence or None in than):
            return False
        return all(mine >= other for mine, other in zip(sequence, than, strict=True))


def _by_key(batch: pa.RecordBatch, keys: Sequence[str]) -> dict[_Key, list[int]]:
    numbers: dict[_Key, list[int]] = defaultdict(list)
    columns = (batch.column(name).to_pylist() for name in keys)
    for number, key in enumerate(zip(*columns, strict=True)):
        numbers[key].append(number)
    return numbers


def _left_null(
    batch: pa.RecordBatch, keys: Sequence[str], nulling: Sequence[str], retracted: Mask
) -> Mask:
    """The retractions of a column whose next row is not one of the same key that sets it again."""
    followed = np.append(~retracted[1:], False)
    for name in keys:
        column = batch.column(name)
        equal = pc.equal(column.slice(0, len(column) - 1), column.slice(1))
        followed &= np.append(as_mask(equal), False)
    left = np.zeros(batch.num_rows, bool)
    for name in nulling:
        if name in batch.schema.names:
            valid = as_mask(batch.column(name).is_valid())
            left |= retracted & valid & ~(followed & np.append(valid[1:], False))
    return left


def _any_valid(batch: pa.RecordBatch, columns: Sequence[str]) -> Mask:
    """The rows with a value in one of the columns."""
    valid = np.zeros(batch.num_rows, bool)
    for name in columns:
        if name in batch.schema.names:
            valid |= as_mask(batch.column(name).is_valid())
    return valid


def _joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, joined where they have the same columns: more rows of a key are seen at once."""
    for _, same in groupby(batches, lambda batch: batch.schema):
        yield pa.concat_batches(list(same))
