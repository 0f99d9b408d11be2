"""Synchronous full compaction under a table's lock, for deletions that must not meet later rows."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from streamhouse.errors import CommitConflictError
from streamhouse.paimon.java.bucket_compaction import commit, compacted
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.storage.snapshots import PURGE_USER

_OPTIONS = {"write-only": "false"}
_UNSET = ("compaction.optimization-interval",)


class Purge:
    """Full compactions of the buckets of a table that have level-0 files."""

    def __init__(self, sidecar: Sidecar, identifier: str) -> None:
        self._sidecar, self._identifier = sidecar, identifier
        self._started = False

    def start(self) -> None:
        """Start the JVM and compact what is there, so that little is left to do under the lock.

        A JVM's first compaction takes seconds, for which all writers would wait.
        """
        if self._started:
            return
        self._started = True
        with suppress(CommitConflictError):
            self._sidecar.compact(self._identifier, full=True)

    def run(self, table_options: Mapping[str, str], partition: Mapping[str, str]) -> None:
        """Compact buckets with level-0 files; the caller holds the table's `commit_lock`.

        Those of all partitions with the values of `partition`, by column.
        """
        self._sidecar.call(
            self._identifier,
            lambda jvm, table: _compact(jvm, _copy(jvm, table, table_options), partition),
        )


def _copy(jvm: Any, table: Any, table_options: Mapping[str, str]) -> Any:
    """The Java table with its options overridden, also those that its `copy` refuses to change."""
    options = {**dict(table.options()), **_OPTIONS, **table_options}
    for key in _UNSET:
        options.pop(key, None)
    return jvm.org.apache.paimon.table.FileStoreTableFactory.create(
        table.fileIO(), table.location(), table.schema().copy(options), table.catalogEnvironment()
    )


def _compact(jvm: Any, table: Any, partition: Mapping[str, str]) -> None:
    reader = table.newSnapshotReader().withLevel(0)
    if partition:
        reader = reader.withPartitionFilter(dict(partition))
    entries = reader.bucketEntries()
    buckets = [(entry.partition(), entry.bucket()) for entry in entries]
    if buckets:
        messages = compacted(jvm, table, buckets, True, PURGE_USER)
        commit(table, PURGE_USER, messages)
