"""Sorts an append table along a curve through columns, so that filters read fewer files.

The rows go through one shuffle as Arrow bytes: reading tasks divide their rows by ranges of the
curve, writing tasks sort each range and write it. Small tables are sorted without a Spark job
(`runner`). The result is committed as a compaction, so readers of the table's changes see none
(decision 015).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.errors import DataLossError, StreamhouseError, TableError, UnsupportedSqlError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_groups import file_ids
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.procedures.bucket_entries import (
    BucketEntry,
    bucket_entries,
    partition_table,
    select_entries,
)
from streamhouse.procedures.commit_messages import commit, deserialised
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import rows
from streamhouse.procedures.sorting.shuffle import (
    LocalSort,
    RangePartitioner,
    Sample,
    SortRunner,
    SparkSort,
    Write,
)
from streamhouse.procedures.sorting.space_filling_curves import MOST_COLUMNS, Curve, is_sortable

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
_LOCAL_BYTES = 32 << 20
"""Tables with more bytes of files than this are sorted in a Spark job."""
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
        if not is_sortable(column_type):
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
        splits = self._splits()
        work = self._work(parallelism)
        sample, all_rows = self._sample(work, splits)
        if not all_rows:
            return rows(_SORTED, [])
        curve = Curve.of(self.strategy, self.columns, sample)
        filters = self._filters(sample)
        before = self._reads(filters, self.snapshot)
        cut = self._cut(curve, sample)
        user = f"sort{uuid.uuid4().hex}"
        write = Write(self.table.catalog_options, name, curve, user, dict(self._write_options()))
        try:
            written = work.sort(splits, cut, write)
            messages = [
                bytes(result["message"]) for result in written if result["message"] is not None
            ]
            written_rows = sum(int(result["rows"]) for result in written)
            if written_rows != all_rows:
                raise StreamhouseError(
                    f"sorting table {name} wrote {written_rows:,} rows instead of {all_rows:,}; "
                    "nothing was changed"
                )
            new_snapshot = self._commit(splits, messages)
        except BaseException:
            TableCommitter(self.table.catalog_options, name, user).remove_leftovers(user[:16])
            raise
        after = self._reads(filters, new_snapshot)
        return self._rows(filters, before, after, new_snapshot)

    def _work(self, parallelism: int | None) -> SortRunner:
        size = sum(entry.size for entry in self.entries)
        if parallelism is None and not self.context.has_spark and size <= _LOCAL_BYTES:
            return LocalSort()
        return SparkSort(self.context.spark(), self.table.identifier, parallelism)

    def _splits(self) -> list[bytes]:
        """The Rust core's splits of the selected partitions, at the fixed snapshot."""
        splits = self.table.splits(self.snapshot)
        specs = list({entry.partition: entry.spec for entry in self.entries}.values())
        if not self.table.partition_keys:
            return splits
        partitions = set(_tuples(partition_table(specs, self.table), self.table.partition_keys))
        return [
            split for split in splits if _partition(self.table, split, self.snapshot) in partitions
        ]

    def _sample(self, work: SortRunner, splits: Sequence[bytes]) -> tuple[pa.Table, int]:
        """A sample of rows, with their partition and sort columns, and the number of all rows."""
        from pypaimon_rust.datafusion import Split

        count = sum(int(Split.deserialize(split).row_count()) for split in splits)
        step = max(1, count // _SAMPLE_ROWS)
        columns = (*self.table.partition_keys, *self.columns)
        job = Sample(self.table.catalog_options, self.table.identifier, columns, step)
        results = work.sampled(splits, job)
        parts = [pa.ipc.open_stream(bytes(result["sample"])).read_all() for result in results]
        schema = self.table.read_schema(columns)
        return pa.concat_tables([schema.empty_table(), *parts]), sum(
            result["rows"] for result in results
        )

    def _cut(self, curve: Curve, sample: pa.Table) -> RangePartitioner:
        """The ranges of the curve for each partition: one for each file of the target size."""
        target = self._target_bytes()
        keys = self.table.partition_keys
        specs = {entry.partition: entry.spec for entry in self.entries}
        sizes = {spec: sum(entry.size for entry in self.entries if entry.partition == spec)
                 for spec in specs}  # fmt: skip
        known = _tuples(partition_table(list(specs.values()), self.table), keys) if keys else [()]
        places = curve.positions(sample)
        owners = _tuples(sample.select(list(keys)), keys) if keys else [()] * len(sample)
        cuts: dict[tuple[Any, ...], tuple[int, tuple[int, ...]]] = {}
        first = 0
        for owner, size in zip(known, sizes.values(), strict=True):
            mine = sorted(int(place) for place, one in zip(places, owners, strict=True)
                          if one == owner)  # fmt: skip
            count = min(max(1, round(size / target)), max(1, len(mine)))
            bounds = {mine[len(mine) * part // count] for part in range(1, count)}
            cuts[owner] = (first, tuple(sorted(bounds)))
            first += len(bounds) + 1
        return RangePartitioner(
            self.table.catalog_options, self.table.identifier, keys, curve, cuts, first
        )

    def _target_bytes(self) -> int:
        options = {**self.table.options, **self.options}
        text = options.get("target-file-size")
        return _TARGET_BYTES if text is None else max(1, _bytes(self.context, self.table, text))

    def _write_options(self) -> Mapping[str, str]:
        # The ranges decide the sizes: a file a little larger than the target is not split again.
        return {**self.options, "target-file-size": f"{2 * self._target_bytes()} b"}

    def _commit(self, splits: Sequence[bytes], messages: Sequence[bytes]) -> int:
        """Replace the old files by the new ones, as a compaction."""
        partitions = list({entry.partition: None for entry in self.entries})
        location, snapshot = self.table.location, self.snapshot
        read = file_ids(*splits)

        def work(jvm: Any, java_table: Any) -> int:
            old = _files(jvm, java_table, snapshot, partitions)
            names = [str(file.fileName()) for files in old.values() for file in files]
            if file_ids(*(name.encode() for name in names)) != read:
                raise StreamhouseError(
                    f"sorting table {self.table.identifier}: the two cores saw different files; "
                    "nothing was changed"
                )
            compactions = _compactions(jvm, java_table, old, deserialised(jvm, messages))
            return commit(jvm, java_table, location, compactions)

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

    def _reads(self, filters: Sequence[tuple[str, str]], snapshot: int) -> tuple[int, list[int]]:
        """How many files there are, and how many each filter reads, as the Java core plans it."""
        partitions = list({entry.partition: None for entry in self.entries})

        def work(jvm: Any, java_table: Any) -> tuple[int, list[int]]:
            all_files = sum(
                len(group) for group in _files(jvm, java_table, snapshot, partitions).values()
            )
            # Despite its name, it makes a predicate on any columns, with their values as text.
            equals = jvm.org.apache.paimon.partition.PartitionPredicate.createPartitionPredicate
            counts = []
            for column, text in filters:
                equal = equals({column: text}, java_table.rowType(), _NO_NULL)
                files = _files(jvm, java_table, snapshot, partitions, equal)
                counts.append(sum(len(group) for group in files.values()))
            return all_files, counts

        return self.context.java(self.table.identifier, work)

    def _rows(
        self,
        filters: Sequence[tuple[str, str]],
        before: tuple[int, list[int]],
        after: tuple[int, list[int]],
        snapshot: int,
    ) -> pa.Table:
        return rows(
            _SORTED,
            [
                (self.table.identifier, self.strategy, f"{column} = {text}",
                 before[0], before[1][place], after[0], after[1][place], snapshot)
                for place, (column, text) in enumerate(filters)
            ],
        )  # fmt: skip


def _tuples(table: pa.Table, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(key).to_pylist() for key in keys), strict=True))


def _partition(table: Table, split: bytes, snapshot: int) -> tuple[Any, ...]:
    """The partition values of a split, read from its first row."""
    batch = next(table.read(table.partition_keys, snapshot, splits=[split]))
    return tuple(batch.column(key)[0].as_py() for key in table.partition_keys)


def _files(
    jvm: Any, table: Any, snapshot: int, partitions: Sequence[bytes], filter: Any = None
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
    selected_partitions = set(partitions)
    files: dict[bytes, list[Any]] = {}
    for split in reader.read().dataSplits():
        key = bytes(utils.serializeBinaryRow(split.partition()))
        if key in selected_partitions:
            files.setdefault(key, []).extend(split.dataFiles())
    return files


def _compactions(jvm: Any, table: Any, old: Mapping[bytes, list[Any]], written: Any) -> Any:
    """Commit messages that replace the old files of each partition by the new ones."""
    paimon = jvm.org.apache.paimon
    new: dict[bytes, list[Any]] = {}
    for message in written:
        key = bytes(paimon.utils.SerializationUtils.serializeBinaryRow(message.partition()))
        new.setdefault(key, []).extend(message.newFilesIncrement().newFiles())
    messages = jvm.java.util.ArrayList()
    for key, files in old.items():
        increment = paimon.io.CompactIncrement(
            _list(jvm, files), _list(jvm, new.pop(key, [])), _list(jvm, [])
        )
        messages.add(
            paimon.table.sink.CommitMessageImpl(
                paimon.utils.SerializationUtils.deserializeBinaryRow(key), 0,
                table.coreOptions().bucket(), paimon.io.DataIncrement.emptyIncrement(), increment,
            )
        )  # fmt: skip
    if new:
        raise StreamhouseError("sorting wrote into partitions that it had not read; not committed")
    return messages


def _list(jvm: Any, values: Sequence[Any]) -> Any:
    array_list = jvm.java.util.ArrayList()
    for value in values:
        array_list.add(value)
    return array_list


def _bytes(context: Context, table: Table, text: str) -> int:
    """The bytes of a size such as `64 mb`, as the Java core parses it."""
    return context.java(
        table.identifier,
        lambda jvm, java_table: int(
            jvm.org.apache.paimon.options.MemorySize.parse(text).getBytes()
        ),
    )
