"""Lists the buckets of a table by partition, and selects those that a procedure works on."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from streamhouse.duckdb_database import open_database
from streamhouse.errors import OptionError
from streamhouse.options import duration_ms
from streamhouse.paimon.java.expiry.partitions import Spec, spec_of
from streamhouse.paimon.read.table import Table
from streamhouse.procedures.arguments import check_column, parse_partitions, parse_where
from streamhouse.procedures.context import Context
from streamhouse.sql.expressions.binder import quote

_KIND = "partition columns"


@dataclass(frozen=True)
class BucketEntry:
    """The files of one bucket of one partition.

    `partition` is Paimon's own serialised row; `size` is in bytes; `changed_ms` is the creation
    time of the newest file, in milliseconds since 1970.
    """

    partition: bytes
    spec: Spec
    bucket: int
    files: int
    size: int
    changed_ms: int


def bucket_entries(jvm: Any, table: Any, snapshot: int | None = None) -> list[BucketEntry]:
    """The entries of all buckets of a table of the Java core, at its newest snapshot or another."""
    reader = table.newSnapshotReader()
    if snapshot is not None:
        reader = reader.withSnapshot(jvm.java.lang.Long.valueOf(snapshot))
    serialize = jvm.org.apache.paimon.utils.SerializationUtils.serializeBinaryRow
    specs: dict[bytes, Spec] = {}
    entries = []
    for java_entry in reader.bucketEntries():
        row = java_entry.partition()
        key = bytes(serialize(row))
        if key not in specs:
            specs[key] = spec_of(jvm, table, row)
        entries.append(
            BucketEntry(key, specs[key], int(java_entry.bucket()), int(java_entry.fileCount()),
                  int(java_entry.fileSizeInBytes()), int(java_entry.lastFileCreationTime()))
        )  # fmt: skip
    return sorted(entries, key=lambda entry: (entry.partition, entry.bucket))


def select_entries(
    entries: Sequence[BucketEntry],
    table: Table,
    partitions: str | None = None,
    where: str | None = None,
    partition_idle_time: str | None = None,
) -> list[BucketEntry]:
    """The entries of the partitions that the arguments select; by default all.

    `partitions` is `dt=1,hh=08;dt=2`, `where` a condition over partition columns;
    `partition_idle_time` excludes partitions that got a new file within that time. Raises
    `OptionError` for columns that are not partition columns.
    """
    if partitions is not None and where is not None:
        raise OptionError("give either 'partitions' or 'where', not both")
    matches = list(entries)
    if partitions is not None:
        matches = _filtered(matches, table, _condition(parse_partitions(partitions), table))
    if where is not None:
        condition = parse_where(where, table.partition_keys, _KIND).sql(dialect="duckdb")
        matches = _filtered(matches, table, condition)
    if partition_idle_time is not None:
        before = int(time.time() * 1000) - duration_ms("partition_idle_time", partition_idle_time)
        newest: dict[bytes, int] = {}
        for entry in matches:
            newest[entry.partition] = max(newest.get(entry.partition, 0), entry.changed_ms)
        matches = [entry for entry in matches if newest[entry.partition] <= before]
    return matches


def partition_specs(context: Context, name: str, partitions: str) -> list[Spec]:
    """The partitions of a table that an argument such as `dt=1;dt=2` selects."""
    entries = context.java(name, bucket_entries)
    matches = select_entries(entries, context.table(name), partitions)
    return list({entry.partition: entry.spec for entry in matches}.values())


def partition_table(specs: Sequence[Spec], table: Table) -> pa.Table:
    """Partitions as an Arrow table of the partition columns' own types."""
    columns = {}
    for key in table.partition_keys:
        column_type = table.arrow_schema.field(key).type
        texts = pa.array([spec[key] for spec in specs], pa.string())
        columns[key] = texts if pa.types.is_string(column_type) else texts.cast(column_type)
    return pa.table(columns)


def _condition(specs: Sequence[Mapping[str, str]], table: Table) -> str:
    """The condition, in DuckDB's SQL, for partitions that are given by their values."""
    parts = []
    for spec in specs:
        terms = []
        for key, value in spec.items():
            check_column("partitions", key, table.partition_keys, _KIND)
            literal = exp.Literal.string(value.strip("'\"")).sql()
            is_null = value.upper() == "NULL"
            terms.append(f"{quote(key)} {'IS NULL' if is_null else f'= {literal}'}")
        parts.append(f"({' AND '.join(terms)})")
    return " OR ".join(parts) or "FALSE"


def _filtered(entries: Sequence[BucketEntry], table: Table, condition: str) -> list[BucketEntry]:
    """The entries of the partitions that meet a condition in DuckDB's SQL."""
    specs = {entry.partition: entry.spec for entry in entries}
    if not specs:
        return []
    keys, positions = list(specs), pa.array(range(len(specs)))
    numbered = partition_table([*specs.values()], table).append_column("__position", positions)
    with open_database(threads=1) as con:
        con.register("partitions", numbered)
        try:
            matches = con.sql(f"SELECT __position FROM partitions WHERE {condition}").fetchall()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise OptionError(f"the condition {condition} over partitions fails: {first}") from None
    partitions = {keys[index] for (index,) in matches}
    return [entry for entry in entries if entry.partition in partitions]
