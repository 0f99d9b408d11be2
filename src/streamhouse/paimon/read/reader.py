"""Reads one table with the Rust core: plans splits, reads Arrow batches, translates errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pypaimon_rust.datafusion import Split

from streamhouse.errors import DataLossError, OptionError, StoreError, StreamhouseError
from streamhouse.options import integer
from streamhouse.paimon.read.conditions import Filter, matching, only_on
from streamhouse.paimon.read.rust_core import (
    batch_size,
    ignored_deletes,
    lookup_merge,
    postpone_bucket,
)
from streamhouse.paimon.schema import evolution
from streamhouse.paimon.schema.file_formats import avro_rows, nanosecond_timestamps, orc_values
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.metadata_mirror.read import changes, fetched
from streamhouse.paimon.storage.object_store.store_retries import is_temporary, retried
from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

READ_BATCH_ROWS = 65_536
"""Read batch size in rows; with the core's default of 1,024, calls cost more than reading."""
_WRONG_OPTION = re.compile(
    r"hitting invalid config|not found in table schema|Unsupported merge-engine|Scan option '"
)


@dataclass(frozen=True)
class ReadTraits:
    """Which workarounds the reads of a table need.

    `chars` are its CHAR columns, which conditions on ORC files misread. With
    `newest_level_counts` rows of the newest level replace those below (`lookup_merge`).
    """

    chars: Collection[str]
    rows: avro_rows.RowColumns
    newest_level_counts: bool

    @staticmethod
    def of(table: Table) -> ReadTraits:
        """The traits of a table."""
        return ReadTraits(
            orc_values.char_columns({column.name: column.type for column in table.columns}),
            avro_rows.RowColumns.of(table.arrow_schema),
            lookup_merge.newest_level_counts(table.options, table.primary_key),
        )


class TableReader:
    """Reads a `Table`, and works around what the Rust core reads wrongly."""

    def __init__(self, table: Table) -> None:
        self._table, self._traits = table, table.read_traits

    def splits(
        self,
        snapshot: int | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        in_commit_order: bool = False,
    ) -> list[bytes]:
        """As `Table.splits`."""
        postpone_bucket.check_read(self._table, snapshot)
        if snapshot is not None and (self._table.schema_id > 0 or filter is not None):
            # The core plans with the snapshot's schema, and the files are read with this table's.
            columns = None
            planned = self._table.schema_id
            if filter is not None and self._table.snapshot(snapshot).schema_id != planned:
                filter = None
        builder = self._builder(columns, snapshot, filter)
        splits = self._plan(builder.new_scan(), snapshot)
        if in_commit_order:
            return sorted(splits, key=lambda split: SplitFrame.parse(split).folder)
        return sorted(splits)

    def changes(
        self,
        after: int,
        until: int,
        mode: str = "delta",
        columns: Sequence[str] | None = None,
    ) -> list[bytes]:
        """As `Table.changes`."""
        postpone_bucket.check_followed(self._table)
        self._table.snapshots.await_named()
        planned = self._mirrored_changes(after, until, mode, columns)
        if planned is not None:
            return planned
        scan = self._builder(columns, None, None).new_incremental_scan(after, until, mode)
        return self._plan(scan, after + 1)

    def _mirrored_changes(
        self, after: int, until: int, mode: str, columns: Sequence[str] | None
    ) -> list[bytes] | None:
        """As `changes`, planned on a local copy of the metadata; None if that is not possible."""

        def plan(rust: Any) -> Sequence[Any]:
            builder = self._builder(columns, None, None, rust=rust)
            splits: Sequence[Any] = builder.new_incremental_scan(after, until, mode).plan().splits()
            return splits

        return changes(self._table, after, until, plan)

    def read(
        self,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        filter: Filter | None = None,
        splits: Sequence[bytes] | None = None,
        row_kind: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """As `Table.read`."""
        self._table.read_schema(columns, row_kind)
        splits_to_read = self.splits(snapshot, columns, filter) if splits is None else splits
        if row_kind and self._table.schema_id > 0 and self._table.primary_key:
            yield from self._read_versions(columns, splits_to_read)
        else:
            yield from self._batches_of(columns, filter, splits_to_read, row_kind)

    def _read_versions(
        self, columns: Sequence[str] | None, splits_to_read: Sequence[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Read row kinds from files of several schema versions; the core expects only one."""
        for split in splits_to_read:
            if Split.deserialize(split).is_streaming():
                yield from evolution.read_changes(self._table, columns, [split])
                continue
            # Rows of a snapshot are merged from all files of a bucket, so they are all inserts.
            for batch in self._batches_of(columns, None, [split], False):
                kinds = pa.repeat("+I", batch.num_rows)
                schema = self._table.read_schema(columns, True)
                yield pa.RecordBatch.from_arrays([*batch.columns, kinds], schema=schema)

    def read_kinds(
        self, columns: Sequence[str] | None, splits: Sequence[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Read rows and row kinds from splits whose files all have this table's schema version."""
        yield from self._batches_of(columns, None, splits, True)

    def _batches_of(
        self,
        columns: Sequence[str] | None,
        filter: Filter | None,
        splits_to_read: Sequence[bytes],
        row_kind: bool,
    ) -> Iterator[pa.RecordBatch]:
        if not self._traits.newest_level_counts:
            yield from self.read_merged(columns, filter, splits_to_read, row_kind)
            return
        for layered, run in groupby(splits_to_read, lookup_merge.has_levels):
            if layered:
                for split in run:
                    yield from lookup_merge.read(self._table, columns, filter, split, row_kind)
            else:
                yield from self.read_merged(columns, filter, list(run), row_kind)

    def read_merged(
        self,
        columns: Sequence[str] | None,
        filter: Filter | None,
        splits_to_read: Sequence[bytes],
        row_kind: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of splits as the Rust core merges them: wrong for some tables, so use `read`."""
        schema = self._table.read_schema(columns, row_kind)
        one_by_one, from_orc = self.checked(schema.names, splits_to_read)
        for group in batch_size.groups(splits_to_read, self._batch_rows, one_by_one):
            where = None if group.unfiltered else filter
            with fetched(self._table, group.splits) as local:
                rust, splits = local or (None, group.splits)
                builder = self._builder(columns, None, where, group.rows, rust)
                if row_kind:
                    builder = builder.with_include_row_kind(True)
                batches = self._batches(builder, splits)
                for batch in batch_size.sized(batches, group.rows, self._batch_rows):
                    if filter is not None and group.unfiltered:
                        batch = matching(batch, filter)
                    rows = conformed(batch, schema)
                    yield rows if from_orc is None else from_orc.read(rows)

    def checked(
        self, columns: Sequence[str], splits: Sequence[bytes]
    ) -> tuple[bool, orc_values.OrcReader | None]:
        """Raise `StreamhouseError` for what the Rust core would read wrongly.

        Returns whether Avro files must be read row by row, and the reader whose `read` must convert
        the rows (None: no conversion).
        """
        ignored_deletes.check_read(self._table, splits)
        if self._table.nanosecond_columns:
            nanosecond_timestamps.check_files(self._table, columns, splits)
        from_orc = None
        if any(orc_values.SUFFIX in split for split in splits):
            from_orc = orc_values.OrcReader(self._table, splits)
            from_orc.check(columns)
        return self._traits.rows.one_by_one(self._table.identifier, columns, splits), from_orc

    def _batches(self, builder: Any, splits: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        try:
            yield from builder.new_read().read_arrow([Split.deserialize(split) for split in splits])
        except rust_core.ERRORS as error:
            raise self._read_error(error) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise self._read_error(error) from error

    @property
    def _batch_rows(self) -> int:
        value = self._table.options.get("read.batch-size")
        return READ_BATCH_ROWS if value is None else integer("read.batch-size", value, 1)

    def _builder(
        self,
        columns: Sequence[str] | None,
        snapshot: int | None,
        filter: Filter | None,
        rows: int | None = None,
        rust: Any = None,
    ) -> Any:
        """A builder of reads, of `rust` instead of the table's own."""
        options = {"read.batch-size": str(rows or self._batch_rows)}
        if snapshot is not None:
            options["scan.snapshot-id"] = str(snapshot)
        if "scan.mode" in self._table.options:
            # It says where streams start, and the core refuses every mode but this one.
            options["scan.mode"] = "default"
        try:
            builder = (rust or self._table.rust).new_read_builder(options)
        except rust_core.ERRORS as error:
            raise self._plan_error(error, snapshot) from error
        if columns is not None:
            self._table.read_schema(columns)
            builder = builder.with_projection(list(columns))
        if self._traits.chars:
            filter = only_on(filter, lambda name: name not in self._traits.chars)
        if filter is not None:
            builder = builder.with_filter(dict(filter))
        return builder

    def _plan(self, scan: Any, snapshot: int | None) -> list[bytes]:
        def plan() -> list[bytes]:
            try:
                return [split.serialize() for split in scan.plan().splits()]
            except rust_core.ERRORS as error:
                raise self._plan_error(error, snapshot) from error

        return retried(plan)

    def _plan_error(self, error: Exception, snapshot: int | None) -> StreamhouseError:
        if is_temporary(error):
            return self._read_error(error)
        if snapshot is not None and self._table.snapshots.find(snapshot) is None:
            return self._table.snapshots.expired_error(snapshot)
        return self._read_error(error)

    def _read_error(self, error: BaseException) -> StreamhouseError:
        table, text = self._table.identifier, " ".join(str(error).split())
        if is_temporary(error):
            return StoreError(f"table {table} cannot be read: {text}")
        if _WRONG_OPTION.search(text):
            return OptionError(f"table {table} cannot be read with its options: {text}")
        if rust_core.is_gone(error):
            earliest, latest = self._table.earliest_snapshot_id(), self._table.latest_snapshot_id()
            return DataLossError(
                f"table {table}: a file of the snapshot being read is gone (expired, or "
                f"dropped with the table); snapshots {earliest} to {latest} are left: {text}"
            )
        if "while decoding timestamp" in text:
            return StreamhouseError(
                f"table {table}: an ORC file has a timestamp before 1677-09-22 or after "
                "2262-04-11, which cannot be read; leave its column out of the query, or have "
                f"Flink write the table with 'file.format' = 'parquet': {text}"
            )
        return StreamhouseError(f"table {table} cannot be read: {text}")


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of a schema, cast if the core's type differs."""
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
