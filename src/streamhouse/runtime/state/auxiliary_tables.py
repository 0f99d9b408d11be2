"""The tables that queries keep next to their target: removes the rows of some queries.

They are named `<target>__pending`, `<target>__lineage`, ….
"""

import re
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.conditions import Filter, all_of
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import overwrite_table, truncate_table
from streamhouse.paimon.write.commit_retries import change_user
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix
from streamhouse.runtime.query_spec import LOOKUP_JOURNAL

BY_QUERY = {
    "pending": "_query",
    LOOKUP_JOURNAL: "_query",
    "lineage": "query_id",
}
"""The auxiliary tables whose rows belong to one query each, with the column of the query id."""

UNMATCHED = "unmatched"
_LATE = re.compile(r"__late(_\d+)?")
_OF_UNMATCHED = {"_attempts", "_missed_at"}


def rows_of_query(
    table: Table,
    column: str,
    query_id: str,
    columns: Sequence[str] | None = None,
    *conditions: Filter,
    snapshot: int | None = None,
) -> pa.Table:
    """The rows of one query, whose id `column` has, as of a snapshot (None: the newest).

    `conditions` prune files; others than that of the query must be checked again.
    """
    own = {"method": "equal", "field": column, "literals": [query_id]}
    rows = table.rows(columns, snapshot, all_of([own, *conditions]))
    return rows.filter(pc.equal(rows.column(column), query_id))


def remove_rows(target: TableAddress, queries: Collection[str]) -> None:
    """Remove all rows of these queries from the auxiliary tables of `target`; idempotent."""
    tables = [(target.auxiliary_table(suffix), column) for suffix, column in BY_QUERY.items()]
    for address, column in [*tables, *((each, "_query") for each in late_tables(target))]:
        table = _auxiliary_table(address, {column})
        if table is not None:
            with commit_lock(table.location):
                _remove(address, column, queries)


def late_name(view: TableAddress) -> str:
    """The first name for the late rows of a view: `<target>__late` of the view of a target."""
    database, name = split_identifier(view.identifier)
    return f"{database}.{name.rpartition('__view')[0] or name}__late"


def late_tables(view: TableAddress) -> Iterator[TableAddress]:
    """The tables that may have late rows of a view."""
    warehouse, base = Warehouse(view.warehouse), late_name(view)
    database, name = split_identifier(base)
    for each in warehouse.tables(database) if database in warehouse.databases() else ():
        if _LATE.fullmatch(each.removeprefix(name.removesuffix("__late"))):
            yield TableAddress(view.warehouse, f"{database}.{each}")


def unmatched_table(target: TableAddress) -> Table | None:
    """The `__unmatched` table, whose rows have no query id; None if it does not exist."""
    return _auxiliary_table(target.auxiliary_table(UNMATCHED), _OF_UNMATCHED)


def empty_table(table: Table) -> None:
    """Remove all rows, if the table has a snapshot."""
    if table.latest_snapshot_id() is not None:
        truncate_table(table, change_user())


def _auxiliary_table(address: TableAddress, columns: set[str]) -> Table | None:
    """The table; None if it is missing, or a user's table of that name, which lacks `columns`."""
    table = address.find()
    return table if table is not None and columns <= set(table.arrow_schema.names) else None


def _remove(address: TableAddress, column: str, queries: Collection[str]) -> None:
    """Rewrite the table without the rows of some queries; the caller holds its commit lock.

    An overwrite takes one commit, and leaves no changes to merge.
    """
    table, ids = address.open(), pa.array(sorted(queries), pa.string())
    removed = pc.is_in(table.rows([column]).column(0), value_set=ids)
    if not pc.any(removed).as_py():
        return
    user = change_user()
    if pc.all(removed).as_py():
        truncate_table(table, user)
        return
    writer = TableWriter(
        address.warehouse, address.identifier, user, file_prefix(user, 0), overwrite=True
    )
    messages = writer.write_all(
        batch.filter(pc.invert(pc.is_in(batch.column(column), value_set=ids)))
        for batch in table.read()
    )
    overwrite_table(table, user, messages)
