"""Schema evolution of the `__pending` and `__unmatched` tables: they follow their source."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetType,
)


def follow(
    address: TableAddress, fixed: Sequence[str], columns: Sequence[Column], source: Table | None
) -> None:
    """Alter a `__pending` or `__unmatched` table to have `columns` and its `fixed` ones.

    `source` is the source table, if it is a Paimon table: renamed columns are then matched by their
    column ids. Raises `TableError` if the table has the columns of another source.
    """
    table = address.open()
    existing = {c.name: c.type for c in table.columns if c.name not in fixed}
    if existing == {c.name: c.type for c in columns}:
        return
    names = _names(existing, source)
    if names is None:
        if not set(existing) <= {column.name for column in columns}:
            raise TableError(
                f"table {address.identifier} keeps rows of another source, with the columns "
                f"{', '.join(existing)}; give this query another target, or drop that table"
            )
        names = {name: name for name in existing}
    warehouse = Warehouse(address.warehouse)
    warehouse.alter_table(address.identifier, *_changes(existing, names, columns))


def _names(existing: dict[str, str], source: Table | None) -> dict[str, str | None] | None:
    """The new name of each column (None: dropped).

    None if the columns are not those of a schema version of the source.
    """
    if source is None:
        return None
    current = {number: name for name, number in column_ids(source).items()}
    for schema_id in range(source.schema_id, -1, -1):
        version = source.versions.find(schema_id)
        if version is not None and set(column_ids(version)) == set(existing):
            return {name: current.get(number) for name, number in column_ids(version).items()}
    return None


def _changes(
    existing: dict[str, str], names: dict[str, str | None], columns: Sequence[Column]
) -> list[SchemaChange]:
    renamed = {old: new for old, new in names.items() if new is not None and new != old}
    dropped: list[SchemaChange] = [DropColumn((old,)) for old, new in names.items() if new is None]
    # Renamed in two steps, since two columns may have swapped names.
    to_temporary: list[SchemaChange] = [RenameColumn((old,), f"__was_{old}") for old in renamed]
    from_temporary: list[SchemaChange] = [
        RenameColumn((f"__was_{old}",), new) for old, new in renamed.items()
    ]
    types = {new: existing[old] for old, new in names.items() if new is not None}
    others: list[SchemaChange] = []
    for column in columns:
        if column.name not in types:
            others.append(AddColumn(Column(column.name, column.type, True, column.comment)))
        elif types[column.name] != column.type:
            others.append(SetType((column.name,), column.type))
    return [*dropped, *to_temporary, *from_temporary, *others]
