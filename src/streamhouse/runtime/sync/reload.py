"""Reloads a target: compares its rows with those of MySQL, and writes the differences.

Both are divided by the hash of the key into shares, in temporary files, and compared share by
share. So it takes the memory of two shares, and disk for both, however large the table is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import last_of_each_key
from streamhouse.connectors.mysql_cdc.metadata import TIME
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.schema.evolution import converted
from streamhouse.paimon.write.bucket_hash import row_hashes
from streamhouse.runtime.sync.mapping.computed_columns import computed_columns, split_key_updates
from streamhouse.runtime.sync.mapping.reconciliation import refused
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.source import ROW_KIND

_SHARE_ROWS = 250_000
_MOST_SHARES = 400
"""Each has two open files."""
_WRITTEN_ROWS = 65_536


def why_not_reloadable(table: Table) -> str | None:
    """Why rows of a table cannot be replaced by those of MySQL; None if they can."""
    engine = table.options.get("merge-engine", "deduplicate").lower()
    if not table.primary_key:
        return "it has no primary key"
    if engine != "deduplicate":
        return f"its merge-engine is {engine}"
    if "sequence.field" in table.options:
        return "it has a sequence.field"
    return "it shows new rows only after a compaction" if hides_new_rows(table) else None


def check_reloadable(table: Table, statement: str) -> None:
    """Raise `SchemaChangeError` if rows of a table cannot be replaced by those of MySQL."""
    why = why_not_reloadable(table)
    if why is not None:
        raise refused(
            table.identifier,
            statement,
            f"rows may differ from those in MySQL, and they cannot be replaced, since {why}",
        )


def kept_columns(options: SyncOptions, table: Table, sources: Collection[str]) -> set[str]:
    """The columns whose values a reload leaves as they are.

    They are those that no table in MySQL has (`sources`: those that one has), and values that
    depend on when a row was read.
    """
    computed = {column.name: column.function for column in computed_columns(options)}
    metadata = options.metadata_names
    made = {*map(options.spelt, sources), *computed, *metadata.values()}
    kept = {column.name for column in table.columns} - made
    timed = {name for name, function in computed.items() if function == "now"}
    return kept | timed | {own for name, own in metadata.items() if name == TIME}


class Reload:
    """The rows of one target as MySQL has them, and the changes that lead to them.

    `kept`: columns that MySQL's rows do not have, or that depend on when a row was read; existing
    rows keep their values. `estimate`: of the rows. Of several rows with one key the last counts.
    """

    def __init__(self, table: Table, kept: Collection[str], estimate: int) -> None:
        self._table, self._kept = table, set(kept)
        self._schema = pa.schema([field.with_nullable(True) for field in table.arrow_schema])
        self._key = list(table.primary_key)
        latest = table.latest_snapshot_id()
        own = 0 if latest is None else int(table.snapshot(latest).total_record_count or 0)
        rows = max(estimate, own)
        self._count = min(1 + rows // _SHARE_ROWS, _MOST_SHARES)
        self._folder = tempfile.TemporaryDirectory(prefix="streamhouse-reload-")
        self._new = _Shares(Path(self._folder.name) / "new", self._schema, self._key, self._count)
        self._old = _Shares(Path(self._folder.name) / "old", self._schema, self._key, self._count)

    def __enter__(self) -> Reload:
        return self

    def __exit__(self, *_: object) -> None:
        self._new.close()
        self._old.close()
        self._folder.cleanup()

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of MySQL; columns that the target has, and that they lack, are null."""
        self._new.add(converted(rows, self._schema, {name: name for name in rows.schema.names}))

    def changes(self, deletes: bool) -> Iterator[pa.RecordBatch]:
        """The rows to write, with their kinds; without `deletes`, surplus rows stay."""
        if self._table.latest_snapshot_id() is not None:
            for batch in self._table.read():
                self._old.add(converted(batch, self._schema))
        with closing(Differ()) as differ:
            for number in range(self._count):
                new = last_of_each_key(self._new.load(number), self._key)
                old = self._old.load(number)
                changes = differ.by_key(old, new, self._key, self._kept)
                if not deletes:
                    changes = changes.filter(pc.not_equal(changes.column(ROW_KIND), "-D"))
                yield from self._written(changes)

    def _written(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        if changes.num_rows == 0:
            return
        partition = [name for name in self._table.partition_keys if name not in self._key]
        if partition:
            kinds = changes.column(ROW_KIND).combine_chunks()
            columns = [changes.column(name).combine_chunks() for name in partition]
            at = changes.schema.get_field_index(ROW_KIND)
            changes = changes.set_column(at, ROW_KIND, split_key_updates(kinds, columns))
        yield from changes.combine_chunks().to_batches(max_chunksize=_WRITTEN_ROWS)


class _Shares:
    """Rows divided by the hash of their key, in a file for each share."""

    def __init__(self, folder: Path, schema: pa.Schema, key: Sequence[str], count: int) -> None:
        self._folder, self._schema, self._key, self._count = folder, schema, key, count
        self._writers: dict[int, Any] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        hashes = row_hashes([rows.column(name) for name in self._key])
        shares = hashes.astype(np.int64) % self._count
        for number in np.unique(shares):
            if number not in self._writers:
                self._folder.mkdir(exist_ok=True)
                file = str(self._folder / str(number))
                self._writers[number] = pa.ipc.new_file(file, self._schema)
            self._writers[number].write_batch(rows.filter(pa.array(shares == number)))

    def load(self, number: int) -> pa.Table:
        """The rows of a share; no rows can be added afterwards."""
        self.close()
        path = self._folder / str(number)
        if not path.exists():
            return self._schema.empty_table()
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}
