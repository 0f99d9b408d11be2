"""Paimon's Java core as a second writer and reader, as Flink's connector uses it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from tests.integration.differential.layout import COLUMNS
from tests.integration.differential.model import Event, Row
from tests.java_reads import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar

ADDED = "added"
"""The column that an ALTER TABLE adds to a source."""
_USER = "another engine"
_identifiers = itertools.count(1)


class JavaCore:
    """The Java core over a warehouse."""

    def __init__(self, warehouse: Warehouse, sidecar: Sidecar) -> None:
        self.warehouse, self.sidecar = warehouse, sidecar
        self._known: dict[tuple[str, int, bool], list[Row]] = {}

    def at(self, table: str, snapshot: int, followed: bool) -> list[Row]:
        """`rows` or `followed` of a snapshot, which are read once."""
        key = table, snapshot, followed
        if key not in self._known:
            read = self.followed if followed else self.rows
            self._known[key] = read(table, snapshot)
        return self._known[key]

    def rows(self, table: str, snapshot: int | None = None) -> list[Row]:
        """All rows that a SELECT sees, now or as of a snapshot, as the Java core merges them."""
        if self.warehouse.table(table).latest_snapshot_id() is None:
            return []
        found = java_rows(self.sidecar, table, snapshot)
        if ADDED in found.column_names:
            found = found.drop_columns([ADDED])
        rows: list[Row] = found.to_pylist()
        return rows

    def followed(self, table: str, snapshot: int) -> list[Row]:
        """The rows that a stream would begin with at a snapshot, as Flink's source reads them.

        Without those whose changes only a compaction will tell.
        """
        options = {"scan.mode": "from-snapshot-full", "scan.snapshot-id": str(snapshot)}
        return self.sidecar.call(table, _followed, options)

    def latest(self, table: str) -> int:
        """The newest snapshot; 0 if there is none."""
        return self.warehouse.table(table).latest_snapshot_id() or 0

    def waiting(self, table: str, least: int) -> int:
        """How many rows the files below a level have."""
        return self.sidecar.call(table, lambda jvm, java: _waiting(java, least))

    def write(self, table: str, events: Sequence[Event], compacts: bool) -> None:
        """One commit, as of a checkpoint of Flink's sink; `compacts` as that does by default."""
        options = None if compacts else {"write-only": "true"}
        self.sidecar.call(table, lambda jvm, java: _write(jvm, java, events, compacts), options)


def _write(jvm: Any, table: Any, events: Sequence[Event], compacts: bool) -> None:
    paimon = jvm.org.apache.paimon
    full = compacts and "full-compaction" in str(table.options().get("changelog-producer"))
    manager = paimon.disk.IOManager.create(jvm.java.lang.System.getProperty("java.io.tmpdir"))
    identifier = next(_identifiers)
    number, arity = _number_of(table), len(table.schema().fields())
    write = table.newWrite(_USER).withIOManager(manager)
    try:
        touched = []
        for kind, row in events:
            made = _row(jvm, kind, row, number, arity)
            write.write(made)
            touched.append((write.getPartition(made), write.getBucket(made)))
        if full and table.primaryKeys():
            for partition, bucket in touched:
                write.compact(partition, bucket, True)
        messages = write.prepareCommit(True, identifier)
    finally:
        write.close()
    commit = table.newCommit(_USER)
    try:
        commit.commit(identifier, messages)
    finally:
        commit.close()
    manager.close()


def _followed(jvm: Any, table: Any) -> list[Row]:
    builder = jvm.org.apache.paimon.table.source.ReadBuilderImpl(table)
    found = []
    for split in builder.newStreamScan().plan().splits():
        reader = builder.newRead().createReader(split)
        while (batch := reader.readBatch()) is not None:
            while (row := batch.next()) is not None:
                found.append(_values(row, _number_of(table)))
            batch.releaseBatch()
        reader.close()
    return found


def _waiting(table: Any, least: int) -> int:
    levels = (table.newSnapshotReader().withLevel(level) for level in range(least))
    return sum(int(entry.recordCount()) for level in levels for entry in level.bucketEntries())


def _number_of(table: Any) -> str:
    """The type of the amount."""
    return str(table.schema().fields()[COLUMNS.index("v")].type().getTypeRoot())


def _values(row: Any, number: str) -> Row:
    """A row that Java has, with the amount as Python has it."""
    found: Row = {}
    for place, name in enumerate(COLUMNS):
        if row.isNullAt(place):
            found[name] = None
        elif name == "v" and number == "DECIMAL":
            found[name] = Decimal(str(row.getDecimal(place, 12, 2).toString()))
        elif name == "v":
            found[name] = row.getDouble(place) if number == "DOUBLE" else row.getLong(place)
        else:
            found[name] = row.getInt(place) if name in ("k", "w") else str(row.getString(place))
    return found


def _row(jvm: Any, kind: str, row: Row, number: str, arity: int) -> Any:
    """A row as Java has it; `number` is the type of the amount."""
    data = jvm.org.apache.paimon.data
    made = data.GenericRow(arity)
    made.setRowKind(jvm.org.apache.paimon.types.RowKind.fromShortString(kind))
    for place, name in enumerate(COLUMNS):
        value = row[name]
        if value is None:
            continue
        if isinstance(value, str):
            value = data.BinaryString.fromString(value)
        elif name == "v" and number == "DECIMAL":
            value = data.Decimal.fromBigDecimal(jvm.java.math.BigDecimal(str(value)), 12, 2)
        elif name == "v" and number == "DOUBLE":
            value = float(value)
        elif name == "v":
            _set_long(jvm, made, place, value)
            continue
        made.setField(place, value)
    return made


def _set_long(jvm: Any, row: Any, place: int, value: int) -> None:
    """py4j makes an Integer of a small number: the Long must not leave Java."""
    lang, invoke = jvm.java.lang, jvm.java.lang.invoke
    types = jvm.java.util.ArrayList([lang.Integer.TYPE, lang.Class.forName("java.lang.Object")])
    kind = invoke.MethodType.methodType(lang.Void.TYPE, types)
    setter = invoke.MethodHandles.publicLookup().findVirtual(row.getClass(), "setField", kind)
    arguments = jvm.java.util.ArrayList([place])
    arguments.addAll(jvm.java.util.stream.LongStream.of(value).boxed().toList())
    setter.bindTo(row).invokeWithArguments(arguments)
