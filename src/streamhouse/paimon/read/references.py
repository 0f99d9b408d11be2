"""Reads of a table by the Rust core's SQL, as of a snapshot or a tag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.paimon.read.reader import read_error
from streamhouse.paimon.storage import rust_core
from streamhouse.sql.plan import AsOf

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_TRIES = 10


def version_clause(table: Table, identifier: str, as_of: AsOf) -> str:
    """The clause with which `query` reads a table as of a snapshot or a tag.

    Empty for the newest state. `TableError` if an older snapshot's number is also the name of a
    tag, which the Rust core would read instead.
    """
    if as_of.tag is not None:
        tag = as_of.tag.replace("'", "''")
        return f" VERSION AS OF '{tag}'"
    if as_of.snapshot is None:
        return ""
    number = str(as_of.snapshot)
    if number in table.tags():
        if table.latest_snapshot_id() == as_of.snapshot:
            return ""
        raise TableError(
            f"table {identifier}: a tag is also named '{number}', so snapshot {number} "
            "is ambiguous; rename the tag"
        )
    return f" VERSION AS OF {number}"


def query(
    table: Table,
    name: str,
    context: Any,
    columns: Sequence[str],
    version: str = "",
    condition: str = "",
) -> list[pa.RecordBatch]:
    """Columns of a table, or of one of its system tables, by its `name` (`orders$files`).

    `version` is empty or a clause ` VERSION AS OF …`, `condition` empty or ` WHERE …`. Without a
    version, tries up to 10 times if files expire meanwhile. Raises the errors of `Table.read`.
    """
    items = ", ".join(rust_core.quoted(column) for column in columns)
    path = ".".join(rust_core.quoted(part) for part in (rust_core.CATALOG, table.database, name))
    for attempts_left in reversed(range(1 if version else _TRIES)):
        try:
            batches: list[pa.RecordBatch] = context.sql(
                f"SELECT {items} FROM {path}{version}{condition}"
            )
            return batches
        except rust_core.ERRORS as error:
            # Snapshot expiry may delete files after they were listed and before they are read.
            if not attempts_left or not rust_core.is_gone(error):
                raise read_error(table, error) from error
    raise AssertionError("the last attempt returns or raises")


def files_of_snapshot(table: Table, snapshot: int, columns: Sequence[str]) -> pa.Table:
    """Columns of `$files`: the data files of a snapshot, also those that readers do not see yet."""
    version = version_clause(table, table.identifier, AsOf(snapshot))
    context = rust_core.sql_context(table.catalog_options)
    batches = query(table, f"{table.name}$files", context, columns, version)
    return pa.Table.from_batches(batches) if batches else pa.table({key: [] for key in columns})
