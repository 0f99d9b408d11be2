"""Divides two tables with the same partitions and buckets into parts; each key is in one part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.paimon.changelog.differences.snapshot_changes import read_rows, written_keys
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.paimon.storage.split_groups import row_count
from streamhouse.paimon.write.bucket_hash import row_hashes

MOST_ROWS = 2_000_000
"""A bucket with more rows than this is compared in several parts."""


@dataclass(frozen=True)
class BucketPart:
    """The splits of one bucket in both tables, or a share (`number` of `count`) of its keys.

    The share of a key depends on its hash.
    """

    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    number: int = 0
    count: int = 1

    def load(self, old: Table, new: Table) -> tuple[pa.Table, pa.Table]:
        """The rows of both tables, with all columns.

        Rows of `old` whose key is not in `new` may be missing.
        """
        if self.count > 1:
            return self._share(old, self.old), self._share(new, self.new)
        return (
            read_rows(old, old.arrow_schema.names, self.old, written_keys(new, self.new)),
            read_rows(new, new.arrow_schema.names, self.new, None),
        )

    def _share(self, table: Table, splits: Sequence[bytes]) -> pa.Table:
        keys = [name for name in table.primary_key if name not in table.partition_keys]
        kept = []
        for batch in table.read(splits=splits):
            hashes = row_hashes(batch.select(keys or table.primary_key).columns)
            kept.append(batch.filter(pa.array(hashes % self.count == self.number)))
        schema = pa.schema([field.with_nullable(True) for field in table.arrow_schema])
        return pa.Table.from_batches([batch.cast(schema) for batch in kept], schema=schema)


def parts(old: Table, snapshot: int | None, new: Table) -> Iterator[BucketPart]:
    """The parts in which `new` has rows, with the rows of `old` at `snapshot` (None: no rows)."""
    before, after = _by_bucket(old, old.splits(snapshot or 0)), _by_bucket(new, new.splits())
    for folder in sorted(after):
        old_splits, new_splits = tuple(before.get(folder, ())), tuple(after[folder])
        largest = max(row_count(old_splits), row_count(new_splits))
        count = -(-largest // MOST_ROWS) or 1
        for number in range(count):
            yield BucketPart(old_splits, new_splits, number, count)


def _by_bucket(table: Table, splits: Sequence[bytes]) -> dict[str, list[bytes]]:
    """Splits by their partitions and buckets, which are paths below the table's folder."""
    found: dict[str, list[bytes]] = {}
    for split in splits:
        folder = SplitFrame.parse(split).folder.rstrip("/").split("/")
        found.setdefault("/".join(folder[-1 - len(table.partition_keys) :]), []).append(split)
    return found
