"""The sidecar: Paimon's Java core in a JVM of its own, for what only the Java core can do."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from streamhouse.paimon.java.compactor import Compactor, snapshot_reader
from streamhouse.paimon.java.core_connection import JAVA_OPTIONS, CoreConnection
from streamhouse.paimon.java.jvm import END_SECONDS

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

Result = TypeVar("Result")


@dataclass(frozen=True)
class BucketFiles:
    """How many data files one bucket has, and how many of them are of level 0.

    `partition` maps partition columns to their text; `bucket` is 0 for unaware-bucket tables.
    """

    partition: Mapping[str, str]
    bucket: int
    files: int
    level0: int


class Sidecar:
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
        self._core = CoreConnection(warehouse_options, java_options, nice)
        self._compactor = Compactor(self._core)

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The JVM's process id, None while none runs."""
        return self._core.pid

    def read(
        self, table: str, snapshot: int | None = None, options: Mapping[str, str] | None = None
    ) -> pa.Table:
        """All rows of a table as the Java core merges them, now or as of a snapshot id.

        `options` are dynamic table options of the read, such as `incremental-between`.
        """
        dynamic: dict[str, str | None] = dict(options or {})
        if snapshot is not None:
            dynamic["scan.snapshot-id"] = str(snapshot)
        with tempfile.TemporaryDirectory(prefix="streamhouse-") as folder:
            file = Path(folder) / "rows.parquet"
            self.call(table, lambda jvm, java_table: copy_rows(jvm, java_table, file), dynamic)
            return pq.read_table(file)

    def compact(
        self,
        table: str,
        full: bool = False,
        partitions: Sequence[Mapping[str, str]] | None = None,
        keep: bool = False,
        followed: Table | None = None,
    ) -> bool:
        """Compact all buckets, or those of some partitions; returns whether it made a snapshot.

        `full` rewrites each bucket into one level. Otherwise the Java core picks the files that the
        `num-sorted-run.*` options ask for, or all files if a `-D` removes the record
        (`paimon.write.merge_rules.remove_record_on_delete`). Changelogs are produced as the table's
        `changelog-producer` says. Append tables are compacted if they have enough small files.
        With `keep`, and neither `full` nor `partitions`, the Java writer of a local table stays
        open for the next such call (`paimon.java.long_lived_writer`).
        `followed` is the table as `Warehouse.followed` opens it, of a caller that compacts it again
        and again: if it is small, it is compacted in a local copy (`paimon.java.local_copy`).
        """
        if followed is not None and partitions is None:
            done = self._core.run(
                table, lambda: self._compactor.compact_copy(table, full, followed)
            )
            if done is not None:
                return done
        if keep and not full and partitions is None:
            return self._core.run(table, lambda: self._compactor.compact_with_open_writer(table))
        return self._core.run(table, lambda: self._compactor.compact(table, full, partitions))

    def compact_manifests(self, table: str, followed: Table | None = None) -> None:
        """Merge all manifests of a table, without touching its data.

        `followed`: as in `compact`.
        """
        self._core.run(table, lambda: self._compactor.compact_manifests(table, followed))

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

    def buckets(self, table: str) -> list[BucketFiles]:
        """The buckets of a table that have files."""
        return self.call(table, _buckets)

    def options(self, table: str) -> dict[str, str]:
        """The options that are set on a table."""
        return self.call(table, lambda _, java_table: dict(java_table.options()))

    def call(
        self,
        table: str,
        work: Callable[[Any, Any], Result],
        options: Mapping[str, str | None] | None = None,
    ) -> Result:
        """Return `work(jvm, table)`, with the Java core's table under dynamic `options`.

        Java objects must not outlive the call. Work that commits must hold `commit_lock`.
        """
        return self._core.run(table, lambda: work(self._core.jvm, self._core.table(table, options)))

    def start(self) -> None:
        """Start the JVM now, so that the first call need not wait for it."""
        self._core.start()

    def close(self, timeout_s: float = END_SECONDS) -> None:
        """End the JVM, and kill it after `timeout_s` seconds; a later call starts another."""
        self._core.close(timeout_s)

    def kill(self) -> None:
        """End the JVM at once, also while another thread waits for it: that call then fails."""
        self._core.kill()


def _buckets(jvm: Any, table: Any) -> list[BucketFiles]:
    store = table.store()
    names = store.pathFactory()

    def counts(reader: Any) -> dict[tuple[str, int], int]:
        return {
            (names.getPartitionString(entry.partition()), entry.bucket()): entry.fileCount()
            for entry in reader.bucketEntries()
        }

    level0 = counts(snapshot_reader(jvm, table).withLevel(0))
    return [
        BucketFiles(_partition(text), bucket, files, level0.get((text, bucket), 0))
        for (text, bucket), files in counts(snapshot_reader(jvm, table)).items()
    ]


def _partition(text: str) -> dict[str, str]:
    """`a=1/b=2/` as a mapping."""
    return dict(part.split("=", 1) for part in text.strip("/").split("/") if "=" in part)


def copy_rows(jvm: Any, table: Any, file: Path) -> None:
    """Write the rows of a Java table, as its core merges them, into a file that Java creates."""
    paimon = jvm.org.apache.paimon
    builder = paimon.table.source.ReadBuilderImpl(table)
    splits = builder.newScan().plan().splits()
    parquet = paimon.format.FileFormat.fromIdentifier("parquet", paimon.options.Options())
    local = paimon.fs.local.LocalFileIO.create()
    with closing(local.newOutputStream(paimon.fs.Path(str(file)), True)) as out:
        factory = parquet.createWriterFactory(builder.readType())
        with closing(factory.create(out, "zstd")) as writer:
            add = bound_method(jvm, "format.FormatWriter", writer, "addElement", "data.InternalRow")
            for split in splits:
                with closing(builder.newRead().createReader(split)) as reader:
                    for_each_row(jvm, reader, add)


def bound_method(jvm: Any, owner: str, target: Any, method: str, argument: str) -> Any:
    """A Java method of one argument, bound to an object; py4j does not find default methods."""
    class_named = jvm.java.lang.Class.forName
    signature = jvm.java.lang.invoke.MethodType.methodType(
        jvm.java.lang.Void.TYPE,
        class_named(argument if argument.startswith("java.") else f"org.apache.paimon.{argument}"),
    )
    lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
    return lookup.findVirtual(class_named(f"org.apache.paimon.{owner}"), method, signature).bindTo(
        target
    )


def for_each_row(jvm: Any, reader: Any, add: Any) -> None:
    """Have Java pass each row of a reader to a method, without a call from Python per row."""
    consumer = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
        jvm.java.lang.Class.forName("java.util.function.Consumer"), add
    )
    each = bound_method(
        jvm, "reader.RecordReader", reader, "forEachRemaining", "java.util.function.Consumer"
    )
    each.invokeWithArguments([consumer])
