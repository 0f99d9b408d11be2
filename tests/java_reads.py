"""What tests read of tables by the Java core: rows, the files of buckets, and options."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamhouse.paimon.java.sidecar import Sidecar


@dataclass(frozen=True)
class BucketFiles:
    """How many data files one bucket has, and how many of them are of level 0.

    `partition` maps partition columns to their text; `bucket` is 0 for unaware-bucket tables.
    """

    partition: Mapping[str, str]
    bucket: int
    files: int
    level0: int


def java_rows(
    sidecar: Sidecar,
    table: str,
    snapshot: int | None = None,
    options: Mapping[str, str] | None = None,
) -> pa.Table:
    """All rows of a table as the Java core merges them, now or as of a snapshot id.

    `options` are dynamic table options of the read, such as `incremental-between`.
    """
    dynamic: dict[str, str | None] = dict(options or {})
    if snapshot is not None:
        dynamic["scan.snapshot-id"] = str(snapshot)
    with tempfile.TemporaryDirectory(prefix="streamhouse-") as folder:
        file = Path(folder) / "rows.parquet"
        sidecar.call(table, lambda jvm, java_table: copy_rows(jvm, java_table, file), dynamic)
        return pq.read_table(file)


def java_buckets(sidecar: Sidecar, table: str) -> list[BucketFiles]:
    """The buckets of a table that have files."""
    return sidecar.call(table, _buckets)


def _buckets(_: Any, table: Any) -> list[BucketFiles]:
    store = table.store()
    names = store.pathFactory()

    def counts(reader: Any) -> dict[tuple[str, int], int]:
        return {
            (names.getPartitionString(entry.partition()), entry.bucket()): entry.fileCount()
            for entry in reader.bucketEntries()
        }

    level0 = counts(table.newSnapshotReader().withLevel(0))
    return [
        BucketFiles(_partition(text), bucket, files, level0.get((text, bucket), 0))
        for (text, bucket), files in counts(table.newSnapshotReader()).items()
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
