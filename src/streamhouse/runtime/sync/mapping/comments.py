"""Copies comments of tables and columns that were altered in MySQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamhouse.connectors.mysql_cdc.database.tables.discovery import FoundTable
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.sql.schema_changes import SchemaChange, SetColumnComment, SetTableOption


def copy_comments(
    options: SyncOptions, found: Iterable[FoundTable], notice: Callable[[str], None]
) -> None:
    """Give the Paimon tables the comments of these tables, as they are now.

    Where MySQL has no comment, that in Paimon stays. A failure is only a notice, since rows do not
    depend on comments.
    """
    warehouse = Warehouse(options.warehouse)
    for source in found:
        target = options.target(source.names)
        try:
            table = warehouse.table(target)
            changes = _changes(table, source, options)
            if changes:
                warehouse.alter_table(target, *changes)
        except StreamhouseError as error:
            notice(f"{target}: comments of {source.full_name} are not copied: {error}")


def _changes(table: Table, found: FoundTable, options: SyncOptions) -> list[SchemaChange]:
    changes: list[SchemaChange] = []
    comments = {options.spelt(name): comment for name, comment in found.comments.items()}
    for column in table.columns:
        comment = comments.get(column.name)
        if comment and comment != column.comment:
            changes.append(SetColumnComment((column.name,), comment))
    if found.comment and found.comment != table.schema.get("comment"):
        changes.append(SetTableOption("comment", found.comment))
    return changes
