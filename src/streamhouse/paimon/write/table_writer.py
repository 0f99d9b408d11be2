"""Writes rows to data files of a table; executors."""

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.errors import CommitConflictError, StoreError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.rust_core.postpone_bucket import check_written
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import with_current_names
from streamhouse.paimon.schema.file_formats.nanosecond_timestamps import check_type
from streamhouse.paimon.schema.file_formats.orc_values import OrcValues, may_hold_orc
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.metadata_mirror.write import MirroredWrite
from streamhouse.paimon.storage.object_store.store_retries import is_temporary
from streamhouse.paimon.write.merge_rules.merged_elements import MergedElements
from streamhouse.paimon.write.merge_rules.remove_record_on_delete import removals_without_values
from streamhouse.paimon.write.merge_rules.retraction_file_split import SeparateFiles
from streamhouse.paimon.write.merge_rules.sum_columns import ProductColumns
from streamhouse.paimon.write.merge_rules.sum_limits import AddedRows
from streamhouse.paimon.write.merge_rules.unaccepted_retractions import (
    BeforeImageFilter,
    RetractionFilter,
    check_moves,
    check_overwrite,
    must_drop_before_images,
    takes_upserts,
)
from streamhouse.paimon.write.rows import to_table
from streamhouse.source import ROW_KIND, of_kind
from streamhouse.sql.options.merge_functions import MERGING_ENGINES, removes_records

COMMIT_OPTIONS = {
    "commit.min-retry-wait": "5 ms",
    "commit.max-retry-wait": "50 ms",
    "commit.max-retries": "100",
    "snapshot.ignore-empty-commit": "true",
}
"""Options of each commit. Its retries are short and many, as a compactor commits concurrently."""
_LEAST_BUFFER_BYTES = 8 * 1024 * 1024


def query_tag(commit_user: str) -> str:
    """How the data files of a commit user begin: up to 16 letters and digits of the user."""
    return re.sub(r"[^A-Za-z0-9]", "", commit_user)[:16]


def file_prefix(commit_user: str, batch: int | None = None, attempt: str | None = None) -> str:
    """The file name prefix of one attempt at one batch, by which orphan files are recognised.

    `attempt` is a word without '-', by default a random one. `batch` is None where the writer
    does not know its number.
    """
    number = "" if batch is None else f"b{batch}-"
    return f"{query_tag(commit_user)}-{number}{attempt or uuid.uuid4().hex[:12]}-"


def writable(
    table: Table, prefix: str | None = None, table_options: Mapping[str, str] | None = None
) -> Table:
    """The table with the options with which Streamhouse writes it."""
    options = {**COMMIT_OPTIONS, **(table_options or {})}
    if prefix is not None:
        options["data-file.prefix"] = prefix
        options["changelog-file.prefix"] = f"{prefix}changelog-"
    # Paimon's Rust core cannot write compressed ORC, nor timestamps in ORC. Readers take a file's
    # format from its suffix, so the compactor can still write the table's own format.
    for key in ("file.format", "changelog-file.format"):
        if options.get(key, table.options.get(key, "")).lower() == "orc":
            options[key] = "parquet"
    if table.options.get("merge-engine") in MERGING_ENGINES:
        # The Rust core refuses to write such a table with deletion vectors. The level-0 files that
        # it writes need none: compaction creates them, by the table's own options.
        options["deletion-vectors.enabled"] = "false"
    return table.copy(options)


def overwrite_builder(
    table: Table, commit_user: str, partition: Mapping[str, Any] | None = None
) -> Any:
    """The Rust core's builder that replaces all rows, or those of a partition (column to value)."""
    builder = table.rust.new_batch_write_builder()._with_commit_user(commit_user)
    return builder.with_overwrite(dict(partition or {}))


class TableWriter:
    """Writes batches of rows to a table's data files; executors. One object per attempt at a batch.

    The rows become visible only when a `TableCommitter` commits what `prepare` returns (or, with
    `overwrite`, when `overwrite_table` does). `table_options` override the table's own. Rows have
    the column names of schema version `planned`, by default the newest. `buffer_bytes`: how much
    the buffers of all buckets have together, unless the table sets `write-buffer-size`.
    `followed`: the process writes the table again and again (`Warehouse.followed`). `commutes`:
    the order of commits does not change the rows of the table. `commit`: the identifier of the
    commit that the rows are for.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        identifier: str,
        commit_user: str,
        prefix: str | None = None,
        table_options: Mapping[str, str] | None = None,
        overwrite: bool = False,
        partition: Mapping[str, Any] | None = None,
        planned: int | None = None,
        buffer_bytes: int | None = None,
        followed: bool = False,
        commutes: bool = False,
        commit: int = 0,
    ) -> None:
        warehouse = Warehouse(warehouse_options)
        table = warehouse.followed(identifier) if followed else warehouse.table(identifier)
        table_options = {**_buffer_options(table, buffer_bytes), **(table_options or {})}
        check_written(table)
        check_moves(table)
        for name in table.nanosecond_columns:
            check_type(f"table {identifier}", name, table.arrow_schema.field(name).type)
        self._planned, self._commit = planned, commit
        self._table = writable(table, prefix, table_options)
        self._overwrite = overwrite
        write_options = {**table.options, **table_options}
        if overwrite:
            check_overwrite(table, write_options, partition)
        self._orc = OrcValues(table) if may_hold_orc(write_options) else None
        upserts = takes_upserts(table)
        drops_before_images = upserts or must_drop_before_images(table)
        self._before_images = BeforeImageFilter(self._table) if drops_before_images else None
        filters = upserts or table.crosses_partitions
        self._retractions = RetractionFilter(self._table) if filters else None
        separate = SeparateFiles(self._table)
        self._separate = separate if separate.needed else None
        self._products = ProductColumns(table)
        self._elements = MergedElements(table)
        self._removes_records = removes_records(table.options)
        if overwrite:
            builder = overwrite_builder(self._table, commit_user, partition)
        else:
            builder = self._table.rust.new_stream_write_builder().with_commit_user(commit_user)
        self._builder = builder
        self._writer: Any = None
        """The Rust core's writer, or one with its methods."""
        if followed and not overwrite:
            self._writer = MirroredWrite.of(self._table, builder, commit_user, commutes)
        self._kinds: bool | None = None
        self._added = AddedRows(self._table)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch: columns by name, with an optional `rowkind` column.

        Missing columns get their default, else null. If the first batch had row kinds, rows of a
        batch without are `+I`. Raises `TableError` for unknown or missing columns, values that do
        not fit, retractions that the table cannot apply, and a batch with row kinds after one
        without; `SchemaChangeError` for values of a column that was dropped since;
        `StreamhouseError` if the disk is full.
        """
        if batch.num_rows == 0:
            return
        batch = with_current_names(batch, self._table, self._planned)
        self._put(batch if self._before_images is None else self._before_images.take(batch))

    def _put(self, batch: pa.RecordBatch) -> None:
        if self._retractions is not None:
            batch = self._retractions.take(batch)
        batch = self._elements.apply(batch)
        if self._removes_records:
            batch = removals_without_values(self._table, batch)
        self._products.check(batch)
        if self._separate is not None:
            batch = self._separate.take(batch)
        if batch.num_rows:
            self._write(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        rows = to_table(self._with_row_kinds(batch), self._table)
        if self._orc is not None:
            rows = self._orc.fitted(rows)
        self._added.take(rows)
        try:
            self._opened().write_arrow(rows)
        except rust_core.ERRORS as error:
            raise write_error(self._table, error) from error

    def _opened(self) -> Any:
        if self._writer is None:
            self._writer = self._builder.new_write()
        return self._writer

    def _with_row_kinds(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, with row kinds if the first one had them, which the Rust core goes by."""
        kinds = ROW_KIND in batch.schema.names
        if self._kinds is None:
            self._kinds = kinds
        if kinds == self._kinds:
            return batch
        if kinds:
            raise TableError(
                f"table '{self._table.identifier}': rows with a '{ROW_KIND}' came after rows "
                "without one; set it in all of them"
            )
        return of_kind(batch, "+I")

    def prepare(self, identifier: int | None = None) -> list[bytes]:
        """Close the files and return the serialised commit messages.

        `identifier` is that of the commit, by default `commit`. Raises `TableError` if a sum of the
        rows exceeds its column's type.
        """
        identifier = self._commit if identifier is None else identifier
        last_row = None if self._before_images is None else self._before_images.rest()
        if last_row is not None:
            self._put(last_row)
        messages = list[Any]()
        while self._separate is not None and (held_rows := self._separate.next()):
            messages += self._closed_files(identifier)
            for batch in held_rows:
                self._write(batch)
        self._added.check()
        return [message.serialize() for message in (*messages, *self._closed_files(identifier))]

    def _closed_files(self, identifier: int) -> Sequence[Any]:
        try:
            arguments = () if self._overwrite else (True, identifier)
            messages: Sequence[Any] = self._opened().prepare_commit(*arguments)
        except rust_core.ERRORS as error:
            raise write_error(self._table, error) from error
        return messages

    def write_all(
        self, batches: Iterable[pa.RecordBatch], identifier: int | None = None
    ) -> list[bytes]:
        """Write all batches, and close the writer, also after a failure; returns the messages.

        `identifier` as in `prepare`.
        """
        try:
            for batch in batches:
                self.write(batch)
            return self.prepare(identifier)
        finally:
            self.close()

    def close(self) -> None:
        """Free buffers; files that `prepare` has not returned become orphan files."""
        # The Rust writer must be dropped in the thread that created it, not by Python's garbage
        # collector.
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _buffer_options(table: Table, buffer_bytes: int | None) -> dict[str, str]:
    """The size of each bucket's buffer.

    By default Paimon's Rust core takes 256 MB for each, and twice that while it writes a full one
    to a file. It does not know the option `write-buffer-size`.
    """
    size = table.options.get("write-buffer-size")
    if size is None and buffer_bytes is None:
        return {}
    if size is None:
        shared = (buffer_bytes or 0) // max(1, table.bucket)
        size = f"{max(_LEAST_BUFFER_BYTES, shared)} b"
    return {"write.parquet-buffer-size": size}


def write_error(table: Table, error: Exception) -> StreamhouseError:
    """The error of a failed write or commit in terms of what the user can do about it."""
    text = " ".join(str(error).split())
    if "No space left on device" in text or "StorageFull" in text:
        return StreamhouseError(
            f"table {table.identifier}: the disk under {table.location} is full; free some space "
            "and try again; nothing committed is lost"
        )
    if is_temporary(error):
        return StoreError(f"table {table.identifier} cannot be written: {text}")
    if "invalid config" in text:
        reason = text.partition("invalid config:")[2].strip() or text
        return StreamhouseError(
            f"table {table.identifier} cannot be written, since its options conflict: {reason}"
        )
    if "different total bucket counts" in text:
        return TableError(
            f"table {table.identifier}: its option 'bucket' was changed to {table.bucket}, but "
            "existing rows are in another number of buckets; rewrite the table with INSERT "
            f"OVERWRITE {table.identifier} SELECT … FROM {table.identifier}, then try again"
        )
    if "conflict" in text.lower() or "retries" in text.lower():
        return CommitConflictError(
            f"table {table.identifier}: the commit conflicted with other writers too often; try "
            f"again, or let fewer queries and compactions write this table at once: {text}"
        )
    return StreamhouseError(f"table {table.identifier} cannot be written: {text}")
