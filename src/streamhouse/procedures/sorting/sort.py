"""Sorts an append table along a curve through columns, so that filters read fewer files.

DuckDB sorts the rows of one partition after the other, and spills what does not fit into memory to
a temporary folder. The result is committed as a compaction, so readers of the table's changes see
none (decision 014).
"""

import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.duckdb_database import open_database
from streamhouse.errors import DataLossError, StreamhouseError, TableError, UnsupportedSqlError
from streamhouse.options import memory_bytes
from streamhouse.paimon.java.bucket_compaction import commit, deserialised
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.paimon.storage.split_groups import file_ids
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix
from streamhouse.procedures.bucket_entries import BucketEntry, bucket_entries, select_entries
from streamhouse.procedures.context import COMMIT_USER, Context
from streamhouse.procedures.registry import rows
from streamhouse.procedures.sorting.space_filling_curves import MOST_COLUMNS, Curve
from streamhouse.work_folder import work_folder

STRATEGIES = ("order", "zorder", "hilbert")
_SORTED = {
    "table": str,
    "order_strategy": str,
    "filter": str,
    "files_before": int,
    "read_before": int,
    "files_after": int,
    "read_after": int,
    "snapshot_id": int,
}
_SAMPLE_ROWS = 200_000
_TARGET_BYTES = 128 << 20
_MEMORY = "1GB"
"""How much memory DuckDB may use before it spills rows to the temporary folder."""
_BATCH_ROWS = 65_536
_POSITION = "position"
_IDENTIFIER = 2**63 - 1
"""The commit identifier of bounded writes, as Paimon's Java core sets it."""
_NO_NULL = "\0"
"""The text that Paimon shall take for a null: one that no value has."""


def sort_table(
    context: Context,
    name: str,
    strategy: str,
    columns: Sequence[str],
    partitions: str | None,
    where: str | None,
    options: Mapping[str, str],
    parallelism: int | None,
) -> pa.Table:
    """Rewrite an append table, or some of its partitions, in the order of a curve."""
    table = context.table(name)
    _check(table, columns)
    snapshot = table.latest_snapshot_id()
    if snapshot is None:
        return rows(_SORTED, [])
    entries = context.java(name, lambda jvm, java_table: bucket_entries(jvm, java_table, snapshot))
    matches = select_entries(entries, table, partitions, where)
    if not matches:
        return rows(_SORTED, [])
    return _Sort(context, table, strategy, tuple(columns), matches, snapshot, options).run(
        parallelism
    )


def _check(table: Table, columns: Sequence[str]) -> None:
    where = f"table {table.identifier}"
    if table.primary_key or table.bucket != -1:
        raise UnsupportedSqlError(
            f"{where} has {'a primary key' if table.primary_key else 'fixed buckets'}; only an "
            "append table with 'bucket' = '-1' can be sorted. A primary-key table is already in "
            "the order of its key; compact it without order_strategy"
        )
    for key in ("deletion-vectors.enabled", "row-tracking.enabled", "data-evolution.enabled"):
        if table.options.get(key, "false").lower() == "true":
            raise UnsupportedSqlError(
                f"{where}: a table with '{key}' cannot be sorted; compact it without order_strategy"
            )
    if len(columns) > MOST_COLUMNS:
        raise UnsupportedSqlError(f"order_by takes at most {MOST_COLUMNS} columns")
    for column in columns:
        if column not in table.arrow_schema.names:
            hint = nearest(column, table.arrow_schema.names)
            raise TableError(f"{where} has no column '{column}'; {hint}")
        if column in table.partition_keys:
            raise TableError(
                f"{where}: '{column}' is a partition column, the same in all rows of a file; leave "
                "it out of order_by"
            )
        column_type = table.arrow_schema.field(column).type
        if pa.types.is_nested(column_type):
            raise TableError(
                f"{where}: rows cannot be sorted by '{column}', which is {column_type}; leave it "
                "out of order_by"
            )


@dataclass
class _Sort:
    context: Context
    table: Table
    strategy: str
    columns: tuple[str, ...]
    entries: Sequence[BucketEntry]
    snapshot: int
    options: Mapping[str, str]

    def run(self, parallelism: int | None) -> pa.Table:
        name = self.table.identifier
        partitions = self._partitions()
        sample, all_rows = self._sample(partitions)
        if not all_rows:
            return rows(_SORTED, [])
        curve = Curve.of(self.strategy, self.columns, sample)
        filters = self._filters(sample)
        before = self._reads(filters, self.snapshot)
        user = f"sort{uuid.uuid4().hex}"
        try:
            messages: list[bytes] = []
            written = 0
            with work_folder("streamhouse-sort-") as spill:
                for splits in partitions:
                    ordered = self._ordered(curve, splits, spill, parallelism)
                    for file in _cut(ordered, self._rows_of_file(splits)):
                        messages += self._writer(user).write_all(file, _IDENTIFIER)
                        written += sum(batch.num_rows for batch in file)
            if written != all_rows:
                raise StreamhouseError(
                    f"sorting table {name} wrote {written:,} rows instead of {all_rows:,}; "
                    "nothing was changed"
                )
            new_snapshot = self._commit([s for splits in partitions for s in splits], messages)
        except BaseException:
            TableCommitter(self.table.catalog_options, name, user).remove_leftovers(user[:16])
            raise
        after = self._reads(filters, new_snapshot)
        found = [
            (name, self.strategy, f"{column} = {text}", before[0], old, after[0], new, new_snapshot)
            for (column, text), old, new in zip(filters, before[1:], after[1:], strict=True)
        ]
        return rows(_SORTED, found)

    @cached_property
    def _selected(self) -> set[bytes]:
        """The partitions that are sorted."""
        return {entry.partition for entry in self.entries}

    def _partitions(self) -> list[list[bytes]]:
        """The Rust core's splits of each selected partition, at the fixed snapshot."""
        by_partition: dict[bytes, list[bytes]] = {key: [] for key in sorted(self._selected)}
        for split in self.table.splits(self.snapshot):
            partition, _ = SplitFrame.parse(split).bucket_id
            if partition in by_partition:
                by_partition[partition].append(split)
        return [splits for splits in by_partition.values() if splits]

    def _sample(self, partitions: Sequence[Sequence[bytes]]) -> tuple[pa.Table, int]:
        """The columns of the curve of a sample of rows, and the number of all rows."""
        step = max(1, sum(_rows_and_bytes(splits)[0] for splits in partitions) // _SAMPLE_ROWS)
        sampled, seen = [], 0
        for splits in partitions:
            for batch in self.table.read(self.columns, splits=splits):
                indices = np.arange(-seen % step, batch.num_rows, step)
                sampled.append(batch.take(pa.array(indices)))
                seen += batch.num_rows
        return pa.Table.from_batches(sampled, self.table.read_schema(self.columns)), seen

    def _ordered(
        self, curve: Curve, splits: Sequence[bytes], spill: str, parallelism: int | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one partition in the order of the curve, then of its columns; nulls first."""
        schema = self.table.arrow_schema
        # DuckDB's names ignore case.
        names = [f"c{place}" for place in range(len(schema))]
        keys = [_POSITION, *(f"c{schema.get_field_index(name)}" for name in self.columns)]

        def numbered() -> Iterator[pa.RecordBatch]:
            for batch in self.table.read(splits=splits):
                position = pa.array(curve.positions(batch))
                columns = [*batch.columns, position]
                yield pa.RecordBatch.from_arrays(columns, names=[*names, _POSITION])

        read = pa.schema(field.with_name(name) for field, name in zip(schema, names, strict=True))
        reader = pa.RecordBatchReader.from_batches(
            read.append(pa.field(_POSITION, pa.uint64())), numbered()
        )
        threads = parallelism or os.cpu_count() or 1
        with open_database(threads, memory_limit=_MEMORY, temp_directory=spill) as con:
            con.register("unordered", reader)
            order = ", ".join(f"{key} NULLS FIRST" for key in keys)
            found = con.sql(f"SELECT {', '.join(names)} FROM unordered ORDER BY {order}")
            for batch in found.to_arrow_reader(_BATCH_ROWS):
                yield batch.rename_columns(schema.names)

    def _writer(self, user: str) -> TableWriter:
        # The rows decide the sizes: a file a little larger than the target is not split again.
        options = {**self.options, "target-file-size": f"{2 * self._target_bytes()} b"}
        return TableWriter(
            self.table.catalog_options, self.table.identifier, user, file_prefix(user), options
        )

    def _rows_of_file(self, splits: Sequence[bytes]) -> int:
        """How many rows a file of the target size has, by the present files of the partition."""
        count, size = _rows_and_bytes(splits)
        return -(-count // max(1, round(size / self._target_bytes()))) or 1

    def _target_bytes(self) -> int:
        text = {**self.table.options, **self.options}.get("target-file-size")
        return _TARGET_BYTES if text is None else max(1, memory_bytes("target-file-size", text))

    def _commit(self, splits: Sequence[bytes], messages: Sequence[bytes]) -> int:
        """Replace the old files by the new ones, as a compaction."""
        partitions, snapshot, read = self._selected, self.snapshot, file_ids(*splits)

        def work(jvm: Any, java_table: Any) -> int:
            old = _files(jvm, java_table, snapshot, partitions)
            names = [str(file.fileName()) for files in old.values() for file in files]
            if file_ids(*(name.encode() for name in names)) != read:
                raise StreamhouseError(
                    f"sorting table {self.table.identifier}: the two cores saw different files; "
                    "nothing was changed"
                )
            compactions = _compactions(jvm, java_table, old, deserialised(jvm, messages))
            return commit(java_table, COMMIT_USER, compactions) or snapshot

        return self.context.java(self.table.identifier, work)

    def _filters(self, sample: pa.Table) -> list[tuple[str, str]]:
        """The median of each column in the sample, as text: an example for a filter `a = …`."""
        filters = []
        for column in self.columns:
            values = sample.column(column).drop_null()
            if len(values):
                order = pc.sort_indices(values)
                median = values.take(order.slice(len(values) // 2, 1))
                filters.append((column, str(pc.cast(median, pa.string())[0].as_py())))
        return filters

    def _reads(self, filters: Sequence[tuple[str, str]], snapshot: int) -> list[int]:
        """How many files there are, and how many each filter reads, as the Java core plans it."""
        partitions = self._selected

        def work(jvm: Any, java_table: Any) -> list[int]:
            # Despite its name, it makes a predicate on any columns, with their values as text.
            equals = jvm.org.apache.paimon.partition.PartitionPredicate.createPartitionPredicate
            kind = java_table.rowType()
            equal = [equals({column: text}, kind, _NO_NULL) for column, text in filters]
            plans = (_files(jvm, java_table, snapshot, partitions, one) for one in (None, *equal))
            return [sum(map(len, plan.values())) for plan in plans]

        return self.context.java(self.table.identifier, work)


def _rows_and_bytes(splits: Sequence[bytes]) -> tuple[int, int]:
    files = [file for split in splits for file in SplitFrame.parse(split).files]
    return sum(file.rows for file in files), sum(file.size for file in files)


def _cut(batches: Iterable[pa.RecordBatch], rows_of_file: int) -> Iterator[list[pa.RecordBatch]]:
    """The rows of each file, in their order."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, rows_of_file - count)
            held.append(part)
            count, batch = count + part.num_rows, batch.slice(part.num_rows)
            if count == rows_of_file:
                yield held
                held, count = [], 0
    if held:
        yield held


def _files(
    jvm: Any, table: Any, snapshot: int, partitions: Collection[bytes], filter: Any = None
) -> dict[bytes, list[Any]]:
    """Java's metadata of the data files of some partitions in a snapshot."""
    utils = jvm.org.apache.paimon.utils.SerializationUtils
    if not table.snapshotManager().snapshotExists(snapshot):
        raise DataLossError(
            f"snapshot {snapshot} expired while the table was being sorted; raise the table's "
            "'snapshot.time-retained' and call sys.compact again"
        )
    reader = table.newSnapshotReader().withSnapshot(jvm.java.lang.Long.valueOf(snapshot))
    if filter is not None:
        reader = reader.withFilter(filter)
    files: dict[bytes, list[Any]] = {}
    for split in reader.read().dataSplits():
        key = bytes(utils.serializeBinaryRow(split.partition()))
        if key in partitions:
            files.setdefault(key, []).extend(split.dataFiles())
    return files


def _compactions(jvm: Any, table: Any, old: Mapping[bytes, list[Any]], written: Any) -> Any:
    """Commit messages that replace the old files of each partition by the new ones."""
    paimon = jvm.org.apache.paimon
    new: dict[bytes, list[Any]] = {}
    for message in written:
        key = bytes(paimon.utils.SerializationUtils.serializeBinaryRow(message.partition()))
        new.setdefault(key, []).extend(message.newFilesIncrement().newFiles())
    messages = []
    for key, files in old.items():
        increment = paimon.io.CompactIncrement(files, new.pop(key, []), [])
        messages.append(
            paimon.table.sink.CommitMessageImpl(
                paimon.utils.SerializationUtils.deserializeBinaryRow(key), 0,
                table.coreOptions().bucket(), paimon.io.DataIncrement.emptyIncrement(), increment,
            )
        )  # fmt: skip
    if new:
        raise StreamhouseError("sorting wrote into partitions that it had not read; not committed")
    return messages
