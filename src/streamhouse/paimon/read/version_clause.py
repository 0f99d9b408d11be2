"""How the Rust core's SQL is told of which snapshot or tag it is to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamhouse.errors import TableError
from streamhouse.sql.plan import AsOf

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


def version_clause(table: Table, identifier: str, moment: AsOf) -> str:
    """The clause by which `rust_core.query` reads a table as of a snapshot or a tag.

    `TableError` if the snapshot's number is the name of a tag, which the Rust core prefers.
    """
    if moment.tag is not None:
        tag = moment.tag.replace("'", "''")
        return f" VERSION AS OF '{tag}'"
    if moment.snapshot is None:
        return ""
    number = str(moment.snapshot)
    if number in table.tags():
        if table.latest_snapshot_id() == moment.snapshot:
            return ""
        raise TableError(
            f"table {identifier}: a tag is called '{number}' too, so snapshot {number} "
            "cannot be told from it; rename the tag"
        )
    return f" VERSION AS OF {number}"
