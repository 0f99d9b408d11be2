"""`--from-scratch`: restarts the continuous queries of a script as new queries.

A reset of a target empties it and its `__unmatched` table (unless its rows are kept), removes the
rows of its former queries from the other auxiliary tables, drops their consumers at all tables, and
clears their checkpoints. All resets of a script run before its first statement. They begin with a
marker (`ResetMarker`): a process that dies before the marker is written has changed nothing; after
that, the next run finishes the resets, with or without the option. So no query ever resumes from
its old checkpoint with an emptied target, or starts anew with a full one.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamhouse.durable_files import locked, read_json, replace_json
from streamhouse.errors import DataLossError, StreamhouseError
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
from streamhouse.runtime.state.auxiliary_tables import empty_table, remove_rows, unmatched_table
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_for, former_ids
from streamhouse.runtime.state.checkpoint_registry import (
    registered_checkpoints,
    unregister_checkpoints,
)
from streamhouse.runtime.state.table_writers import other_writers, own_consumers

Notice = Callable[[str], None]
MARKER = ".from-scratch.json"
_LOG = logging.getLogger("streamhouse.query")


@dataclass(frozen=True)
class Reset:
    """A reset that has begun: whether rows are kept, and the ids of the queries to remove."""

    keep: bool
    queries: tuple[str, ...]


class ResetMarker:
    """The unfinished reset of one target, `database.table`, in the folders of its pipelines.

    A pipeline's folder has one file for all of its targets.
    """

    def __init__(self, target: str, folders: Iterable[Path]) -> None:
        self._target, self._paths = target, [folder / MARKER for folder in folders]

    def read(self) -> Reset | None:
        """The reset; None if there is none that is unfinished."""
        records = [_records(path).get(self._target) for path in self._paths]
        found = [record for record in records if record is not None]
        if not found:
            return None
        queries = {query for record in found for query in record["queries"]}
        return Reset(all(record["keep"] for record in found), tuple(sorted(queries)))

    def write(self, reset: Reset) -> None:
        """Record the reset as begun, atomically in each folder."""
        for path in self._paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.parent):
                replace_json(path, {**_records(path), self._target: asdict(reset)})

    def remove(self) -> None:
        """Record the reset as finished."""
        for path in self._paths:
            with locked(path.parent):
                records = _records(path)
                records.pop(self._target, None)
                if records:
                    replace_json(path, records)
                else:
                    path.unlink(missing_ok=True)


def _records(path: Path) -> dict[str, Any]:
    return read_json(path) or {}


def any_left(roots: Iterable[Path]) -> bool:
    """Whether a pipeline with checkpoints in these folders has an unfinished reset."""
    return any(next(root.glob(f"*/{MARKER}"), None) is not None for root in roots)


@dataclass(frozen=True)
class _TargetReset:
    """The reset of one target; `queries` are the ids of its former queries.

    `interrupted` says that an earlier run began it and was killed, `mixed` that rows of statements
    such as INSERT … VALUES are removed, too.
    """

    target: ContinuousTarget
    checkpoints: Sequence[Checkpoint]
    marker: ResetMarker
    queries: tuple[str, ...]
    keep: bool
    interrupted: bool
    mixed: bool

    @property
    def name(self) -> str:
        return self.target.address.identifier


def reset(script: ScriptTargets, keep: bool, notice: Notice, marked: Callable[[], None]) -> None:
    """Reset all targets of a script; `keep` leaves their rows.

    `marked` is called after the markers are written, when the resets can no longer be cancelled.
    Raises `StreamhouseError`, with nothing changed, if one of the queries is running, or if
    emptying a target would remove the rows of other continuous queries or streaming jobs.
    """
    with _locked(script.targets, keep) as resets:
        for entry in resets:
            entry.marker.write(Reset(keep, entry.queries))
        marked()
        reached("reset-marked", 0, "")
        _run_steps(script, resets, notice)


def finish(script: ScriptTargets, notice: Notice) -> None:
    """Finish the resets of a script's targets that an earlier run began; raises the same errors."""
    targets = [target for target in script.targets if _marker(target).read() is not None]
    with _locked(targets, None) as resets:
        _run_steps(script, resets, notice)


@contextmanager
def _locked(
    targets: Sequence[ContinuousTarget], keep: bool | None
) -> Iterator[Sequence[_TargetReset]]:
    """The resets of targets whose queries no other process can run meanwhile.

    `keep` None: those that are unfinished, each as it was begun.
    """
    with ExitStack() as stack:
        resets = []
        for target in targets:
            name = target.address.identifier
            checkpoints = [
                checkpoint
                for own in target.checkpoints
                for checkpoint in checkpoints_for(own.root, own.pipeline, name)
            ]
            for checkpoint in checkpoints:
                checkpoint.acquire()
                stack.callback(checkpoint.release)
            # Another process may have finished it while it held the lock.
            before = _marker(target).read()
            if keep is not None or before is not None:
                resets.append(_reset_of(target, checkpoints, before, keep))
        yield resets


def _marker(target: ContinuousTarget) -> ResetMarker:
    folders = (checkpoint.path.parent for checkpoint in target.checkpoints)
    return ResetMarker(target.address.identifier, folders)


def _reset_of(
    target: ContinuousTarget,
    checkpoints: Sequence[Checkpoint],
    before: Reset | None,
    keep: bool | None,
) -> _TargetReset:
    """The reset of a target; `keep` None: as `before`, the one that was begun."""
    queries, table = set(before.queries if before else ()), target.address.find()
    for checkpoint in checkpoints:
        current_id = checkpoint.known_id()
        queries |= {*former_ids(checkpoint.path), *([current_id] if current_id else ())}
        if table is not None:
            queries |= set(own_consumers(table, checkpoint.path))
        queries |= _other_queries(target, checkpoint, table)
    if keep is None:
        keep = before is not None and before.keep
    mixed = not keep and table is not None and _has_rows_of_statements(target.address, queries)
    return _TargetReset(
        target, checkpoints, _marker(target), tuple(sorted(queries)), keep, before is not None,
        mixed,
    )  # fmt: skip


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


def _has_rows_of_statements(target: TableAddress, queries: Collection[str]) -> bool:
    """Whether a target to empty also has rows of statements such as INSERT … VALUES.

    Raises `StreamhouseError` if continuous queries other than `queries` wrote it.
    """
    writers, name = other_writers(target, queries), target.identifier
    if writers.streams:
        raise StreamhouseError(
            f"--from-scratch would empty {name}, including rows that no query of this script "
            f"writes again: those of {'; of '.join(map(str, writers.streams))}. Give "
            f"--keep-targets to keep all rows, or TRUNCATE TABLE {name} first if they can be "
            "deleted"
        )
    return writers.statements


def _run_steps(script: ScriptTargets, resets: Sequence[_TargetReset], notice: Notice) -> None:
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
    readers = [reader for entry in resets for reader in entry.target.readers]
    drop_consumers(script.catalogs, queries, readers)
    reached("consumers-dropped", 0, "")
    for entry in resets:
        for checkpoint in entry.checkpoints:
            is_first = checkpoint is entry.checkpoints[0]
            checkpoint.clear(entry.queries if is_first and entry.keep else ())
            unregister_checkpoints(entry.target.address.warehouse, checkpoint)
        reached("checkpoints-cleared", 0, entry.name)
    for entry in resets:
        entry.marker.remove()
        reached("reset-ended", 0, entry.name)
        notice(_summary(entry, rows[entry.name]))


def _summary(target_reset: _TargetReset, rows: int) -> str:
    begun = ", as an interrupted run had begun to" if target_reset.interrupted else ""
    count = f"{rows:,} {'row' if rows == 1 else 'rows'}"
    if target_reset.keep:
        rows_text = f"its {count} {'is' if rows == 1 else 'are'} kept"
    elif rows == 0:
        rows_text = "it had no rows"
    else:
        rows_text = f"{count} removed"
        if target_reset.mixed:
            rows_text += ", including those of INSERT … VALUES and other statements"
    return f"{target_reset.name}: starts from scratch{begun}; {rows_text}"


def rows_in(address: TableAddress) -> int:
    """The number of rows of a table; 0 if it does not exist."""
    table = address.find()
    if table is None or table.latest_snapshot_id() is None:
        return 0
    name = next(iter(table.primary_key), table.columns[0].name)
    return sum(batch.num_rows for batch in table.read([name]))


def empty_target(address: TableAddress) -> None:
    """Remove all rows of a target and of its `__unmatched` table."""
    for table in (address.find(), unmatched_table(address)):
        if table is not None:
            empty_table(table)


def remove_unfinished_files(target: TableAddress, checkpoints: Sequence[Checkpoint]) -> None:
    """Remove the data files of batches that were never committed to a target."""
    table = target.find()
    if table is None:
        return
    for checkpoint in checkpoints:
        query, first = checkpoint.known_id(), 0
        # A damaged log is a reason to start from scratch.
        with suppress(DataLossError):
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
        read_table = address.find()
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
