"""Rows that the Java core reads and writes, as text: no Arrow type on the way rounds a value.

The Java core's own JSON format carries them, so a row here is what a Flink job would see or send.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.java_reads import bound_method, for_each_row

from streamhouse.paimon.java.sidecar import JAVA_OPTIONS, Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.source import ROW_KIND

JavaRow = dict[str, Any]
"""Texts, and lists and mappings of them; bytes are base64."""


def utc_sidecar(options: Mapping[str, str]) -> Sidecar:
    """A sidecar whose texts of TIMESTAMP_LTZ are in UTC."""
    return Sidecar(options, java_options=(*JAVA_OPTIONS, "-Duser.timezone=UTC"))


def read(
    java: Sidecar, name: str, options: Mapping[str, str | None] | None = None
) -> list[JavaRow]:
    """All rows of a table, as the Java core reads and merges them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        java.call(name, lambda jvm, table: _copy(jvm, table, file), options)
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _copy(jvm: Any, table: Any, file: Path) -> None:
    builder = jvm.org.apache.paimon.table.source.ReadBuilderImpl(table)
    out = _files(jvm).newOutputStream(jvm.org.apache.paimon.fs.Path(str(file)), True)
    writers = _json(jvm).createWriterFactory(builder.readType())
    with closing(out), closing(writers.create(out, "none")) as to:
        add = bound_method(jvm, "format.FormatWriter", to, "addElement", "data.InternalRow")
        for split in builder.newScan().plan().splits():
            with closing(builder.newRead().createReader(split)) as reader:
                for_each_row(jvm, reader, add)


def write(
    java: Sidecar,
    name: str,
    rows: Sequence[tuple[str, JavaRow]],
    identifier: int,
    options: Mapping[str, str | None] | None = None,
) -> None:
    """Commit rows with their kinds through the Java core's writer, which compacts nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        lines = [json.dumps(row, ensure_ascii=False) for _, row in rows]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        kinds = [kind for kind, _ in rows]
        given = {"write-only": "true", **(options or {})}
        java.call(
            name, lambda jvm, table: _commit(jvm, table, file, kinds, identifier, folder), given
        )


def _commit(
    jvm: Any, table: Any, file: Path, kinds: Sequence[str], identifier: int, folder: str
) -> None:
    paimon = jvm.org.apache.paimon
    path, files = paimon.fs.Path(str(file)), _files(jvm)
    readers = _json(jvm).createReaderFactory(table.rowType(), table.rowType(), None)
    context = paimon.format.FormatReaderContext(files, path, file.stat().st_size)
    user = "java"
    manager = paimon.disk.IOManager.create(folder)
    with (
        closing(readers.createReader(context)) as reader,
        closing(table.newWrite(user).withIOManager(manager)) as writer,
        closing(table.newCommit(user)) as commit,
    ):
        batch = reader.readBatch()
        for kind in kinds:
            row = batch.next()
            row.setRowKind(paimon.types.RowKind.fromShortString(kind))
            writer.write(row)
        with commit_lock(str(table.location().toUri().getPath())):
            commit.commit(identifier, writer.prepareCommit(True, identifier))


def _files(jvm: Any) -> Any:
    return jvm.org.apache.paimon.fs.local.LocalFileIO.create()


def _json(jvm: Any) -> Any:
    paimon = jvm.org.apache.paimon
    return paimon.format.FileFormat.fromIdentifier("json", paimon.options.Options())


def ours(batches: Iterable[pa.RecordBatch]) -> list[JavaRow]:
    """Rows that Streamhouse reads, as the same texts."""
    return [
        {name: as_text(value) for name, value in row.items()}
        for batch in batches
        for row in batch.to_pylist()
    ]


def as_text(value: Any) -> Any:
    """A value as the Java core's JSON format has it."""
    return value if value is None else str(value)


def arrow(table: Table, rows: Sequence[tuple[str, JavaRow]]) -> pa.RecordBatch:
    """Rows in that form as a batch for a writer, with their kinds."""
    arrays = [
        pa.array([row.get(field.name) for _, row in rows], pa.string()).cast(field.type)
        for field in table.arrow_schema
    ]
    kinds = pa.array([kind for kind, _ in rows], pa.string())
    return pa.RecordBatch.from_arrays([*arrays, kinds], names=[*table.arrow_schema.names, ROW_KIND])
