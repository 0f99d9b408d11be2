"""The time travel clause in the Rust core's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamhouse.errors import TableError
from streamhouse.sql.plan import AsOf

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


def version_clause(table: Table, identifier: str, as_of: AsOf) -> str:
    """The clause with which `rust_core.query` reads a table as of a snapshot or a tag.

    Empty for the newest state. `TableError` if an older snapshot's number is also the name of a
    tag, which the Rust core would read instead.
    """
    if as_of.tag is not None:
        tag = as_of.tag.replace("'", "''")
        return f" VERSION AS OF '{tag}'"
    if as_of.snapshot is None:
        return ""
    number = str(as_of.snapshot)
    if number in table.references.tags():
        if table.latest_snapshot_id() == as_of.snapshot:
            return ""
        raise TableError(
            f"table {identifier}: a tag is also named '{number}', so snapshot {number} "
            "is ambiguous; rename the tag"
        )
    return f" VERSION AS OF {number}"
