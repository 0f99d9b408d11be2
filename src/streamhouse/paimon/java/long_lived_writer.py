"""A writer of the Java core that stays open between the compactions of one table.

A new writer reads the manifests once for each bucket, and builds its local lookup files from all of
the bucket's levels. That is most of the cost of a small compaction. A writer that stays open is
notified of the files that were added since, as in Paimon's own compaction jobs. Any snapshot other
than plain appends and its own compactions makes it stale, and a new one is opened.
"""

import shutil
import tempfile
from typing import Any

from streamhouse.paimon.java.jvm import JavaProcess
from streamhouse.paimon.java.unfinished_compactions import CompactionMarker
from streamhouse.paimon.storage.files import LocalFiles

_CACHE = "lookup.cache-max-memory-size"
_CACHE_SIZE = "64 mb"
"""Paimon's default of 256 MB assumes one table per process."""


class LongLivedWriter:
    """The open writer of one table, in one JVM; for one thread at a time, local tables only.

    Its files have a unique prefix. Its marker (`paimon.java.unfinished_compactions`) exists as long
    as the writer does.
    """

    def __init__(self, process: JavaProcess, table: Any, root: str) -> None:
        self.process = process
        self._schema = _schema(table)
        self.java: Any = None
        """The Java table and its writer, once it is open."""
        self._spill = tempfile.mkdtemp(prefix="streamhouse-")
        self._last_snapshot = 0
        self._last_snapshot_ms = 0
        self._own_snapshots = 0
        self._marker = CompactionMarker(LocalFiles(), root)

    def open(self, table: Any, user: str) -> None:
        """Open the Java writer of `table`."""
        options = dict(self._marker.prefixes)
        if _CACHE not in dict(table.options()):
            options[_CACHE] = _CACHE_SIZE
        manager = self.process.jvm.org.apache.paimon.disk.IOManager.create(self._spill)
        writer_table = table.copy(options)
        self.java = writer_table, writer_table.newWrite(user).withIOManager(manager)

    def buckets(self, latest: int) -> Any | None:
        """Notify the writer of new files up to snapshot `latest`; returns the buckets with some.

        The first call returns all buckets with level-0 files. None if the writer is stale.
        """
        (table, write), jvm = self.java, self.process.jvm
        buckets = jvm.java.util.LinkedHashSet()
        pair = jvm.org.apache.paimon.utils.Pair
        if not self._last_snapshot:
            # Buckets without new files need no compaction, and partitioned tables have many.
            for entry in table.newSnapshotReader().withLevel(0).bucketEntries():
                buckets.add(pair.of(entry.partition(), entry.bucket()))
            return buckets
        manager, singleton = table.snapshotManager(), jvm.java.util.Collections.singletonList
        if latest < self._last_snapshot or not manager.snapshotExists(self._last_snapshot):
            return None
        if manager.snapshot(self._last_snapshot).timeMillis() != self._last_snapshot_ms:
            return None
        store, compactions = table.store(), 0
        delta = jvm.org.apache.paimon.table.source.ScanMode.DELTA
        for number in range(self._last_snapshot + 1, latest + 1):
            snapshot = manager.snapshot(number)
            if snapshot.commitKind().toString() != "APPEND":
                compactions += 1
                continue
            for entry in store.newScan().withKind(delta).withSnapshot(snapshot).plan().files():
                if entry.kind().toString() != "ADD":
                    return None
                partition, bucket = entry.partition(), entry.bucket()
                write.getWrite().notifyNewFiles(number, partition, bucket, singleton(entry.file()))
                buckets.add(pair.of(partition, bucket))
        return buckets if compactions == self._own_snapshots else None

    def done(self, latest: int, committed: bool) -> None:
        """Note that a compaction begun at `latest` succeeded; `committed`: it made a snapshot."""
        table, _ = self.java
        self._last_snapshot, self._own_snapshots = latest, int(committed)
        self._last_snapshot_ms = table.snapshotManager().snapshot(latest).timeMillis()

    def close(self, ended_well: bool = True, jvm_ends: bool = False) -> None:
        """Close the writer; that of Java only if its JVM goes on.

        The marker is deleted only if the last compaction `ended_well`. Otherwise it stays, and a
        later run removes the files that the compaction may have left.
        """
        try:
            if self.java is not None and not jvm_ends and self.process.alive:
                self.java[1].close()
        finally:
            self._marker.close(ended_well)
            shutil.rmtree(self._spill, ignore_errors=True)

    def fits(self, table: Any) -> bool:
        """Whether the table still has the location and the schema version of this writer."""
        return _schema(table) == self._schema


def _schema(table: Any) -> tuple[str, int]:
    return str(table.location()), int(table.schema().id())
