"""Compaction: fewer, larger files, by the Java core on the driver or in a Spark job."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamhouse.errors import CommitConflictError, OptionError, TableError
from streamhouse.options import choice, integer
from streamhouse.paimon.java.bucket_compaction import commit, deserialised
from streamhouse.procedures.arguments import names, parse_options, split_options
from streamhouse.procedures.bucket_entries import BucketEntry, bucket_entries, select_entries
from streamhouse.procedures.compaction.spark_job import (
    CompactionTask,
    balanced,
    collected,
    send_jar,
)
from streamhouse.procedures.context import COMMIT_USER, Context
from streamhouse.procedures.registry import Options, procedure, row, rows
from streamhouse.procedures.sorting.sort import STRATEGIES, sort_table

COMPACTED = {
    "table": str,
    "groups": int,
    "files_before": int,
    "files_after": int,
    "snapshot_id": int,
}
_JOB_GROUPS = 8
_JOB_BYTES = 1 << 30
_TRIES = 5
# Paimon counts this interval from a writer's creation, and each compaction here has new writers.
_OPTIONS = {"write-only": "false", "compaction.optimization-interval": None}


@procedure()
def compact(
    context: Context,
    table: str,
    partitions: str | None = None,
    order_strategy: str | None = None,
    order_by: str | None = None,
    options: Options | None = None,
    where: str | None = None,
    partition_idle_time: str | None = None,
    compact_strategy: str | None = None,
) -> pa.Table:
    """Compact a table, some of its partitions, or idle ones; or sort an append table.

    `partitions` is `dt=1,hh=08;dt=2`, `where` a condition over partition columns;
    `partition_idle_time`, such as `1 h`, selects the partitions without new files for that long.
    `compact_strategy` is `full` (the default) or `minor`. `order_strategy` order, zorder or
    hilbert with `order_by` `a,b` rewrites an append table so that filters on these columns read
    fewer files. `options` are table options, and `sink.parallelism`, the number of tasks.

    Returns `table`, `groups` (number of buckets), `files_before`, `files_after`, `snapshot_id`
    (null if there was nothing to do). With an order: a row for each column, with an example
    `filter`, and how many files that reads, `read_before` and `read_after`.
    """
    procedure_name = "sys.compact"
    partitions, order_strategy, order_by = _shifted(partitions, order_strategy, order_by)
    strategy = (order_strategy or "none").lower()
    choice("order_strategy", strategy, ("none", *STRATEGIES))
    table_options, job = split_options(parse_options(options, procedure_name))
    if strategy != "none":
        if partition_idle_time is not None or compact_strategy is not None:
            raise OptionError(
                f"{procedure_name}: order_strategy cannot be combined with "
                "partition_idle_time or compact_strategy"
            )
        if not order_by:
            raise OptionError(
                f"{procedure_name}: order_strategy '{strategy}' needs order_by => 'a,b'"
            )
        parallelism = _parallelism(job)
        return sort_table(
            context, table, strategy, names(order_by), partitions, where, table_options, parallelism
        )
    if order_by:
        raise OptionError(
            f"{procedure_name}: order_by needs order_strategy order, zorder or hilbert"
        )
    full = choice("compact_strategy", (compact_strategy or "full").lower(), ("full", "minor"))
    result = Compaction(context, table, full == "full", table_options, _parallelism(job)).run(
        partitions, where, partition_idle_time
    )
    return rows(COMPACTED, [result])


def _shifted(
    partitions: str | None, strategy: str | None, order_by: str | None
) -> tuple[str | None, str | None, str | None]:
    """Support Flink's short form `compact('t', 'zorder', 'a,b')`, which has no partitions."""
    if partitions and partitions.lower() in STRATEGIES and order_by is None:
        return None, partitions, strategy
    return partitions, strategy, order_by


def _parallelism(job: Mapping[str, str]) -> int | None:
    value = job.get("sink.parallelism")
    return None if value is None else integer("sink.parallelism", value, 1)


class Compaction:
    """One compaction of one table.

    `parallelism`: the tasks of a Spark job, 1: no job; None: a job only if there is much to do.
    """

    def __init__(
        self,
        context: Context,
        table: str,
        full: bool,
        options: Mapping[str, str],
        parallelism: int | None = None,
    ) -> None:
        self._context = context
        self._name = table
        self._table = context.table(table)
        self._parallelism = parallelism
        self._append = not self._table.primary_key and self._table.bucket < 0
        dynamic: dict[str, str | None] = {**_OPTIONS, **options}
        if full and self._append:
            dynamic.setdefault("compaction.min.file-num", "2")
        self._work = CompactionTask(self._table.catalog_options, table, dynamic, self._append, full)

    def run(
        self,
        partitions: str | None = None,
        where: str | None = None,
        idle: str | None = None,
    ) -> tuple[str, int, int, int, int | None]:
        """Compact and commit; returns a row of `COMPACTED`. Retries after commit conflicts."""
        for tries_left in reversed(range(_TRIES)):
            entries = self._entries()
            matches = select_entries(entries, self._table, partitions, where, idle)
            messages = self._messages(matches)
            before = sum(entry.files for entry in matches)
            try:
                # Without messages there was nothing to compact: others may have done it.
                snapshot = self._commit(messages) if messages else None
            except CommitConflictError:
                if not tries_left:
                    raise
                continue
            keys = {(entry.partition, entry.bucket) for entry in matches}
            after = [entry for entry in self._entries(snapshot)
                     if (entry.partition, entry.bucket) in keys]  # fmt: skip
            return self._name, len(matches), before, sum(entry.files for entry in after), snapshot
        raise AssertionError("the last try returns or raises")

    def _entries(self, snapshot: int | None = None) -> list[BucketEntry]:
        return self._context.java(
            self._name, lambda jvm, table: bucket_entries(jvm, table, snapshot)
        )

    def _messages(self, entries: Sequence[BucketEntry]) -> list[bytes]:
        if not entries:
            return []
        if self._append:
            payloads = self._tasks(entries)
            weights = [1] * len(payloads)
        else:
            payloads = [(entry.partition, entry.bucket) for entry in entries]
            weights = [entry.size for entry in entries]
        if not payloads:
            return []
        if self._is_job(payloads, entries):
            return self._job(payloads, weights)
        return self._work.run(self._context.sidecar, payloads)

    def _is_job(self, payloads: Sequence[Any], entries: Sequence[BucketEntry]) -> bool:
        if len(payloads) < 2:
            return False
        if self._parallelism is not None:
            return self._parallelism > 1
        size = sum(entry.size for entry in entries)
        return len(payloads) > _JOB_GROUPS and (self._context.has_spark or size > _JOB_BYTES)

    def _job(self, payloads: Sequence[tuple[bytes, int]], weights: Sequence[int]) -> list[bytes]:
        spark = self._context.spark()
        tasks = min(self._parallelism or int(spark.defaultParallelism), len(payloads))
        shares: list[list[tuple[bytes, int]]] = [[] for _ in range(tasks)]
        for place, payload in zip(balanced(weights, tasks), payloads, strict=True):
            shares[place].append(payload)
        work = replace(self._work, jar=send_jar(spark))
        messages = spark.parallelize(shares, tasks).flatMap(work)
        return collected(messages, f"compact {self._name}: {len(payloads)} groups", tasks)

    def _tasks(self, entries: Sequence[BucketEntry]) -> list[tuple[bytes, int]]:
        """The Java core's compaction tasks for small files in partitions of an append table."""
        partitions = list({entry.partition: None for entry in entries})

        def work(jvm: Any, table: Any) -> list[tuple[bytes, int]]:
            paimon = jvm.org.apache.paimon
            deserialize = paimon.utils.SerializationUtils.deserializeBinaryRow
            rows = [deserialize(partition) for partition in partitions]
            predicate = paimon.partition.PartitionPredicate.fromMultiple(
                table.schema().logicalPartitionType(), rows
            )
            planned = paimon.append.AppendCompactCoordinator(table, False, predicate).run()
            serializer = paimon.table.sink.AppendCompactTaskSerializer()
            return [(bytes(serializer.serialize(task)), 0) for task in planned]

        return self._context.java(self._name, work, self._work.table_options)

    def _commit(self, messages: Sequence[bytes]) -> int | None:
        return self._context.java(
            self._name,
            lambda jvm, table: commit(table, COMMIT_USER, deserialised(jvm, messages)),
        )


@procedure(options="table_options")
def compact_database(
    context: Context,
    including_databases: str | None = None,
    mode: str | None = None,
    including_tables: str | None = None,
    excluding_tables: str | None = None,
    table_options: Options | None = None,
    partition_idle_time: str | None = None,
    compact_strategy: str | None = None,
) -> pa.Table:
    """Compact all tables of all databases, or of those whose names match.

    Names are regular expressions; those of tables are matched against `database.table`, or the
    bare name. `mode` is accepted as in Paimon's procedure, without effect. Returns a row of
    `compact` for each table.
    """
    if mode is not None:
        choice("mode", mode.lower(), ("combined", "divided"))
    full = choice("compact_strategy", (compact_strategy or "full").lower(), ("full", "minor"))
    options, job = split_options(parse_options(table_options, "sys.compact_database"))
    results = []
    for database in context.warehouse.databases():
        if not _matches(including_databases, database):
            continue
        for table in context.warehouse.tables(database):
            full_name = f"{database}.{table}"
            if not _matches(including_tables, full_name, table):
                continue
            if excluding_tables is not None and _matches(excluding_tables, full_name, table):
                continue
            compaction = Compaction(context, full_name, full == "full", options, _parallelism(job))
            results.append(compaction.run(idle=partition_idle_time))
    return rows(COMPACTED, results)


def _matches(pattern: str | None, *candidates: str) -> bool:
    if pattern is None:
        return True
    try:
        return any(re.fullmatch(pattern, candidate) for candidate in candidates)
    except re.error as error:
        raise OptionError(f"'{pattern}' is not a regular expression: {error}") from None


@procedure()
def compact_manifest(context: Context, table: str, options: Options | None = None) -> pa.Table:
    """Merge a table's manifests, without touching its data; returns `table`, `snapshot_id`."""
    dynamic: dict[str, str | None] = {**parse_options(options, "sys.compact_manifest")}

    with context.java_locked(table, dynamic) as (jvm, java_table):
        latest = java_table.snapshotManager().latestSnapshotId()
        if latest is None:
            raise TableError(f"table {table} has no snapshot yet; insert rows first")
        with closing(java_table.copy({"write-only": "true"}).newCommit(COMMIT_USER)) as committer:
            committer.compactManifests()
        return row(table=table, snapshot_id=int(java_table.snapshotManager().latestSnapshotId()))
