"""Commits of what writers prepared, exactly once, and overwrites; removes files left behind."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pypaimon_rust.datafusion import CommitMessage

from streamhouse.errors import StoreError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse, evict
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.time_travel import table_as_of
from streamhouse.paimon.readers import wake_readers
from streamhouse.paimon.schema.table_name import MAIN, TableName
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.data_files import data_files
from streamhouse.paimon.storage.lock import LOCK_WAIT_S, commit_lock
from streamhouse.paimon.storage.metadata_mirror.commit import commit_in_copy
from streamhouse.paimon.storage.metadata_mirror.folder import object_store_parts
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.paimon.storage.split_groups import file_ids as _ids
from streamhouse.paimon.write.merge_rules.sum_limits import SumLimits
from streamhouse.paimon.write.table_writer import overwrite_builder, writable, write_error
from streamhouse.sql.plan import AsOf


class TableCommitter:
    """Commits what writers prepared, each identifier once; driver.

    `commit_user` identifies the query for ever, so it must be the checkpoint's own id: if a new
    query reused it, its first batches would count as replays.
    """

    def __init__(
        self, warehouse_options: Mapping[str, str], identifier: str, commit_user: str
    ) -> None:
        self._warehouse = Warehouse(warehouse_options)
        self._identifier = identifier
        self._user = commit_user
        self._checked_until = 0
        self._last_identifier = -1
        self._sure = False
        self._opened: Table | None = None
        self._refresh()
        self._replacements = self._table.snapshots.replacements

    @property
    def table(self) -> Table:
        return self._table

    def _refresh(self) -> None:
        """Follow schema changes: a commit records the schema version in its snapshot."""
        table = self._warehouse.followed(self._identifier)
        if table is not self._opened:
            self._opened, self._table = table, writable(table)
            builder = self._table.rust.new_stream_write_builder().with_commit_user(self._user)
            self._commit: Any = builder.new_commit()
            self._sums = SumLimits(table, self._table)

    def commit(self, identifier: int, messages: Sequence[bytes]) -> bool:
        """Make the rows of `messages` visible under `identifier`, which must increase.

        Returns False if that identifier was committed before: then nothing changes, and the
        files of these messages are deleted (unless they are the ones that were committed).
        Without messages, no snapshot is created. Raises `CommitConflictError` if the commit lost
        against other writers too often, and `TableError` if a sum exceeds its column's type.
        """
        if not messages:
            return not self.committed(identifier)
        commit_messages = [CommitMessage.deserialize(message) for message in messages]

        def commit() -> bool:
            try:
                with commit_lock(self._table.location):
                    return self._commit_once(identifier, messages, commit_messages)
            except rust_core.ERRORS as error:
                raise write_error(self._table, error) from error

        committed = retried(commit)
        if committed:
            wake_readers(self._identifier)
        else:
            self.discard(identifier, messages)
        return committed

    def _commit_once(
        self, identifier: int, messages: Sequence[bytes], commit_messages: Sequence[Any]
    ) -> bool:
        """Commit, under the table's lock, unless `identifier` was committed before.

        A copy of the metadata is on top of the newest known snapshot, which is verified during the
        upload. So what is known is verified before only for the first commit, after a failure, and
        if the core must commit to the store itself.
        """
        sure, self._sure = self._sure and self._verifies_later(), False
        if not sure:
            self._check_history()
        self._refresh()
        # The core looks for an earlier commit by itself, with more requests to an object store.
        known = self._table.followed and self._checked_until > 0
        if known and self._has(identifier):
            return sure and self._commit_once(identifier, messages, commit_messages)
        self._check_sums(identifier, messages)
        newest = self._checked_until
        if known and commit_in_copy(self._table, self._user, newest, identifier, commit_messages):
            self._checked_until, self._last_identifier = newest + 1, identifier
            self._sums.committed()
            self._sure = True
            return True
        if sure:
            return self._commit_once(identifier, messages, commit_messages)
        if known:
            self._commit.commit(identifier, commit_messages)
            committed = True
        else:
            committed = bool(self._commit.filter_and_commit({identifier: commit_messages}))
        try:
            self._note(identifier, committed)
        except StoreError:
            # The commit is done; the next one opens the table again.
            self._checked_until, self._last_identifier, self._opened = 0, -1, None
        self._sure = True
        return committed

    def _verifies_later(self) -> bool:
        """Whether the store refuses a snapshot whose number is taken, and none was replaced."""
        same = self._table.snapshots.replacements == self._replacements
        parts = object_store_parts(self._table)
        return same and parts is not None and parts[0].has_conditions

    def _note(self, identifier: int, committed: bool) -> None:
        """Remember the newest snapshot after a commit."""
        if committed and self._table.followed:
            self._checked_until = self._table.latest_snapshot_id() or 0
            self._last_identifier = identifier
        self._sums.committed()

    def _check_history(self) -> None:
        """Forget earlier commits if the table was rolled back, or dropped and created again."""
        snapshots = self._table.snapshots
        snapshots.verify()
        # Another thread may have noticed it.
        if snapshots.replacements != self._replacements:
            self._replacements = snapshots.replacements
            evict(self._identifier)
            self._checked_until, self._last_identifier = 0, -1

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

    def last_identifier(self) -> int:
        """The last identifier that this user has committed; -1 before the first."""
        self._check_history()
        self._has(0)
        return self._last_identifier

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
        table = self._table
        for folder, name in data_files(table.files, table.location):
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
) -> None:
    """Replace a table's rows by those of `messages`, in one snapshot; driver.

    In a partitioned table, this replaces only the partitions written to; with the option
    `dynamic-partition-overwrite` = `false`, all of them. If a `partition` is given (column to
    value, for some or all partition keys), it replaces the partitions with these values. Raises
    `TableError` if a sum exceeds its column's type.
    """
    builder = overwrite_builder(writable(table, None, table_options), commit_user, partition)
    commit = builder.new_commit()
    commit_messages = [CommitMessage.deserialize(message) for message in messages]
    try:
        SumLimits(table, table, alone=True).check(messages)
    except TableError:
        commit.abort(commit_messages)
        raise
    try:
        with commit_lock(table.location):
            commit.commit(commit_messages)
    except rust_core.ERRORS as error:
        raise write_error(table, error) from error


def truncate_table(table: Table, commit_user: str) -> None:
    """Delete all rows of a table, in one snapshot; driver."""
    try:
        with commit_lock(table.location):
            overwrite_builder(writable(table), commit_user).new_commit().truncate_table()
    except rust_core.ERRORS as error:
        raise write_error(table, error) from error


def _referenced_files(table: Table) -> set[bytes]:
    """Ids of the data files that a remaining snapshot or tag refers to, in any branch.

    Branches share the folders of data files, and may refer to files that the main branch has
    expired.
    """
    referenced = set()
    name, warehouse = TableName.parse(table.name), Warehouse(table.catalog_options)
    for branch in (MAIN, *table.branches()):
        branch_table = warehouse.table(f"{table.database}.{name.on(branch)}")
        referenced |= _files_of_snapshots(branch_table)
        for tag in branch_table.tags():
            referenced |= _ids(*table_as_of(branch_table, AsOf(tag=tag)).splits())
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
