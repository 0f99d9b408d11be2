"""Schema evolution of the `__pending` and `__unmatched` tables: they follow their source."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.sql.changes import AddColumn, Change, DropColumn, RenameColumn, SetType
from streamhouse.sql.plan import Column


def follow(
    address: TableAddress, fixed: Sequence[str], wanted: Sequence[Column], source: Table | None
) -> None:
    """Alter a `__pending` or `__unmatched` table to the columns `wanted` plus its `fixed` ones.

    `source` is the source table, if it is a Paimon table: renamed columns are then matched by their
    column ids. Raises `TableError` if the table has the columns of another source.
    """
    table = address.open()
    there = {c.name: c.type for c in table.columns if c.name not in fixed}
    if there == {c.name: c.type for c in wanted}:
        return
    names = _names(there, source)
    if names is None:
        if not set(there) <= {column.name for column in wanted}:
            raise TableError(
                f"table {address.identifier} keeps rows of another source, with the columns "
                f"{', '.join(there)}; give this query another target, or drop that table"
            )
        names = {name: name for name in there}
    warehouse = Warehouse(address.warehouse)
    warehouse.alter_table(address.identifier, *_changes(there, names, wanted))


def _names(there: dict[str, str], source: Table | None) -> dict[str, str | None] | None:
    """The new name of each column (None: dropped).

    None if the columns are not those of a schema version of the source.
    """
    if source is None:
        return None
    now = {number: name for name, number in column_ids(source).items()}
    for schema_id in range(source.schema_id, -1, -1):
        version = source.find_schema(schema_id)
        if version is not None and set(column_ids(version)) == set(there):
            return {name: now.get(number) for name, number in column_ids(version).items()}
    return None


def _changes(
    there: dict[str, str], names: dict[str, str | None], wanted: Sequence[Column]
) -> list[Change]:
    moved = {old: new for old, new in names.items() if new is not None and new != old}
    dropped: list[Change] = [DropColumn((old,)) for old, new in names.items() if new is None]
    # Renamed in two steps, since two columns may have swapped names.
    aside: list[Change] = [RenameColumn((old,), f"__was_{old}") for old in moved]
    back: list[Change] = [RenameColumn((f"__was_{old}",), new) for old, new in moved.items()]
    types = {new: there[old] for old, new in names.items() if new is not None}
    rest: list[Change] = []
    for column in wanted:
        if column.name not in types:
            rest.append(AddColumn(Column(column.name, column.type, True, column.comment)))
        elif types[column.name] != column.type:
            rest.append(SetType((column.name,), column.type))
    return [*dropped, *aside, *back, *rest]
