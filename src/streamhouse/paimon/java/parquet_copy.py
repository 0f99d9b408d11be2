"""Has the Java core write all rows of a table into a local Parquet file, without a call per row."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any


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
