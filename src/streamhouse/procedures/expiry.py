"""Procedures that remove old data: snapshots, changelogs, partitions, orphan files."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.paimon.java.expiry import shared_files
from streamhouse.paimon.java.expiry.partitions import expire_partitions as expire_java_partitions
from streamhouse.paimon.java.expiry.partitions import java_spec, spec_text
from streamhouse.procedures.arguments import parse_options, timestamp_ms
from streamhouse.procedures.bucket_entries import partition_specs
from streamhouse.procedures.consumers import refuse_if_held
from streamhouse.procedures.context import COMMIT_USER, Context
from streamhouse.procedures.registry import Options, procedure, row, rows

LEAST_ORPHAN_AGE_MS = 3_600_000
"""A file younger than an hour may belong to a commit in flight."""
_DAY_MS = 86_400_000


@procedure()
def expire_snapshots(
    context: Context,
    table: str,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: str | None = None,
    max_deletes: int | None = None,
    options: Options | None = None,
) -> pa.Table:
    """Drop old snapshots and the files that only they need, as the table's options say.

    `retain_max` and `retain_min` replace `snapshot.num-retained.max` and `.min`; `older_than`
    (a point in time) replaces `snapshot.time-retained`, `max_deletes` `snapshot.expire.limit`.
    Snapshots that a consumer, a live query, a tag or a branch needs stay. Returns
    `expired_snapshots`, `earliest_snapshot_id`, `latest_snapshot_id`.
    """
    dynamic: dict[str, str | None] = {**parse_options(options, "sys.expire_snapshots")}
    dynamic |= _retained("snapshot", context.table(table).options, retain_max, retain_min)
    dynamic |= _limits("snapshot", older_than, max_deletes)
    # Consumers then protect snapshots, by which queries keep what their replays need.
    dynamic["consumer.changelog-only"] = "false"

    with context.java_locked(table, dynamic) as (jvm, found):
        expired = shared_files.expire_snapshots(jvm, found)
        manager = found.snapshotManager()
        return rows(
            {"expired_snapshots": int, "earliest_snapshot_id": int, "latest_snapshot_id": int},
            [(expired, manager.earliestSnapshotId(), manager.latestSnapshotId())],
        )


@procedure()
def expire_changelogs(
    context: Context,
    table: str,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: str | None = None,
    max_deletes: int | None = None,
    delete_all: bool = False,
) -> pa.Table:
    """Drop old changelogs of a table that keeps them longer than its snapshots.

    The arguments are as for `expire_snapshots`; `delete_all` drops all of them that outlived
    their snapshots. Returns `expired_changelogs` (null with `delete_all`).
    """
    dynamic: dict[str, str | None] = {}
    dynamic |= _retained("changelog", context.table(table).options, retain_max, retain_min)
    dynamic |= _limits("changelog", older_than, max_deletes)

    with context.java_locked(table, dynamic) as (jvm, found):
        expired = shared_files.expire_changelogs(jvm, found, everything=delete_all)
        return rows({"expired_changelogs": int}, [(expired,)])


def _limits(kind: str, older_than: str | None, max_deletes: int | None) -> dict[str, str]:
    """The options for how old the expired ones are, and how many expire at once."""
    options = {}
    if older_than is not None:
        age_ms = int(time.time() * 1000) - timestamp_ms("older_than", older_than)
        options[f"{kind}.time-retained"] = f"{max(0, age_ms)} ms"
    if max_deletes is not None:
        options["snapshot.expire.limit"] = str(max_deletes)
    return options


def _retained(
    kind: str, table_options: Mapping[str, str], maximum: int | None, minimum: int | None
) -> dict[str, str]:
    """The options for how many are kept; lowers the minimum if it exceeds a given maximum."""
    options = {}
    if maximum is not None:
        options[f"{kind}.num-retained.max"] = str(maximum)
        if minimum is None and maximum < int(table_options.get(f"{kind}.num-retained.min", "10")):
            minimum = maximum
    if minimum is not None:
        options[f"{kind}.num-retained.min"] = str(minimum)
    for key, value in options.items():
        if int(value) < 1:
            raise OptionError(f"'{key}': must be at least 1, got {value}")
    return options


@procedure()
def expire_partitions(
    context: Context,
    table: str,
    expiration_time: str | None = None,
    timestamp_formatter: str | None = None,
    timestamp_pattern: str | None = None,
    expire_strategy: str | None = None,
    max_expires: int | None = None,
    options: Options | None = None,
) -> pa.Table:
    """Drop partitions that are older than `expiration_time`, such as `30 d`.

    Their age follows from their values (`values-time`, the default: with `timestamp_formatter` such
    as `yyyy-MM-dd` and `timestamp_pattern` such as `$dt`) or from their last change
    (`update-time`). Arguments replace the table's `partition.*` options. Returns `partition`.
    """
    if not context.table(table).partition_keys:
        raise OptionError(
            f"table {table} has no partitions; for old rows of other tables use DELETE"
        )
    dynamic: dict[str, str | None] = {**parse_options(options, "sys.expire_partitions")}
    overrides = {
        "partition.expiration-strategy": expire_strategy,
        "partition.timestamp-formatter": timestamp_formatter,
        "partition.timestamp-pattern": timestamp_pattern,
        "partition.expiration-time": expiration_time,
        "partition.expiration-max-num": None if max_expires is None else str(max_expires),
    }
    dynamic |= {key: value for key, value in overrides.items() if value is not None}
    if "partition.expiration-time" not in {**context.table(table).options, **dynamic}:
        raise OptionError(
            f"table {table} has no 'partition.expiration-time'; give expiration_time => '30 d'"
        )

    with context.java_locked(table, dynamic) as (jvm, found):
        expired = expire_java_partitions(jvm, found)
        return rows({"partition": str}, [(spec_text(spec),) for spec in expired])


@procedure()
def drop_partition(context: Context, table: str, partitions: str) -> pa.Table:
    """Drop partitions, `dt=1,hh=08;dt=2`; returns `partition`."""
    specs = partition_specs(context, table, partitions)

    with context.java_locked(table, {"write-only": "true"}) as (jvm, found):
        if specs:
            with closing(found.newCommit(COMMIT_USER)) as commit:
                commit.truncatePartitions([java_spec(jvm, found, spec) for spec in specs])
        return rows({"partition": str}, [(spec_text(spec),) for spec in specs])


@procedure()
def mark_partition_done(context: Context, table: str, partitions: str) -> pa.Table:
    """Mark partitions as complete, as `partition.mark-done-action` says.

    By default this writes a file `_SUCCESS` into the partition's folder. Returns `partition`.
    """
    selected_specs = partition_specs(context, table, partitions)

    def work(jvm: Any, found: Any) -> pa.Table:
        paimon = jvm.org.apache.paimon
        # A blank text has the folder of null.
        specs = [
            java_spec(jvm, found, {key: value or None for key, value in spec.items()})
            for spec in selected_specs
        ]
        paths = paimon.utils.PartitionPathUtils.generatePartitionPaths(
            specs, found.store().partitionType()
        )
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for action in paimon.partition.actions.PartitionMarkDoneAction.createActions(
            loader, found, found.coreOptions()
        ):
            with closing(action):
                for path in paths:
                    action.markDone(path)
        return rows({"partition": str}, [(spec_text(spec),) for spec in selected_specs])

    return context.java(table, work)


@procedure()
def remove_orphan_files(
    context: Context,
    table: str,
    older_than: str | None = None,
    dry_run: bool = False,
    parallelism: int | None = None,
    mode: str | None = None,
) -> pa.Table:
    """Remove files that no snapshot, tag or branch references, by default if older than a day.

    `table` may be `database.*`. `older_than` is a point in time at least an hour ago: younger
    files may belong to commits in flight. With `dry_run` nothing is removed. `parallelism` is the
    number of threads. `mode` (`local` or `distributed`) is accepted as in Paimon's procedure,
    without effect: one machine does the work. Returns `table`, `file`, `bytes`, `removed`.
    """
    before = int(time.time() * 1000) - _DAY_MS
    if older_than is not None:
        before = timestamp_ms("older_than", older_than)
    if mode is not None and mode.lower() not in ("local", "distributed"):
        raise OptionError(f"argument 'mode': '{mode}' is neither 'local' nor 'distributed'")
    if not dry_run and before > int(time.time() * 1000) - LEAST_ORPHAN_AGE_MS:
        raise OptionError(
            f"argument 'older_than': {older_than} is less than an hour ago; files that young may "
            "belong to commits in flight. Give an earlier time, or only look with dry_run => true"
        )
    orphans: list[tuple[str, str, int | None, bool]] = []
    database, _, pattern = table.partition(".")
    tables = [table]
    if pattern == "*":
        tables = [f"{database}.{name}" for name in context.warehouse.tables(database)]
    for name in tables:
        dynamic = {"file-operation.thread-num": str(parallelism)} if parallelism else None
        for path, size in _orphans(context, name, before, dry_run, dynamic):
            orphans.append((name, path, size, not dry_run))
    return rows({"table": str, "file": str, "bytes": int, "removed": bool}, sorted(orphans))


def _orphans(
    context: Context, name: str, before: int, dry_run: bool, options: Mapping[str, str] | None
) -> list[tuple[str, int | None]]:
    """Paths and sizes of the files; a dry run comes first, to get the sizes."""

    def clean(dry: bool) -> list[tuple[str, int | None]]:
        def work(jvm: Any, found: Any) -> list[tuple[str, int | None]]:
            paths = shared_files.orphan_files(jvm, found, before, delete=not dry)
            return [(str(path.toUri().getPath()), _size(found, path, dry)) for path in paths]

        return context.java(name, work, options)

    candidates = clean(True)
    if dry_run or not candidates:
        return candidates
    sizes = dict(candidates)
    return [(path, sizes.get(path)) for path, _ in clean(False)]


def _size(table: Any, path: Any, exists: bool) -> int | None:
    return int(table.fileIO().getFileSize(path)) if exists and table.fileIO().exists(path) else None


@procedure()
def purge_files(context: Context, table: str, force: bool = False) -> pa.Table:
    """Empty a table for good: its rows, tags, branches, consumers and old snapshots.

    Refused while live queries need the table, unless `force`. Returns `table`, `snapshot_id` (the
    empty one).
    """

    if context.table(table).root != context.table(table).location:
        raise OptionError(
            f"sys.purge_files empties a table with all its branches, and {table} is a branch; drop "
            "it with sys.delete_branch, and its files with sys.remove_orphan_files"
        )

    with context.java_locked(table) as (jvm, found):
        if not force:
            refuse_if_held(context.table(table), 0, "purge_files")
        found.purgeFiles()
        return row(table=table, snapshot_id=int(found.snapshotManager().latestSnapshotId()))
