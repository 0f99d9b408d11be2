"""Finds the tables whose rows foreign keys have changed, by the changes of their parents.

docs/decisions/195-schema-changes-of-a-sync.md says why.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.format.events import DELETES, UPDATES
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import MOST_BYTES, BatchDecoder
from streamhouse.connectors.mysql_cdc.binlog.statements import DdlChange
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, TableStarts, read_tables
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import FOREIGN_KEY, DatabaseProgress, Stale
from streamhouse.errors import SchemaChangeError
from streamhouse.mysql.foreign_keys import CASCADE, ForeignKey
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.position import BinlogPosition

Change: TypeAlias = tuple[TableNames, frozenset[str] | None]
"""A table of which rows were deleted (None), or of which these columns were updated."""


def stale_by_foreign_keys(
    tables: Mapping[str, FollowedTable],
    before: DatabaseProgress,
    end: BinlogPosition,
    changed: Collection[str] | None,
    added: Collection[str],
    captured_of: Callable[[FollowedTable], CapturedTable],
) -> dict[str, Stale]:
    """The targets of a sync to compare because of changes of parents up to `end`.

    `changed`: the names of tables with changes; None: perhaps all. `added`: the ids of tables
    that are new in the batch. Tables of which no row is read yet need no comparison. `captured_of`
    returns what readers of the binlog need of a table.
    """
    read = {
        table.names
        for id, table in tables.items()
        if id not in added and before.snapshot.get(id, ()) is not None
    }
    known = {id for id, table in tables.items() if table.target not in before.stale}
    known -= {*added, *before.gone}
    changes: list[Change] = []
    ranges: dict[CapturedTable, TablePosition] = {}
    for id, table, columns in _parents(tables, changed):
        names = {column.name.lower() for column in table.definition.columns}
        if id in known and columns <= names:
            referred = [one for one in table.definition.columns if one.name.lower() in columns]
            # The key's columns are part of every decoded row.
            captured = replace(
                captured_of(table), columns=tuple(dict.fromkeys([*referred, *table.definition.key]))
            )
            start = TablePosition(before.position, before.binlog_state, table.definition)
            ranges[captured] = start
        else:
            # The columns of its changes are not known.
            changes += [(table.names, None), (table.names, columns)]
    if ranges:
        changes += _changes(ranges, end)
    affected = children(tables.values(), changes) & read
    return {
        table.target: Stale(FOREIGN_KEY) for table in tables.values() if table.names in affected
    }


def _parents(
    tables: Mapping[str, FollowedTable], changed: Collection[str] | None
) -> Iterator[tuple[str, FollowedTable, frozenset[str]]]:
    """The parents that may have changes, with the columns to which foreign keys refer."""
    by_names = {table.names: id for id, table in tables.items()}
    columns: dict[TableNames, frozenset[str]] = {}
    for table in tables.values():
        check_parents(table.full_name, table.definition.foreign_keys, by_names)
        for key in table.definition.foreign_keys:
            columns[key.parent] = columns.get(key.parent, frozenset()) | {*key.parent_columns}
    for names, own in columns.items():
        if changed is None or ".".join(names) in changed:
            yield by_names[names], tables[by_names[names]], own


def check_parents(table: str, keys: Iterable[ForeignKey], followed: Collection[TableNames]) -> None:
    """Raise `SchemaChangeError` if a table has a foreign key to a table that is not followed."""
    reason = parent_needed(table, keys, followed)
    if reason is not None:
        raise SchemaChangeError(reason)


def parent_needed(
    table: str, keys: Iterable[ForeignKey], followed: Collection[TableNames]
) -> str | None:
    """Why a table cannot be followed without the parent of a foreign key; None if it can."""
    key = next((key for key in keys if key.parent not in followed), None)
    if key is None:
        return None
    parent = ".".join(key.parent)
    return (
        f"MySQL table {table}: its foreign key '{key.name}' has {key.active}, which changes its "
        f"rows without row events when {parent} changes, so it can only be followed by a sync of a "
        f"database that follows {parent}, too; select that, or exclude {table}"
    )


def children(tables: Iterable[FollowedTable], changes: Iterable[Change]) -> set[TableNames]:
    """The tables whose rows foreign keys change after changes of others, at any depth."""
    keys = [(table.names, key) for table in tables for key in table.definition.foreign_keys]
    found: set[TableNames] = set()
    todo = list(dict.fromkeys(changes))
    done = set(todo)
    while todo:
        parent, updated = todo.pop()
        for child, key in keys:
            if key.parent != parent or not key.changes(updated):
                continue
            found.add(child)
            deleted = updated is None and key.on_delete == CASCADE
            change: Change = (child, None if deleted else frozenset(key.columns))
            if change not in done:
                done.add(change)
                todo.append(change)
    return found


def altered_parents(
    tables: Mapping[str, FollowedTable], found: Mapping[str, DdlChange]
) -> dict[str, Stale]:
    """The targets whose foreign keys may be others after statements about their parents."""
    parents = {
        tables[id].names
        for id, ddl in found.items()
        if ddl.verb != "ALTER" or ddl.renamed or ddl.reload is not None
    }
    return {
        table.target: Stale(FOREIGN_KEY)
        for table in tables.values()
        if any(key.parent in parents for key in table.definition.foreign_keys)
    }


def _changes(ranges: TableStarts, end: BinlogPosition) -> set[Change]:
    """The deletes of each table, and the updates of the columns that are read."""
    tables = list(ranges)
    names = [(one.table.database, one.table.name) for one in tables]
    updates = [BatchDecoder() for _ in tables]
    found: set[Change] = set()
    for index, event in read_tables(ranges, end):
        if event.kind in DELETES:
            found.add((names[index], None))
        elif event.kind in UPDATES:
            updates[index].add(event)
            if updates[index].bytes >= MOST_BYTES:
                found |= _updated(names[index], tables[index], updates[index])
    for index, decoder in enumerate(updates):
        found |= _updated(names[index], tables[index], decoder)
    return found


def _updated(names: TableNames, captured: CapturedTable, updates: BatchDecoder) -> set[Change]:
    """The columns whose values differ in the images before and after updates; removes these."""
    changed: set[str] = set()
    for rows in updates.drain():
        for column, values in zip(captured.columns, rows.columns, strict=True):
            if not values[::2].equals(values[1::2]):
                changed.add(column.name.lower())
    return {(names, frozenset(changed))} if changed else set()
