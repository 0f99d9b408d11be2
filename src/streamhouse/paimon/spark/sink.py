"""Spark's writes to a Paimon table: tasks write or stage rows, the driver commits them once."""

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.spark.options import DataSourceOptions
from streamhouse.paimon.spark.staging import Staged, stage, staged_rows
from streamhouse.paimon.storage.files import Files, files_of
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.buckets import BucketGroups
from streamhouse.paimon.write.commit import TableCommitter, overwrite_table
from streamhouse.paimon.write.commit_retries import rows_changed, with_retries
from streamhouse.paimon.write.rows import check_columns
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix, query_tag
from streamhouse.source import ROW_KIND
from streamhouse.sql.views.stored_view import QUERY

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_BATCH_WRITE = 2**63 - 1
"""The commit identifier of a batch write, the same as Paimon's own."""

_ABORT_S = 10.0
"""How long a failed batch write removes the files of its other tasks, which may still be running;
it ends earlier if none has written a file for `_QUIET_S`."""
_QUIET_S = 1.5
_ABORT_STEP_S = 0.25

_HOLD_S = 5.0
"""How often a stream's consumer moves forward."""

_cleaned: set[tuple[str, str]] = set()
"""Table locations and query ids whose orphan files this process has removed."""


@dataclass
class TaskMessage(WriterCommitMessage):
    """The commit message of one task: files it wrote, or rows it staged."""

    partition: int
    attempt: str
    query: str | None = None
    batch: int | None = None
    files: tuple[bytes, ...] = ()
    staged: Staged | None = None


class _Sink:
    """What batch and streaming writes have in common."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        table = self._table()
        if QUERY in table.options:
            raise TableError(
                f"{table.identifier} is a materialized view, which only its query writes; change "
                "the tables that it reads"
            )
        if options.scan or options.travel or options.limits or options.columns is not None:
            bad = [*options.scan, *options.travel, *options.limits, "columns"][0]
            raise OptionError(f"option '{bad}' is for reading; leave it out of a write")
        self._location = table.location
        planned = self._planned_table(table, schema.names)
        self._planned = planned.schema_id
        # Rows of one key must reach the table in order, but a Python data source cannot require a
        # distribution of Spark. So the tasks stage the rows, and one writer per group of buckets
        # writes them, unless they are distributed by key.
        # A table with dynamic or postponed buckets allows one writer only.
        self._staged = bool(table.primary_key) and (not options.by_key or table.bucket < 0)
        self._grouping = BucketGroups.of(planned) if self._staged else None

    def _planned_table(self, table: Table, names: Sequence[str]) -> Table:
        """The schema version that has the names of the written columns."""
        check_columns(names, table)
        return table

    def _table(self) -> Table:
        return Warehouse(self._options.catalog).table(self._options.identifier)

    def _write_files(
        self,
        rows: Iterable[pa.RecordBatch],
        user: str,
        batch: int | None,
        attempt: str | None = None,
    ) -> list[bytes]:
        """Write rows to data files of the table; returns the commit messages."""
        writer = TableWriter(
            self._options.catalog,
            self._options.identifier,
            user,
            file_prefix(user, batch, attempt),
            table_options=self._options.table,
            overwrite=self._overwrite,
            planned=self._planned,
        )
        return writer.write_all(rows, _BATCH_WRITE if batch is None else batch)

    def _write_task(
        self, batches: Iterator[pa.RecordBatch], user: str, batch: int | None, folder: str
    ) -> TaskMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        attempt = uuid.uuid4().hex[:12]
        if self._staged:
            files, name = self._files(), f"{partition}-{attempt}"
            staged = stage(files, self._grouping, folder, name, batches)
            return TaskMessage(partition, attempt, staged=staged)
        messages = self._write_files(batches, user, batch, attempt)
        return TaskMessage(partition, attempt, files=tuple(messages))

    def _commit_messages(
        self, messages: Sequence[TaskMessage], user: str, batch: int | None
    ) -> list[bytes]:
        """The commit messages of all tasks; writes staged rows, in the order of partitions."""
        ordered = sorted(messages, key=lambda message: message.partition)
        written = [message for result in ordered for message in result.files]
        staged = [result.staged for result in ordered if result.staged is not None]
        if not staged:
            return written
        # For a small write, one writer is enough, and so one file per bucket.
        by_group = self._grouping is not None and any(result.paths for result in staged)
        groups = range(self._grouping.count) if by_group and self._grouping else (None,)

        def write_group(group: int | None) -> list[bytes]:
            rows = staged_rows(self._files(), self._grouping, staged, group)
            return self._write_files(rows, user, batch)

        with ThreadPoolExecutor(min(len(groups), os.cpu_count() or 1)) as pool:
            return written + [message for part in pool.map(write_group, groups) for message in part]

    def _files(self) -> Files:
        return files_of(self._location, self._options.catalog)

    def _drop_staging(self, folder: str) -> None:
        if self._staged:
            self._files().delete(folder)

    def _committer(self, user: str) -> TableCommitter:
        return TableCommitter(self._options.catalog, self._options.identifier, user)


class PaimonWriter(_Sink, DataSourceArrowWriter):
    """One batch write, `append` or `overwrite`, in one snapshot."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._user = str(uuid.uuid4())
        self._folder = f"{self._location}/.staging-{self._user}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write_task(iterator, self._user, None, self._folder)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        try:
            written = [message for message in messages if isinstance(message, TaskMessage)]
            if self._overwrite:
                commit_messages = self._commit_messages(written, self._user, None)
                overwrite_table(self._table(), self._user, commit_messages, self._options.table)
            else:
                self._append(written)
        finally:
            self._drop_staging(self._folder)

    def _append(self, written: Sequence[TaskMessage]) -> None:
        """Commit the rows; writes staged ones again if other commits made them outdated."""
        committer = self._committer(self._user)

        def write() -> bool | None:
            table = self._table()
            seen = table.latest_snapshot_id()
            commit_messages = self._commit_messages(written, self._user, None)
            with commit_lock(self._location):
                if not (self._staged and rows_changed(table, seen)):
                    return committer.commit(_BATCH_WRITE, commit_messages)
            committer.abort(commit_messages)
            return None

        with_retries(self._table(), write)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Spark aborts as soon as one task has failed, while others may still write.
        quiet_since = started = time.monotonic()
        while time.monotonic() - quiet_since < _QUIET_S and time.monotonic() - started < _ABORT_S:
            self._drop_staging(self._folder)
            if self._committer(self._user).remove_leftovers(query_tag(self._user)):
                quiet_since = time.monotonic()
            time.sleep(_ABORT_STEP_S)


def _hold(table: Table, user: str) -> None:
    """Hold the newest snapshot and later ones, so that replays of the next commit are recognised.

    Spark never replays the batches before. An older position holds these snapshots as well, so the
    consumer is updated only every `_HOLD_S` seconds.
    """
    consumers, name = Consumers(table), query_consumer(user)
    refreshed = consumers.refreshed_s(name)
    if refreshed is None or time.time() - refreshed >= _HOLD_S:
        consumers.hold(name, table.latest_snapshot_id() or 1)


class PaimonStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Streaming write: commits each micro-batch once, by the query's id and the batch's number."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if overwrite:
            raise OptionError(
                "format 'paimon': outputMode 'complete' is not supported; use 'update' with a "
                "table whose primary key is the grouping"
            )

    def _planned_table(self, table: Table, names: Sequence[str]) -> Table:
        # Spark creates a writer for each batch, and keeps the column names that the query began
        # with.
        try:
            return super()._planned_table(table, names)
        except TableError:
            for number in range(table.schema_id - 1, -1, -1):
                earlier = table.find_version(number)
                if earlier is not None and set(names) <= {*earlier.arrow_schema.names, ROW_KIND}:
                    return earlier
            raise

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        user = None if context is None else context.getLocalProperty(_QUERY_ID)
        number = None if context is None else context.getLocalProperty(_BATCH_ID)
        if user is None or number is None:
            raise StreamhouseError("format 'paimon': only a streaming query of Spark writes here")
        batch = int(number)
        written = self._write_task(iterator, user, batch, self._folder(user, batch))
        written.query, written.batch = user, batch
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, TaskMessage)]
        user = next((result.query for result in written if result.query), None)
        if user is None:
            return
        committer = self._committer(user)
        self._clean(committer, user, written)
        try:
            if committer.committed(batchId):
                committer.discard(batchId, [file for result in written for file in result.files])
                return
            self._check_planned_columns(committer.table, user)
            _hold(committer.table, user)
            # Under the lock no DML statement commits in between, whose rows would hide these.
            with commit_lock(self._location) if self._staged else nullcontext():
                commit_messages = self._commit_messages(written, user, batchId)
                committer.commit(batchId, commit_messages)
        finally:
            self._drop_staging(self._folder(user, written[0].batch))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, TaskMessage)]
        for user, batch in {(result.query, result.batch) for result in written if result.query}:
            self._drop_staging(self._folder(user, batch))
            self._committer(user).remove_leftovers(query_tag(user), batchId)

    def _check_planned_columns(self, table: Table, user: str) -> None:
        """Raise `TableError` for outdated column names, unless the query has written before."""
        if self._planned != table.schema_id and Consumers(table).get(query_consumer(user)) is None:
            planned = table.find_version(self._planned) or table
            check_columns(planned.arrow_schema.names, table)

    def _clean(self, committer: TableCommitter, user: str, written: Sequence[TaskMessage]) -> None:
        """Before the first commit of a run, delete files that killed runs left behind."""
        key = (self._location, user)
        if key not in _cleaned:
            _cleaned.add(key)
            committer.remove_leftovers(query_tag(user), keep={result.attempt for result in written})
            batch = written[0].batch
            files = self._files()
            folder = f"{self._location}/.staging-{user}"
            for name, _ in files.names(folder):
                if name != str(batch):
                    files.delete(f"{folder}/{name}")

    def _folder(self, user: str, batch: int | None) -> str:
        return f"{self._location}/.staging-{user}/{batch}"
