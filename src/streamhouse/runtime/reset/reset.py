"""`--from-scratch`: restarts the continuous queries of a script as new queries.

A reset of a target empties it and its `__unmatched` table (unless its rows are kept), removes the
rows of its former queries from the other auxiliary tables, drops their consumers at all tables, and
clears their checkpoints. All resets of a script run before its first statement. They begin with a
marker in the folder of checkpoints (`reset.marker`): a process that dies before the marker is
written has changed nothing; after that, the next run finishes the resets, with or without the
option. So no query ever resumes from its old checkpoint with an emptied target, or starts anew with
a full one.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import BEFORE, Consumers, query_consumer
from streamhouse.paimon.maintenance.other_compactors import is_alive
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.reset.continuous_targets import ContinuousTarget, ScriptTargets
from streamhouse.runtime.reset.marker import Reset, ResetMarker
from streamhouse.runtime.state.auxiliary_tables import empty_table, remove_rows, unmatched_table
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_for, former_ids
from streamhouse.runtime.state.checkpoint_registry import (
    registered_checkpoints,
    unregister_checkpoints,
)
from streamhouse.runtime.state.table_writers import other_writers, own_consumers

Notice = Callable[[str], None]


_LOG = logging.getLogger("streamhouse.query")


@dataclass(frozen=True)
class _TargetReset:
    """The reset of one target; `queries` are the ids of its former queries.

    `interrupted` says that an earlier run began it and was killed.
    """

    target: ContinuousTarget
    checkpoints: Sequence[Checkpoint]
    queries: tuple[str, ...]
    keep: bool
    interrupted: bool

    @property
    def name(self) -> str:
        return self.target.address.identifier


def reset(script: ScriptTargets, keep: bool, notice: Notice, marked: Callable[[], None]) -> None:
    """Reset all targets of a script; `keep` leaves their rows.

    `marked` is called after the markers are written, when the resets can no longer be cancelled.
    Raises `StreamhouseError`, with nothing changed, if one of the queries is running, or if
    emptying a target would remove the rows of other continuous queries or streaming jobs.
    """
    with _locked(script.targets) as checkpoints:
        resets = [
            _reset_of(target, own, keep)
            for target, own in zip(script.targets, checkpoints, strict=True)
        ]
        mixed = _with_rows_of_statements(resets)
        for entry in resets:
            for marker in _markers(entry.target):
                marker.add({entry.name: Reset(keep, entry.queries)})
        marked()
        reached("reset-marked", 0, "")
        _run_steps(script, resets, mixed, notice)


def finish(script: ScriptTargets, notice: Notice) -> None:
    """Finish the resets of a script's targets that an earlier run began; raises the same errors."""
    targets = [target for target in script.targets if _unfinished(target) is not None]
    with _locked(targets) as checkpoints:
        resets = []
        for target, own in zip(targets, checkpoints, strict=True):
            # Another process may have finished it while it held the lock.
            before = _unfinished(target)
            if before is not None:
                resets.append(_reset_of(target, own, before.keep))
        _run_steps(script, resets, _with_rows_of_statements(resets), notice)


@contextmanager
def _locked(targets: Sequence[ContinuousTarget]) -> Iterator[list[list[Checkpoint]]]:
    """The checkpoints of each target, locked so that no other process can run their queries."""
    with ExitStack() as stack:
        checkpoints = []
        for target in targets:
            target_checkpoints = []
            for location in target.locations:
                name = target.address.identifier
                target_checkpoints += checkpoints_for(location.root, location.pipeline, name)
            for checkpoint in target_checkpoints:
                checkpoint.acquire()
                stack.callback(checkpoint.release)
            checkpoints.append(target_checkpoints)
        yield checkpoints


def _markers(target: ContinuousTarget) -> list[ResetMarker]:
    return [ResetMarker(location.root, location.pipeline) for location in target.locations]


def _unfinished(target: ContinuousTarget) -> Reset | None:
    """The unfinished reset of a target; None if there is none."""
    name = target.address.identifier
    resets = [
        unfinished
        for marker in _markers(target)
        if (unfinished := marker.read().get(name)) is not None
    ]
    if not resets:
        return None
    queries = {query for unfinished in resets for query in unfinished.queries}
    return Reset(all(unfinished.keep for unfinished in resets), tuple(sorted(queries)))


def _reset_of(
    target: ContinuousTarget, checkpoints: Sequence[Checkpoint], keep: bool
) -> _TargetReset:
    before = _unfinished(target)
    queries = set(before.queries if before else ())
    table = find_table(target.address)
    for checkpoint in checkpoints:
        current_id = checkpoint.known_id()
        queries |= {*former_ids(checkpoint.path), *([current_id] if current_id else ())}
        if table is not None:
            queries |= set(own_consumers(table, checkpoint.path))
        queries |= _other_queries(target, checkpoint, table)
    return _TargetReset(target, checkpoints, tuple(sorted(queries)), keep, before is not None)


def _other_queries(
    target: ContinuousTarget, checkpoint: Checkpoint, table: Table | None
) -> set[str]:
    """The ids of the target's queries whose checkpoints are on other machines, or lost.

    Raises `StreamhouseError` if one of them runs.
    """
    found = set()
    for other in registered_checkpoints(target.address.warehouse, checkpoint).values():
        if other is None:
            continue
        found.add(other.id)
        if other.id != checkpoint.known_id() and table is not None and is_alive(table, other.id):
            raise StreamhouseError(
                f"the query of {target.address.identifier} runs on {other.host} (checkpoint "
                f"{other.checkpoint}), or ran there until a minute ago; stop it first"
            )
    return found


def _with_rows_of_statements(resets: Sequence[_TargetReset]) -> set[str]:
    """The names of targets to empty that also have rows of statements such as INSERT … VALUES.

    Raises `StreamhouseError` if other continuous queries wrote one of them.
    """
    mixed = set()
    for entry in resets:
        if entry.keep or find_table(entry.target.address) is None:
            continue
        writers = other_writers(entry.target.address, entry.queries)
        if writers.streams:
            raise StreamhouseError(
                f"--from-scratch would empty {entry.name}, including rows that no query of this "
                f"script writes again: those of {'; of '.join(map(str, writers.streams))}. Give "
                f"--keep-targets to keep all rows, or TRUNCATE TABLE {entry.name} first if they "
                "can be deleted"
            )
        if writers.statements:
            mixed.add(entry.name)
    return mixed


def _run_steps(
    script: ScriptTargets, resets: Sequence[_TargetReset], mixed: set[str], notice: Notice
) -> None:
    """Run all steps of the resets; each step is idempotent."""
    rows = {entry.name: rows_in(entry.target.address) for entry in resets}
    for entry in resets:
        if not entry.keep:
            empty_target(entry.target.address)
            reached("target-emptied", 0, entry.name)
    for entry in resets:
        remove_unfinished_files(entry.target.address, entry.checkpoints)
        remove_rows(entry.target.address, entry.queries)
        reached("side-rows-removed", 0, entry.name)
    queries = {query for entry in resets for query in entry.queries}
    drop_consumers(
        script.catalogs,
        queries,
        [r for entry in resets for r in entry.target.readers],
    )
    reached("consumers-dropped", 0, "")
    for entry in resets:
        for checkpoint in entry.checkpoints:
            is_first = checkpoint is entry.checkpoints[0]
            checkpoint.clear(entry.queries if is_first and entry.keep else ())
            unregister_checkpoints(entry.target.address.warehouse, checkpoint)
        reached("checkpoints-cleared", 0, entry.name)
    for entry in resets:
        for marker in _markers(entry.target):
            marker.remove([entry.name])
        reached("reset-ended", 0, entry.name)
        notice(_summary(entry, rows[entry.name], entry.name in mixed))


def _summary(target_reset: _TargetReset, rows: int, mixed: bool) -> str:
    begun = ", as an interrupted run had begun to" if target_reset.interrupted else ""
    count = f"{rows:,} {'row' if rows == 1 else 'rows'}"
    if target_reset.keep:
        rows_text = f"its {count} {'is' if rows == 1 else 'are'} kept"
    elif rows == 0:
        rows_text = "it had no rows"
    else:
        rows_text = f"{count} removed"
        if mixed:
            rows_text += ", including those of INSERT … VALUES and other statements"
    return f"{target_reset.name}: starts from scratch{begun}; {rows_text}"


def find_table(address: TableAddress) -> Table | None:
    """The table; None if it does not exist."""
    try:
        return address.open()
    except TableError:
        return None


def rows_in(address: TableAddress) -> int:
    """The number of rows of a table; 0 if it does not exist."""
    table = find_table(address)
    if table is None or table.latest_snapshot_id() is None:
        return 0
    name = next(iter(table.primary_key), table.columns[0].name)
    return sum(batch.num_rows for batch in table.read([name]))


def empty_target(address: TableAddress) -> None:
    """Remove all rows of a target and of its `__unmatched` table."""
    for table in (find_table(address), unmatched_table(address)):
        if table is not None:
            empty_table(table)


def remove_unfinished_files(target: TableAddress, checkpoints: Sequence[Checkpoint]) -> None:
    """Remove the data files of batches that were never committed to a target."""
    table = find_table(target)
    if table is None:
        return
    for checkpoint in checkpoints:
        query, first = checkpoint.known_id(), 0
        with suppress(OSError, ValueError, KeyError):
            first = next_batch(checkpoint.logs.last_offset())
        if query is not None:
            committer = TableCommitter(target.warehouse, target.identifier, query)
            committer.remove_leftovers(query_tag(query), first)


def drop_consumers(
    catalogs: Sequence[Mapping[str, str]],
    queries: Collection[str],
    readers: Sequence[tuple[TableAddress, str]],
) -> None:
    """Drop the consumers of `queries` at all tables of `catalogs`, and those that `readers` name.

    All tables are searched, since a query may have read or looked up other tables before.
    """
    for catalog in catalogs:
        for table in _tables(Warehouse(catalog)):
            for query in queries:
                Consumers(table).drop(query_consumer(query))
    for address, consumer in readers:
        read_table = find_table(address)
        if read_table is not None:
            Consumers(read_table).drop(f"{BEFORE}{consumer}")
            Consumers(read_table).drop(consumer)


def _tables(warehouse: Warehouse) -> Iterator[Table]:
    """All tables and branches that can be opened."""
    for database in warehouse.databases():
        for name in warehouse.tables(database):
            try:
                table = warehouse.table(f"{database}.{name}")
                yield table
                for branch in table.branches():
                    yield warehouse.table(f"{database}.{TableName.parse(name).on(branch)}")
            except StreamhouseError as error:
                # Its consumers expire by themselves.
                _LOG.debug("the consumers of %s.%s are not dropped: %s", database, name, error)
