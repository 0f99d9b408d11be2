"""The address of a Paimon table, which one process can send to another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.sql.plan import Column


@dataclass(frozen=True)
class TableAddress:
    """A Paimon table: the options of its warehouse, and `database.table`.

    `schema_id` is the schema version whose column names the query uses; None: the newest.
    """

    warehouse: Mapping[str, str] = field(repr=False)
    identifier: str
    schema_id: int | None = None

    def open(self) -> Table:
        """The table as it is now."""
        return Warehouse(self.warehouse).table(self.identifier)

    def find(self) -> Table | None:
        """The table as it is now; None if it does not exist."""
        try:
            return self.open()
        except TableError:
            return None

    def create(
        self,
        columns: Sequence[Column],
        primary_key: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        """Create the table if it does not exist."""
        database, name = split_identifier(self.identifier)
        Warehouse(self.warehouse).create_table(
            database, name, columns, primary_key, options=options, if_not_exists=True
        )

    def follow(self) -> Table:
        """The table for those that read or write it again and again (`Warehouse.followed`)."""
        return Warehouse(self.warehouse).followed(self.identifier)

    def planned(self) -> Table:
        """The table with the schema version of the query's plan; the newest if that is gone."""
        table = self.open()
        return table if self.schema_id is None else table.find_version(self.schema_id) or table

    def same(self, other: Self) -> bool:
        """Whether it is the same table, whatever the schema versions."""
        return (self.warehouse, self.identifier) == (other.warehouse, other.identifier)

    def auxiliary_table(self, suffix: str) -> Self:
        """The table `<name>__<suffix>` of the same database, with `__` for the `$` of a branch."""
        name = self.identifier.replace("$", "__")
        return replace(self, identifier=f"{name}__{suffix}", schema_id=None)
