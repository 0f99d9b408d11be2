"""Reads of a table by the Rust core's SQL, as of a snapshot or a tag; errors of all its reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamhouse.errors import DataLossError, OptionError, StoreError, StreamhouseError, TableError
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.object_store.store_retries import is_temporary
from streamhouse.sql.plan import AsOf

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_TRIES = 10
_WRONG_OPTION = re.compile(
    r"hitting invalid config|not found in table schema|Unsupported merge-engine|Scan option '"
)


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


def read_error(table: Table, error: BaseException, snapshot: int | None = None) -> StreamhouseError:
    """The error of a read, or of its plan at `snapshot`, as ours."""
    name, text = table.identifier, " ".join(str(error).split())
    if is_temporary(error):
        return StoreError(f"table {name} cannot be read: {text}")
    if snapshot is not None and table.snapshots.find(snapshot) is None:
        return table.snapshots.expired_error(snapshot)
    if _WRONG_OPTION.search(text):
        return OptionError(f"table {name} cannot be read with its options: {text}")
    if rust_core.is_gone(error):
        earliest, latest = table.earliest_snapshot_id(), table.latest_snapshot_id()
        return DataLossError(
            f"table {name}: a file of the snapshot being read is gone (expired, or "
            f"dropped with the table); snapshots {earliest} to {latest} are left: {text}"
        )
    if "while decoding timestamp" in text:
        return StreamhouseError(
            f"table {name}: an ORC file has a timestamp before 1677-09-22 or after "
            "2262-04-11, which cannot be read; leave its column out of the query, or have "
            f"Flink write the table with 'file.format' = 'parquet': {text}"
        )
    return StreamhouseError(f"table {name} cannot be read: {text}")
