"""Bucket layouts: CREATE TABLE accepts what the Java core opens, and both cores read the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory, Schema

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.execute import execute

Case = tuple[str, str, dict[str, str]]
"""The primary key and the partition keys, divided by commas, and the options."""

BUCKETS = (None, "-1", "0", "-3", "1", "4", "x")
ROWS = [(k, k % 3, f"s{k}", k) for k in range(-5, 20)]


def cases() -> Iterator[Case]:
    for bucket, key, function in product(BUCKETS, ("", "k", "v", "p", "z"), ("", "mod")):
        options = {"bucket": bucket, "bucket-key": key, "bucket-function.type": function}
        given = {name: value for name, value in options.items() if value}
        for primary, partition in (("k", ""), ("k,p", "p"), ("k", "p"), ("", ""), ("", "p")):
            yield primary, partition, given
    for primary, partition in (("p", "p"), ("k,p", "p"), ("k", "p"), ("k", "")):
        yield primary, partition, {"sequence.field": "v", "bucket": "-1"}
    yield "", "", {"full-compaction.delta-commits": "3"}
    yield "", "", {"bucket": "2", "bucket-key": "k", "bucket-append-ordered": "false"}
    yield "s", "", {"bucket": "2", "bucket-function.type": "hive"}
    yield "k,s", "", {"bucket": "2", "bucket-key": "s"}
    yield "k", "p", {"dynamic-bucket.target-row-num": "3"}
    yield "k,p", "p", {"dynamic-bucket.target-row-num": "3"}
    yield "k", "", {"dynamic-bucket.target-row-num": "3"}


@pytest.mark.soak
def test_create_table_accepts_what_the_java_core_opens(tmp_path: Path) -> None:
    lake = str(tmp_path)
    execute(lake, "CREATE DATABASE d")
    written = 0
    with Sidecar({"warehouse": lake}) as java:
        for number, case in enumerate(cases()):
            name = f"t{number}"
            refused = _refused(lake, name, case)
            theirs = java.call("d.t0", lambda jvm, _, c=case: _java_refuses(jvm, lake, c))  # type: ignore[misc]
            # The Java core lets such a table have a row of a key in each partition.
            doubles = refused is not None and "a row in each partition" in refused
            assert doubles or (refused is None) == (theirs is None), (case, refused, theirs)
            if refused is None:
                written += 1
                _check_rows(lake, java, name, case)
    assert written > 30


def test_postponed_tables_are_read_once_their_rows_have_buckets(tmp_path: Path) -> None:
    """Batch jobs and compactions of Flink write rows into fixed buckets."""
    lake = str(tmp_path)
    execute(lake, "CREATE DATABASE d")
    import pyarrow as pa

    fields = [pa.field(name, pa.int32(), nullable=name != "k") for name in ("k", "p", "v")]
    options = {"bucket": "-2", "postpone.default-bucket-num": "3"}
    schema = Schema.from_pyarrow_schema(pa.schema(fields), primary_keys=["k"], options=options)
    CatalogFactory.create({"warehouse": lake}).create_table("d.t", schema, False)
    with Sidecar({"warehouse": lake}) as java:
        java.call("d.t", _write_fixed)
        java.call("d.t", _write_fixed)
        assert _ours(lake, "t") == [(k, 0, k) for k in range(40)]
        found = execute(
            lake, "CREATE TABLE d.u (k INT, v INT); INSERT INTO d.u SELECT k, v FROM d.t"
        )
    assert found.inserted == 40


def _refused(lake: str, name: str, case: Case) -> str | None:
    primary, partition, options = case
    key = f", PRIMARY KEY ({primary}) NOT ENFORCED" if primary else ""
    by = f"PARTITIONED BY ({partition})" if partition else ""
    given = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    with_ = f"WITH ({given})" if given else ""
    try:
        execute(lake, f"CREATE TABLE d.{name} (k INT, p INT, s STRING, v INT{key}) {by} {with_}")
    except StreamhouseError as error:
        return str(error)
    return None


def _java_refuses(jvm: Any, lake: str, case: Case) -> str | None:
    """The Java core's error when it creates a table and opens it for writing."""
    primary, partition, options = case
    kinds, core = jvm.org.apache.paimon.types.DataTypes, jvm.org.apache.paimon
    builder = core.schema.Schema.newBuilder()
    for name, kind in (("k", kinds.INT()), ("p", kinds.INT()), ("s", kinds.STRING())):
        builder.column(name, kind)
    builder.column("v", kinds.INT())
    for keys, set_ in ((primary, builder.primaryKey), (partition, builder.partitionKeys)):
        if keys:
            made = jvm.java.util.ArrayList()
            for key in keys.split(","):
                made.add(key)
            set_(made)
    for key, value in options.items():
        builder.option(key, value)
    place = core.options.Options()
    place.set("warehouse", f"{lake}/java")
    catalog = core.catalog.CatalogFactory.createCatalog(core.catalog.CatalogContext.create(place))
    try:
        catalog.createDatabase("d", True)
        identifier = core.catalog.Identifier.create("d", "t")
        catalog.dropTable(identifier, True)
        catalog.createTable(identifier, builder.build(), False)
        table = catalog.getTable(identifier)
        if int(options.get("bucket", "-1")) > 0:
            table.createRowKeyExtractor()
    except Exception as error:  # noqa: BLE001  # py4j's, of any class
        return str(error)
    return None


def _check_rows(lake: str, java: Sidecar, name: str, case: Case) -> None:
    """Insert twice: each key has one row, in the bucket that the Java core computes."""
    for _ in range(2):
        values = ", ".join(f"({k}, {p}, '{s}', {v})" for k, p, s, v in ROWS)
        execute(lake, f"INSERT INTO d.{name} VALUES {values}")
    if case[0]:
        execute(lake, f"UPDATE d.{name} SET v = 99 WHERE k = 7")
    expected = sorted((k, p, s, 99 if k == 7 and case[0] else v) for k, p, s, v in ROWS)
    expected = expected if case[0] else sorted(expected * 2)
    theirs, misplaced = java.call(f"d.{name}", _read)
    assert (_ours(lake, name), theirs, misplaced) == (expected, expected, 0), case


def _ours(lake: str, name: str) -> list[tuple[Any, ...]]:
    read = Warehouse(lake).table(f"d.{name}").read()
    return sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())


def _read(jvm: Any, table: Any) -> tuple[list[tuple[Any, ...]], int]:
    """All rows, and how many are in another bucket than the Java core computes."""
    fixed = str(table.bucketMode()) == "HASH_FIXED"
    extractor = table.createRowKeyExtractor() if fixed else None
    builder = jvm.org.apache.paimon.table.source.ReadBuilderImpl(table)
    found, misplaced = [], 0
    for split in builder.newScan().plan().splits():
        reader = builder.newRead().createReader(split)
        while (batch := reader.readBatch()) is not None:
            while (row := batch.next()) is not None:
                text = row.getString(2).toString()
                found.append((row.getInt(0), row.getInt(1), text, row.getInt(3)))
                if extractor is not None:
                    extractor.setRecord(row)
                    misplaced += extractor.bucket() != split.bucket()
            batch.releaseBatch()
        reader.close()
    return sorted(found), misplaced


def _write_fixed(jvm: Any, table: Any) -> None:
    """Write rows as a batch job of Flink writes them to a table with postponed buckets."""
    core = jvm.org.apache.paimon
    fixed = core.table.PostponeUtils.tableForFixBucketWrite(table)
    write = core.table.sink.BatchWriteBuilderImpl(fixed).newWrite()
    for k in range(40):
        row = core.data.GenericRow(3)
        for place, value in enumerate((k, 0, k)):
            row.setField(place, value)
        write.write(row)
    messages = write.prepareCommit()
    write.close()
    made = core.table.sink.BatchWriteBuilderImpl(core.table.PostponeUtils.tableForCommit(table))
    commit = made.newCommit()
    commit.commit(messages)
    commit.close()
