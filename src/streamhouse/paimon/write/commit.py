"""Exactly-once writes: executors write data files; the driver commits them and cleans up."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import CommitMessage

from streamhouse.errors import StoreError, TableError
from streamhouse.merge_functions import MERGING_ENGINES
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.rust_core.postpone_bucket import check_written
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.time_travel import pinned
from streamhouse.paimon.schema.evolution import for_now
from streamhouse.paimon.schema.file_formats.nanosecond_timestamps import check_type
from streamhouse.paimon.schema.file_formats.orc_values import OrcValues, may_hold_orc
from streamhouse.paimon.schema.options.remove_record_option import removes_records
from streamhouse.paimon.schema.table_name import MAIN, TableName
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.data_files import data_files
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.lock import LOCK_WAIT_S, commit_lock
from streamhouse.paimon.storage.mirror.commit import MirroredCommit
from streamhouse.paimon.storage.mirror.followed import parts
from streamhouse.paimon.storage.mirror.write import MirroredWrite
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.paimon.storage.split_groups import file_ids as _ids
from streamhouse.paimon.write.before_images import BeforeImageFilter, hides_by_sequence
from streamhouse.paimon.write.product_columns import Products
from streamhouse.paimon.write.remove_record_on_delete import removals_without_values
from streamhouse.paimon.write.retraction_file_split import SeparateFiles, needs_separate_files
from streamhouse.paimon.write.rows import to_table
from streamhouse.paimon.write.sum_limits import AddedRows, SumLimits, check_overwritten_sums
from streamhouse.paimon.write.unaccepted_retractions import (
    Removals,
    check_moves,
    check_overwrite,
    restricts_removals,
    takes_upserts,
)
from streamhouse.paimon.write.write_error import write_error
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import AsOf

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


class TableWriter:
    """Writes batches of rows to a table's data files; executors. One object per attempt at a batch.

    The rows become visible only when a `TableCommitter` commits what `prepare` returns (or, with
    `overwrite`, when `overwrite_table` does). `table_options` override the table's own. Rows have
    the column names of schema version `planned`, by default the newest. `buffer_bytes`: how much
    the buffers of all buckets have together, unless the table sets `write-buffer-size`.
    `followed`: the process writes the table again and again (`Warehouse.followed`).
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
    ) -> None:
        warehouse = Warehouse(warehouse_options)
        table = warehouse.followed(identifier) if followed else warehouse.table(identifier)
        table_options = {**_buffer_options(table, buffer_bytes), **(table_options or {})}
        check_written(table)
        check_moves(table)
        for name in table.fine_columns:
            check_type(f"table {identifier}", name, table.arrow_schema.field(name).type)
        self._planned = planned
        self._table = writable(table, prefix, table_options)
        self._overwrite = overwrite
        write_options = {**table.options, **table_options}
        if overwrite:
            check_overwrite(table, write_options, partition)
        self._orc = OrcValues(table) if may_hold_orc(write_options) else None
        drops_before_images = takes_upserts(table) or hides_by_sequence(table)
        self._before_images = BeforeImageFilter(self._table) if drops_before_images else None
        self._removals = Removals(self._table) if restricts_removals(table) else None
        self._separate = SeparateFiles(self._table) if needs_separate_files(table) else None
        self._products = Products(table)
        self._removes_records = removes_records(table.options)
        if overwrite:
            builder = _overwrite_builder(self._table, commit_user, partition)
        else:
            builder = self._table.rust.new_stream_write_builder().with_commit_user(commit_user)
        self._builder = builder
        self._writer: Any = None
        self._held: MirroredWrite | None = None
        if followed and not overwrite:
            self._held = MirroredWrite.of(self._table, commit_user)
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
        batch = for_now(batch, self._table, self._planned)
        self._put(batch if self._before_images is None else self._before_images.take(batch))

    def _put(self, batch: pa.RecordBatch) -> None:
        if self._removals is not None:
            batch = self._removals.take(batch)
        self._products.check(batch)
        if self._removes_records:
            batch = removals_without_values(self._table, batch)
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
            if self._held is None:
                self._opened().write_arrow(rows)
            elif not self._held.take(rows):
                self._write_held()
        except rust_core.ERRORS as error:
            raise write_error(self._table, error) from error

    def _opened(self) -> Any:
        """The Rust core's writer."""
        if self._writer is None:
            self._writer = self._builder.new_write()
        return self._writer

    def _write_held(self) -> None:
        """Write the rows that were held, and from now on all others, by the core itself."""
        held, self._held = self._held, None
        if held is not None:
            for rows in held.rows:
                self._opened().write_arrow(rows)
            held.close()

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
        return batch.append_column(ROW_KIND, pa.repeat("+I", batch.num_rows))

    def prepare(self, identifier: int) -> list[bytes]:
        """Close the files and return the serialised commit messages.

        Raises `TableError` if a sum of the rows exceeds its column's type.
        """
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
            few = None if self._held is None else self._held.closed_files(identifier)
            if few is not None:
                return few
            self._write_held()
            arguments = () if self._overwrite else (True, identifier)
            messages: Sequence[Any] = self._opened().prepare_commit(*arguments)
        except rust_core.ERRORS as error:
            raise write_error(self._table, error) from error
        return messages

    def close(self) -> None:
        """Free buffers; files that `prepare` has not returned become orphan files."""
        # The Rust writer must be dropped in the thread that created it, not by Python's garbage
        # collector.
        writer, self._writer = self._writer, None
        held, self._held = self._held, None
        for one in (writer, held):
            if one is not None:
                one.close()


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


class TableCommitter:
    """Commits what writers prepared, each identifier once; driver.

    `commit_user` identifies the query for ever, so it must be the checkpoint's own id: if a new
    query reused it, its first batches would count as replays. `followed`: it commits again and
    again (`Warehouse.followed`).
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        identifier: str,
        commit_user: str,
        followed: bool = False,
    ) -> None:
        self._warehouse = Warehouse(warehouse_options)
        self._followed = followed
        self._generation = rust_core.metadata_generation()
        self._identifier = identifier
        self._user = commit_user
        self._checked_until = 0
        self._last_identifier = -1
        self._opened: Table | None = None
        self._mirrored: MirroredCommit | None = None
        self._refresh()

    @property
    def table(self) -> Table:
        return self._table

    def _refresh(self) -> None:
        """Follow schema changes: a commit records the schema version in its snapshot."""
        warehouse, name = self._warehouse, self._identifier
        table = warehouse.followed(name, caches=True) if self._followed else warehouse.table(name)
        if table is not self._opened:
            self._opened, self._table = table, writable(table)
            builder = self._table.rust.new_stream_write_builder().with_commit_user(self._user)
            self._commit: Any = builder.new_commit()
            self._sums = SumLimits(table, self._table)
            self._open_mirror(table)

    def _open_mirror(self, table: Table) -> None:
        """Commit with few requests, if the table is in an object store."""
        mirrored, self._mirrored = self._mirrored, None
        if mirrored is not None:
            mirrored.close()
        found = parts(table)
        if found is not None:
            self._mirrored = MirroredCommit(
                found[0], table.root, table.schema, self._table.schema, self._user
            )

    def commit(self, identifier: int, messages: Sequence[bytes], lock_held: bool = False) -> bool:
        """Make the rows of `messages` visible under `identifier`, which must increase.

        Returns False if that identifier was committed before: then nothing changes, and the
        files of these messages are deleted (unless they are the ones that were committed).
        Without messages, no snapshot is created. With `lock_held` the caller holds the table's
        `commit_lock`. Raises `CommitConflictError` if the commit lost against other writers too
        often, and `TableError` if a sum exceeds its column's type.
        """
        if not messages:
            return not self.committed(identifier)
        commit_messages = [CommitMessage.deserialize(message) for message in messages]

        def commit() -> bool:
            try:
                with _locked(self._table, lock_held):
                    return self._commit_once(identifier, messages, commit_messages)
            except rust_core.ERRORS as error:
                # What it had read of other commits is not known.
                rust_core.forget_metadata()
                raise write_error(self._table, error) from error

        committed = retried(commit)
        if not committed:
            self.discard(identifier, messages)
        return committed

    def _commit_once(
        self, identifier: int, messages: Sequence[bytes], commit_messages: Sequence[Any]
    ) -> bool:
        """Commit, under the table's lock, unless `identifier` was committed before."""
        self._check_history()
        self._refresh()
        # The core looks for an earlier commit by itself, with more requests to an object store.
        known = self._table.followed and self._checked_until > 0
        if known and self._has(identifier):
            return False
        self._check_sums(identifier, messages)
        if known:
            if self._commit_mirrored(identifier, commit_messages):
                return True
            self._commit.commit(identifier, commit_messages)
            committed = True
        else:
            committed = bool(self._commit.filter_and_commit({identifier: commit_messages}))
        try:
            self._note(identifier, committed)
        except StoreError:
            # The commit is done. The next one reads the table anew.
            self._checked_until, self._last_identifier, self._opened = 0, -1, None
            rust_core.forget_metadata()
        return committed

    def _commit_mirrored(self, identifier: int, commit_messages: Sequence[Any]) -> bool:
        """Commit by a local copy of the metadata; False if that is not possible."""
        snapshots, newest = self._table.snapshots, self._checked_until
        if self._mirrored is None or not isinstance(snapshots, FollowedSnapshots):
            return False
        base = snapshots.texts(newest, newest)
        done = base and self._mirrored.commit(base[0], identifier, commit_messages)
        if not done:
            return False
        snapshots.add_commit(*done, self._mirrored.folder)
        self._checked_until, self._last_identifier = newest + 1, identifier
        self._sums.committed()
        return True

    def _note(self, identifier: int, committed: bool) -> None:
        """Remember the newest snapshot after a commit."""
        if committed and self._table.followed:
            self._table.snapshots.note_commit(self._user, identifier)
            self._checked_until = self._table.latest_snapshot_id(LOCK_WAIT_S) or 0
            self._last_identifier = identifier
        self._sums.committed()

    def _check_history(self) -> None:
        """Forget earlier commits if the table was rolled back, or dropped and created again."""
        same = self._table.snapshots.verify()
        # Another thread may have noticed it.
        generation = rust_core.metadata_generation()
        if not same or (self._followed and generation != self._generation):
            self._checked_until, self._last_identifier = 0, -1
        self._generation = generation

    def _check_sums(self, identifier: int, messages: Sequence[bytes]) -> None:
        try:
            self._sums.check(messages)
        except TableError:
            # In a replay, the sums contain these rows already.
            if not self.committed(identifier):
                self.abort(messages)
                raise

    def committed(self, identifier: int) -> bool:
        """Whether this user has committed `identifier` or a later one."""
        self._check_history()
        return self._has(identifier)

    def _has(self, identifier: int) -> bool:
        # `verify` has just looked for newer ones.
        latest = self._table.latest_snapshot_id(LOCK_WAIT_S) or 0
        if latest < self._checked_until:
            # The table was rolled back, or dropped and created again.
            self._checked_until, self._last_identifier = 0, -1
        last = self._table.snapshots.last_commit_of(self._user, self._checked_until, latest)
        if last is not None:
            self._last_identifier = last.commit_identifier
        # Only this object commits as this user, so older snapshots need not be read again.
        self._checked_until = latest
        return self._last_identifier >= identifier

    def abort(self, messages: Sequence[bytes]) -> None:
        """Delete the files of messages that are known never to have been committed."""
        self._commit.abort([CommitMessage.deserialize(message) for message in messages])

    def remove_leftovers(
        self, query_tag: str, from_identifier: int = 0, keep: Collection[str] = ()
    ) -> int:
        """Delete orphan files of a query's attempts: no snapshot or tag has them; returns how many.

        Checks files whose name has `query_tag` and a batch from `from_identifier` on, or no batch
        at all, except those whose attempt is in `keep`. Call it before the query writes.
        """
        pattern = re.compile(rf"{re.escape(query_tag)}-(?:b(?P<batch>\d+)-)?(?P<attempt>[^-]+)-")
        candidates: dict[str, str] = {}
        for folder, name in data_files(self._table, self._table.location):
            match = pattern.match(name)
            if match is None or match["attempt"] in keep:
                continue
            if match["batch"] is None or int(match["batch"]) >= from_identifier:
                candidates[f"{folder}/{name}"] = name
        if not candidates:
            return 0
        referenced = _referenced_files(self._table)
        orphans = [
            path for path, name in candidates.items() if not _ids(name.encode()) <= referenced
        ]
        for path in orphans:
            self._table.files.delete(path)
        return len(orphans)

    def discard(self, identifier: int, messages: Sequence[bytes]) -> None:
        """Delete the files of a replay of `identifier`, unless they are the committed ones."""
        ids = _ids(*messages)
        for snapshot in self._table.snapshots.newest_first():
            if snapshot.commit_user != self._user or snapshot.commit_identifier > identifier:
                continue
            if snapshot.commit_identifier < identifier:
                break
            if not ids & _added_files(self._table, snapshot.id):
                self.abort(messages)
            return


def overwrite_table(
    table: Table,
    commit_user: str,
    messages: Sequence[bytes],
    table_options: Mapping[str, str] | None = None,
    partition: Mapping[str, Any] | None = None,
    lock_held: bool = False,
) -> None:
    """Replace a table's rows by those of `messages`, in one snapshot; driver.

    In a partitioned table, this replaces only the partitions written to; with the option
    `dynamic-partition-overwrite` = `false`, all of them. If a `partition` is given (column to
    value, for some or all partition keys), it replaces the partitions with these values. With
    `lock_held` the caller holds the table's `commit_lock`. Raises `TableError` if a sum exceeds
    its column's type.
    """
    builder = _overwrite_builder(writable(table, None, table_options), commit_user, partition)
    commit = builder.new_commit()
    commit_messages = [CommitMessage.deserialize(message) for message in messages]
    try:
        check_overwritten_sums(table, messages)
    except TableError:
        commit.abort(commit_messages)
        raise
    try:
        with _locked(table, lock_held):
            commit.commit(commit_messages)
    except rust_core.ERRORS as error:
        raise write_error(table, error) from error


def truncate_table(table: Table, commit_user: str, lock_held: bool = False) -> None:
    """Delete all rows of a table, in one snapshot; driver.

    With `lock_held` the caller holds the table's `commit_lock`.
    """
    try:
        with _locked(table, lock_held):
            _overwrite_builder(writable(table), commit_user).new_commit().truncate_table()
    except rust_core.ERRORS as error:
        raise write_error(table, error) from error


def _locked(table: Table, held: bool) -> AbstractContextManager[None]:
    return nullcontext() if held else commit_lock(table.location)


def _overwrite_builder(
    table: Table, commit_user: str, partition: Mapping[str, Any] | None = None
) -> Any:
    builder = table.rust.new_batch_write_builder()._with_commit_user(commit_user)
    return builder.with_overwrite(dict(partition or {}))


def _referenced_files(table: Table) -> set[bytes]:
    """Ids of the data files that a remaining snapshot or tag refers to, in any branch.

    Branches share the folders of data files, and may refer to files that the main branch has
    expired.
    """
    referenced = set()
    name, warehouse = TableName.parse(table.name), Warehouse(table.catalog_options)
    for branch in (MAIN, *table.references.branches()):
        branch_table = warehouse.table(f"{table.database}.{name.on(branch)}")
        referenced |= _files_of_snapshots(branch_table)
        for tag in branch_table.references.tags():
            referenced |= _ids(*pinned(branch_table, AsOf(tag=tag)).splits())
    return referenced


def _files_of_snapshots(table: Table) -> set[bytes]:
    earliest = table.earliest_snapshot_id()
    latest = table.latest_snapshot_id()
    if earliest is None or latest is None:
        return set()
    files = _ids(*table.splits(earliest), *table.splits(latest))
    for snapshot_id in range(earliest, latest + 1):
        files |= _added_files(table, snapshot_id)
    return files


def _added_files(table: Table, snapshot_id: int) -> set[bytes]:
    snapshot = table.snapshots.find(snapshot_id)
    if snapshot is None or snapshot.commit_kind == "COMPACT":
        return set()
    if snapshot.commit_kind == "OVERWRITE":
        return _ids(*table.splits(snapshot_id))
    added = _ids(*table.changes(snapshot_id - 1, snapshot_id, "delta"))
    if snapshot.changelog_record_count:
        added |= _ids(*table.changes(snapshot_id - 1, snapshot_id, "changelog"))
    return added
