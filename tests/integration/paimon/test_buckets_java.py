"""Our bucket function against the Java core's own, on values and nulls of every type."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.unit.paimon.bucket_values import KINDS, value

from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write.bucket_hash import bucket_of
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

ROWS = 60
BUCKETS = 1009
# What cannot be written has a table of its own, as Flink would make it.
READ = [kind for kind in KINDS if kind != "TIMESTAMP(9)"]
NAMES = [f"c{number}" for number in range(len(READ))]
NANOS = [0, 1, -1, 999_999, 1_000_001, -86_400_000_000_001, 1_700_000_000_123_456_789]


def test_java_puts_rows_into_the_buckets_that_we_say(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("db")
    columns = [Column("id", "INT"), *map(Column, NAMES, READ)]
    warehouse.create_table("db", "t", columns, options={"bucket": "-1"})
    warehouse._create(
        "db.nanos", TableDeclaration([Column("n", "TIMESTAMP(9)")], (), (), {"bucket": "-1"})
    )
    rows = generated(warehouse.table("db.t").arrow_schema)
    writer = TableWriter(warehouse.options, "db.t", "test")
    writer.write(rows)
    TableCommitter(warehouse.options, "db.t", "test").commit(0, writer.prepare(0))
    writer.close()

    keys = [[name] for name in NAMES] + [["id", name] for name in NAMES] + [NAMES, ["c7", "c0"]]
    with Sidecar(warehouse.options) as java:
        found = java.call("db.t", lambda jvm, table: buckets(jvm, table, keys))
        of_nanos = java.call("db.nanos", buckets_of_nanos)
    for names, theirs in zip(keys, found, strict=True):
        ours = bucket_of([rows[name] for name in names], BUCKETS).tolist()
        assert dict(enumerate(ours)) == theirs, [rows.schema.field(name) for name in names]
    assert bucket_of([pa.array(NANOS, pa.timestamp("ns"))], BUCKETS).tolist() == of_nanos


def generated(schema: pa.Schema) -> pa.RecordBatch:
    """Rows with numbers from 0; in each column every fourth value is a null."""
    draw = random.Random(2)
    arrays = [pa.array(range(ROWS), pa.int32())]
    for field in list(schema)[1:]:
        values = [None if n % 4 == 3 else value(field.type, draw) for n in range(ROWS)]
        arrays.append(pa.array(values, field.type))
    return pa.record_batch(arrays, schema=schema)


def buckets(jvm: Any, table: Any, keys: Sequence[Sequence[str]]) -> list[dict[int, int]]:
    """For each bucket key the bucket of each row, by its number, as the Java core has it."""
    extractors = [extractor_of(jvm, table, names) for names in keys]
    found: list[dict[int, int]] = [{} for _ in keys]
    builder = jvm.org.apache.paimon.table.source.ReadBuilderImpl(table)
    for split in builder.newScan().plan().splits():
        reader = builder.newRead().createReader(split)
        while (batch := reader.readBatch()) is not None:
            while (row := batch.next()) is not None:
                for extractor, seen in zip(extractors, found, strict=True):
                    extractor.setRecord(row)
                    seen[row.getInt(0)] = extractor.bucket()
            batch.releaseBatch()
        reader.close()
    return found


def buckets_of_nanos(jvm: Any, table: Any) -> list[int]:
    """The bucket of each of `NANOS`, as the Java core has it."""
    data = jvm.org.apache.paimon.data
    extractor, found = extractor_of(jvm, table, ["n"]), []
    for instant in NANOS:
        millis, rest = divmod(instant, 1_000_000)
        row = data.GenericRow(1)
        row.setField(0, data.Timestamp.fromEpochMillis(millis, rest))
        extractor.setRecord(row)
        found.append(extractor.bucket())
    return found


def extractor_of(jvm: Any, table: Any, names: Sequence[str]) -> Any:
    options = {"bucket": str(BUCKETS), "bucket-key": ",".join(names)}
    schema = table.schema().copy(options)
    return jvm.org.apache.paimon.table.sink.FixedBucketRowKeyExtractor(schema)
