"""Reloads a target: compares its rows with those of MySQL, and writes the differences.

Both are divided by the hash of the key into shares, in temporary files, and compared share by
share. So it takes the memory of two shares, and disk for both, however large the table is.
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import last_of_each_key
from streamhouse.connectors.mysql_cdc.database.part_reader import TIME
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.schema.evolution import converted
from streamhouse.paimon.write.bucket_hash import row_hashes
from streamhouse.runtime.sync.mapping.computed_columns import parsed, split_key_updates
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
    columns = parsed(options.computed_columns, options.spelt)
    computed = {column.name: column.function for column in columns}
    metadata = options.metadata_names
    made = {*map(options.spelt, sources), *computed, *metadata.values()}
    kept = {column.name for column in table.columns} - made
    timed = {name for name, function in computed.items() if function == "now"}
    return kept | timed | {own for name, own in metadata.items() if name == TIME}


def reloaded(
    table: Table,
    rows: Iterable[pa.RecordBatch],
    kept: Collection[str],
    estimate: int,
    deletes: bool,
) -> Iterator[pa.RecordBatch]:
    """The changes, with their kinds, that give a table the `rows` that MySQL has.

    `kept`: columns that MySQL's rows do not have, or that depend on when a row was read; existing
    rows keep their values. `estimate`: of the rows. Without `deletes`, surplus rows stay. Of
    several rows with one key the last counts.
    """
    schema = pa.schema([field.with_nullable(True) for field in table.arrow_schema])
    key, latest = list(table.primary_key), table.latest_snapshot_id()
    own = 0 if latest is None else int(table.snapshot(latest).total_record_count or 0)
    count = min(1 + max(estimate, own) // _SHARE_ROWS, _MOST_SHARES)
    with (
        tempfile.TemporaryDirectory(prefix="streamhouse-reload-") as folder,
        closing(Differ()) as differ,
    ):
        new, old = Path(folder, "new"), Path(folder, "old")
        # Columns that the target has, and that the rows lack, are null.
        named = (converted(one, schema, {name: name for name in one.schema.names}) for one in rows)
        _divide(named, new, key, count)
        _divide((converted(batch, schema) for batch in table.read()), old, key, count)
        for number in range(count):
            before = _share(old / str(number), schema)
            after = last_of_each_key(_share(new / str(number), schema), key)
            changes = differ.by_key(before, after, key, set(kept))
            if not deletes:
                changes = changes.filter(pc.not_equal(changes.column(ROW_KIND), "-D"))
            yield from _written(table, changes)


def _written(table: Table, changes: pa.Table) -> Iterator[pa.RecordBatch]:
    if changes.num_rows == 0:
        return
    partition = [name for name in table.partition_keys if name not in table.primary_key]
    if partition:
        kinds = changes.column(ROW_KIND).combine_chunks()
        columns = [changes.column(name).combine_chunks() for name in partition]
        at = changes.schema.get_field_index(ROW_KIND)
        changes = changes.set_column(at, ROW_KIND, split_key_updates(kinds, columns))
    yield from changes.combine_chunks().to_batches(max_chunksize=_WRITTEN_ROWS)


def _divide(rows: Iterable[pa.RecordBatch], folder: Path, key: Sequence[str], count: int) -> None:
    """Divide rows by the hash of their key into files, of which each is named by its number."""
    folder.mkdir()
    with ExitStack() as files:
        writers: dict[int, Any] = {}
        for batch in rows:
            hashes = row_hashes([batch.column(name) for name in key])
            shares = hashes.astype(np.int64) % count
            for number in np.unique(shares):
                if number not in writers:
                    file = pa.ipc.new_file(str(folder / str(number)), batch.schema)
                    writers[number] = files.enter_context(file)
                writers[number].write_batch(batch.filter(pa.array(shares == number)))


def _share(path: Path, schema: pa.Schema) -> pa.Table:
    if not path.exists():
        return schema.empty_table()
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()
