"""The sidecar: Paimon's Java core in a JVM of its own, for what only the Java core can do."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from streamhouse.paimon.java.compactor import Compactor
from streamhouse.paimon.java.core_connection import JAVA_OPTIONS, CoreConnection
from streamhouse.paimon.read.table import Table

Result = TypeVar("Result")


class Sidecar(CoreConnection):
    """The Java core on one warehouse; its JVM starts at the first call, and again if it died.

    `warehouse_options` are the catalog's options (`warehouse`, `s3.*`, …). Runs on the driver, or
    in any Python process that finds Java. Thread-safe. The JVM ends with this process. No call
    expires a snapshot. Tables are named `database.table`; system tables
    (`database.table$audit_log`) can be read. Raises `TableError` for a table that does not exist,
    `CommitConflictError` if other commits won too often (nothing was changed: call again),
    `StreamhouseError` for everything else.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        java_options: Sequence[str] = JAVA_OPTIONS,
        nice: int = 0,
    ) -> None:
        super().__init__(warehouse_options, java_options, nice)
        self._compactor = Compactor(self)

    def compact(
        self,
        table: str,
        full: bool = False,
        keep: bool = False,
        followed: Table | None = None,
    ) -> bool:
        """Compact all buckets; returns whether that made a snapshot.

        `full` rewrites each bucket into one level. Otherwise the Java core picks the files that the
        `num-sorted-run.*` options ask for, or all files if a `-D` removes the record
        (`paimon.write.merge_rules.remove_record_on_delete`). Changelogs are produced as the table's
        `changelog-producer` says. Append tables are compacted if they have enough small files.
        With `keep`, and not `full`, the Java writer of a local table stays open
        for the next such call (`paimon.java.long_lived_writer`).
        `followed` is the table as `Warehouse.followed` opens it, of a caller that compacts it again
        and again: if it is small, it is compacted in a local copy (`paimon.java.local_copy`).
        """
        return self.run(table, lambda: self._compactor.compact(table, full, keep, followed))

    def compact_manifests(self, table: str, followed: Table | None = None) -> None:
        """Merge all manifests of a table, without touching its data.

        `followed`: as in `compact`.
        """
        self.run(table, lambda: self._compactor.compact_manifests(table, followed))

    def write_iceberg_metadata(self, table: str) -> int:
        """Write Iceberg metadata of the newest snapshot, unless it exists; returns the snapshot.

        The Java core does so with its own commits, and the Rust core never. 0: no snapshot.
        """

        def write(jvm: Any, java_table: Any) -> int:
            latest = java_table.snapshotManager().latestSnapshot()
            if latest is None:
                return 0
            paimon = jvm.org.apache.paimon
            callback = paimon.iceberg.IcebergCommitCallback(java_table, latest.commitUser())
            with closing(callback):
                callback.retry(paimon.manifest.ManifestCommittable(latest.commitIdentifier()))
            return int(latest.id())

        return self.call(table, write)

    def call(
        self,
        table: str,
        work: Callable[[Any, Any], Result],
        options: Mapping[str, str | None] | None = None,
    ) -> Result:
        """Return `work(jvm, table)`, with the Java core's table under dynamic `options`.

        Java objects must not outlive the call. Work that commits must hold `commit_lock`.
        """
        return self.run(table, lambda: work(self.jvm, self.table(table, options)))
