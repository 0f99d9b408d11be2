"""Rows of a keyed table in groups that can be written at once: by bucket, hence by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamhouse.paimon.rows import column
from streamhouse.paimon.table import Table

MOST_GROUPS = 8
"""More groups than cores are of little use, and each is a file of each task."""

_SEED = np.uint32(42)
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)


@dataclass(frozen=True)
class Grouping:
    """Which of `count` groups a row belongs to: that of its bucket, by its bucket key.

    All rows of one key are of one group, whatever the hash; that the hash is Paimon's own makes
    a bucket's rows meet in one group, and so in one file. `fields` are the bucket key's as the
    table named `table` has them: two values that are cast to one key must meet, too.
    """

    table: str
    fields: tuple[pa.Field, ...]
    buckets: int
    count: int

    @classmethod
    def of(cls, table: Table) -> Grouping | None:
        """None where there is one group only: one bucket, dynamic ones, or keys of other types."""
        given = table.options.get("bucket-key")
        columns = (
            tuple(name.strip() for name in given.split(","))
            if given
            else tuple(key for key in table.primary_key if key not in table.partition_keys)
        )
        count = min(table.bucket, MOST_GROUPS)
        fields = tuple(table.arrow_schema.field(name) for name in columns)
        plain = all(_fixed(field.type) for field in fields)
        if count < 2 or not columns or not plain or not set(columns) <= set(table.primary_key):
            return None
        return cls(table.identifier, fields, table.bucket, count)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's rows by group, each group's in their order; empty groups are left out."""
        groups = self._groups(batch)
        order = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups, minlength=self.count)
        sorted_rows = batch.take(pa.array(order))
        start = 0
        for group, size in enumerate(sizes.tolist()):
            if size:
                yield group, sorted_rows.slice(start, size)
            start += size

    def only(self, batch: pa.RecordBatch, group: int) -> pa.RecordBatch:
        """The rows of one group."""
        return batch.filter(pa.array(self._groups(batch) == group))

    def _groups(self, batch: pa.RecordBatch) -> Any:
        keys = [column(batch, field, self.table) for field in self.fields]
        return (bucket_of(keys, self.buckets) % self.count).astype(np.uint8)


def bucket_of(keys: Sequence[pa.Array], buckets: int) -> Any:
    """The bucket of each row as Paimon's default function has it: Murmur3 over its binary row.

    `keys` are the columns of the bucket key, without nulls: integers, days, milliseconds.
    """
    words = [np.uint32(0)] * (2 * ((len(keys) + 71) // 64))
    for key in keys:
        words += _words(key)
    with np.errstate(over="ignore"):
        state: Any = _SEED
        for word in words:
            mixed = _rotated(np.multiply(word, _C1, dtype=np.uint32), 15) * _C2
            state = _rotated(state ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state = state ^ np.uint32(4 * len(words))
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        state = state ^ (state >> np.uint32(16))
    return np.abs(state.view(np.int32).astype(np.int64)) % buckets


def _words(array: pa.Array) -> list[Any]:
    """The two words of a field of fixed length; narrow values fill only their own bytes."""
    if pa.types.is_timestamp(array.type):
        # Paimon holds all moments of up to three digits as milliseconds.
        array = array.cast(pa.timestamp("ms", array.type.tz))
    width = array.type.bit_width
    plain = array.view(pa.int32() if width == 32 else pa.int64()) if width >= 32 else array
    values = plain.to_numpy(zero_copy_only=False)
    if width == 64:
        pairs = np.ascontiguousarray(values, dtype=np.int64).view(np.uint32)
        return [pairs[0::2], pairs[1::2]]
    mask = np.uint32((1 << width) - 1)
    return [values.astype(np.int64).astype(np.uint32) & mask, np.uint32(0)]


def _rotated(value: Any, bits: int) -> Any:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _fixed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"))
    )
