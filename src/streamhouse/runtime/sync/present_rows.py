"""Decides what happens to the rows that a target has before a sync reads its tables whole.

docs/decisions/195-schema-changes-of-a-sync.md says why.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSets
from streamhouse.errors import TableError
from streamhouse.paimon.changelog.consumers import QUERY, Consumers, query_consumer
from streamhouse.paimon.maintenance.other_compactors import is_alive
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.runtime.reset.reset import (
    Reset,
    ResetMarker,
    empty_target,
    remove_unfinished_files,
)
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import unregister_checkpoints
from streamhouse.runtime.state.table_writers import (
    has_rows,
    lineage_definitions,
    other_writers,
    was_emptied,
)
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.runtime.sync.reload import why_not_reloadable


class FromScratch:
    """The start of one sync from scratch; `checkpoint` must be locked."""

    def __init__(self, options: SyncOptions, checkpoint: Checkpoint) -> None:
        self._options, self._checkpoint = options, checkpoint
        self._marker = ResetMarker(checkpoint.path.name, [checkpoint.path.parent])
        self.former: tuple[str, ...] = ()
        """The ids of the earlier queries, after `begin`."""

    def begin(self, asked: bool, notice: Callable[[str], None]) -> bool:
        """Clear the checkpoint if that is `asked` for, or was begun; returns whether it was."""
        checkpoint, before = self._checkpoint, self._marker.read()
        if not asked and before is None:
            return False
        current = checkpoint.known_id()
        queries = {*(before.queries if before else ()), *([current] if current else ())}
        self.former = tuple(sorted(queries))
        self._marker.write(Reset(False, self.former))
        tables = TableSets(checkpoint.path).latest().tables.values()
        for target in {table.target for table in tables}:
            address = self._options.address(target)
            table = address.find()
            if table is None:
                continue
            remove_unfinished_files(address, [checkpoint])
            for query in self.former:
                Consumers(table).drop(query_consumer(query))
        if checkpoint.path.exists():
            checkpoint.clear()
        unregister_checkpoints(self._options.warehouse, checkpoint)
        begun = "" if asked else ", as an interrupted run had begun to"
        notice(f"the sync of {self._options.name} starts from scratch{begun}")
        return True

    def end(self) -> None:
        """Remove the marker, after the new table set is written."""
        self._marker.remove()


def bound_target(options: SyncOptions, table: FollowedTable, target: Table) -> str:
    """Text that is another one once the target was created again, or its columns changed names."""
    ids = column_ids(target)
    own = (ids.get(options.spelt(name)) for name, _ in table.columns)
    return " ".join([Identity(target).digest, *map(str, own)])


def with_columns(options: SyncOptions, table: FollowedTable, target: Table) -> FollowedTable:
    """A table of which all columns are read that the target has, as the target's types."""
    types = {column.name: column.type for column in target.columns}
    names = [(column.name, options.spelt(column.name)) for column in table.definition.columns]
    columns = tuple((name, types[own]) for name, own in names if own in types)
    table = replace(table, columns=columns)
    return replace(table, bound=bound_target(options, table, target))


def why_other_rows(options: SyncOptions, table: FollowedTable, query_id: str) -> str | None:
    """Why a target lacks rows that a sync has written, or has them in other columns; None: not."""
    target = options.address(table.target).open()
    if table.bound not in ("", bound_target(options, table, target)):
        return "was created again, or has other columns of the same names"
    return "was emptied" if was_emptied(target, query_id) else None


class PresentRows:
    """The rows of targets that a sync has not written; `query_id` is that of the sync."""

    def __init__(self, options: SyncOptions, query_id: str) -> None:
        self._options, self._query_id = options, query_id

    def compares(self, target: str) -> bool:
        """Whether the target has rows, and these can be compared with MySQL's."""
        table = self._options.address(target).open()
        return has_rows(table) and why_not_reloadable(table) is None

    def why_kept(self, target: str, sources: Collection[str]) -> str | None:
        """Why a comparison keeps rows that MySQL does not have; None: it deletes them.

        `sources`: the names of the tables in MySQL that this sync writes to the target.
        """
        rules = self._options.schema_changes
        if not (rules.follows("truncate.table") and rules.follows("drop.table")):
            return "those of DROP and TRUNCATE are not followed"
        return self.other_writer(target, sources)

    def other_writer(self, target: str, sources: Collection[str]) -> str | None:
        """Which other query writes rows of other tables to the target, or at the same time."""
        address = self._options.address(target)
        table, queries = address.open(), lineage_definitions(address)
        for consumer, path, _, theirs in self._others(table, target):
            id = consumer.removeprefix(QUERY)
            if id == consumer:
                continue
            if id in queries or (theirs and is_alive(table, id)) or not theirs <= set(sources):
                return f"the query with the checkpoint {path} writes the table, too"
        return None

    def notice(self, target: str, sources: Collection[str], scratch: bool) -> str | None:
        """A notice to the user about the rows of a target; None if it has none.

        Raises `TableError` if they are of another server, unless the sync starts from `scratch`.
        """
        table = self._options.address(target).open()
        if not has_rows(table):
            return None
        if not self._options.mysql.has_snapshot:
            return f"{target} has rows already, which stay: only changes are written to it"
        why = why_not_reloadable(table)
        if why is not None:
            return (
                f"{target} has rows already, which cannot be compared with those of MySQL, since "
                f"{why}: they stay, and the rows of MySQL are written to it in addition; to start "
                "anew, run the sync once with --from-scratch"
            )
        kept = self.why_kept(target, sources)
        if kept is None and not scratch:
            self._check_server(target)
        then = f"stay, since {kept}" if kept else "are deleted"
        return (
            f"{target} has rows already: they are compared with those of MySQL, and rows that "
            f"MySQL does not have {then}"
        )

    def _check_server(self, target: str) -> None:
        """Raise `TableError` if a sync of equally named tables of another server has written it."""
        server = self._options.mysql.address
        table = self._options.address(target).open()
        if Consumers(table).get(query_consumer(self._query_id)) is not None:
            return  # This sync has written it, too.
        for _, path, other, theirs in self._others(table, target):
            if theirs and other != server:
                raise TableError(
                    f"{target} has rows of MySQL at {other} (the sync with the checkpoint {path}), "
                    f"and this sync, of MySQL at {server}, would delete those that its tables do "
                    "not have: write to tables of other names (--table-prefix, --database). If "
                    f"{server} takes the place of {other}, run the sync once with --from-scratch"
                )

    def _others(self, table: Table, target: str) -> Iterator[tuple[str, Path, str, set[str]]]:
        """The consumers of other queries whose checkpoint is here: their id, and the checkpoint.

        Also the server of a sync with the checkpoint, and its tables of the target.
        """
        for consumer in Consumers(table).all():
            path = Path(consumer.checkpoint or "-")
            if consumer.id != query_consumer(self._query_id) and path.exists():
                newest = TableSets(path).latest()
                names = names_by_target(newest.tables.values())
                yield consumer.id, path, newest.server, names.get(target, set())

    def empty(self, target: str, former: Iterable[str]) -> bool:
        """Empty a target whose rows would stay otherwise; `former`: the ids of earlier queries.

        Raises `TableError` if other continuous queries have written some of them.
        """
        address = self._options.address(target)
        table = address.open()
        if not has_rows(table) or (self.compares(target) and self._options.mysql.has_snapshot):
            return False
        writers = other_writers(address, {*former, self._query_id})
        if writers.streams:
            raise TableError(
                f"--from-scratch would empty {target}, including rows that this sync does not "
                f"write again: those of {'; of '.join(map(str, writers.streams))}. TRUNCATE TABLE "
                f"{target} first if they can be deleted"
            )
        empty_target(address)
        return True


def names_by_target(tables: Iterable[FollowedTable]) -> dict[str, set[str]]:
    """The names of the tables in MySQL by their targets."""
    names: dict[str, set[str]] = {}
    for table in tables:
        names.setdefault(table.target, set()).add(table.full_name)
    return names
