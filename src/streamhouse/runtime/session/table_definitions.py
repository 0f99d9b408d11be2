"""CREATE, ALTER and DROP TABLE of a script: stored tables and temporary ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamhouse.close_matches import nearest
from streamhouse.connectors import registry
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.catalog.draft_table import declared_differences
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.schema.options.computed_columns import options_of
from streamhouse.runtime.session.views import check_no_view
from streamhouse.sql.options.renamed_options import current, renamed
from streamhouse.sql.plan import Name, TableInfo
from streamhouse.sql.schema_changes import ResetTableOption, SchemaChange, SetTableOption
from streamhouse.sql.statements.alter_table import AlterTable
from streamhouse.sql.statements.derived_table import like_table, table_of_query
from streamhouse.sql.statements.watermark import TIME_OPTION, of_source
from streamhouse.sql.syntax import CreateTable, Drop

if TYPE_CHECKING:
    from streamhouse.runtime.session.session import Session


class TableDefinitions:
    """Defines tables; keeps the temporary ones, by their full names, in `temporary`."""

    def __init__(self, session: Session) -> None:
        self._session, self._catalogs = session, session.catalogs
        self.temporary: dict[Name, TableInfo] = {}
        self.found: set[Name] = set()
        """The stored tables that a CREATE TABLE IF NOT EXISTS has found."""

    def temporary_names(self, catalog: str, database: str) -> list[str]:
        """The names of a database's temporary tables."""
        return [name[2] for name in self.temporary if name[:2] == (catalog, database)]

    def create(self, statement: CreateTable) -> bool:
        """Run CREATE TABLE; a table of another connector than Paimon is temporary.

        False if the table exists, which IF NOT EXISTS leaves as it is; a notice has the differences
        from its declaration.
        """
        full = self._catalogs.full(statement.name)
        where = f"table {'.'.join(full[1:])}"
        statement = self._with_all_columns(statement)
        options = dict(statement.options)
        connector = options.get("connector", "paimon")
        if connector == "paimon":
            options = {
                **self._resolved(self._catalogs.table_options(full[0]), where),
                **self._resolved(options, where),
            }
        if self._session.view(full) is not None:
            raise TableError(f"{where}: there is a view of that name; DROP it first")
        if connector == "paimon":
            created = self._create_stored(statement, full, options, where)
            if not created:
                self.found.add(full)
            return created
        notice = self._session.notice
        watermark, options = of_source(statement.watermark, options, where, notice)
        info = TableInfo(
            full, statement.columns, statement.computed, statement.primary_key,
            statement.partitioned_by, options, connector, watermark=watermark,
        )  # fmt: skip
        return self._create_temporary(statement, registry.declared(info), where)

    def keep(self, table: TableInfo) -> None:
        """Create a table in which a statement of the script keeps rows, unless it exists."""
        catalog, database, name = table.name
        self._catalogs.warehouse(catalog).create_table(
            database, name, table.columns, table.primary_key,
            options={**table.options, **options_of(table.computed, table.watermark)},
            if_not_exists=True,
        )  # fmt: skip

    def drop(self, statement: Drop) -> bool:
        """Run DROP TABLE; False if there is no such table, with IF EXISTS."""
        full = self._catalogs.full(statement.name)
        if self.temporary.pop(full, None) is not None:
            return True
        check_no_view(self._session, full)
        return self._catalogs.warehouse(full[0]).drop_table(full[1], full[2], statement.if_exists)

    def alter(self, statement: AlterTable) -> bool:
        """Run ALTER TABLE; a temporary table cannot be changed. False: no table, IF EXISTS."""
        full = self._catalogs.full(statement.name)
        if full in self.temporary:
            raise TableError(
                f"table '{full[2]}' is temporary and cannot be changed; DROP it and CREATE it anew"
            )
        check_no_view(self._session, full)
        warehouse = self._catalogs.warehouse(full[0])
        identifier = f"{full[1]}.{full[2]}"
        if statement.if_exists and not warehouse.exists(full[1], full[2]):
            return False
        if statement.new_name:
            new = self._catalogs.full(statement.new_name)
            if new[0] != full[0]:
                raise TableError(f"table '{identifier}' cannot move to the catalog '{new[0]}'")
            warehouse.rename_table(identifier, f"{new[1]}.{new[2]}")
        else:
            where = f"table {identifier}"
            changes = [self._resolved_change(change, where) for change in statement.changes]
            self._check_watermark(full, changes)
            warehouse.alter_table(identifier, *changes)
        return True

    def _check_watermark(self, table: Name, changes: Sequence[SchemaChange]) -> None:
        """Raise `TableError` for a watermark of a column that a table does not have."""
        for change in changes:
            if isinstance(change, SetTableOption) and change.key == TIME_OPTION:
                names = [column.name for column in self._session.table(table).declared]
                if change.value not in names:
                    raise TableError(
                        f"table {'.'.join(table[1:])}: WATERMARK: there is no column "
                        f"'{change.value}'; {nearest(change.value, names)}"
                    )

    def _with_all_columns(self, statement: CreateTable) -> CreateTable:
        """The statement with the columns that its SELECT or its LIKE gives."""
        if statement.query is not None:
            return table_of_query(statement, statement.query, self._session)
        if statement.like is None:
            return statement
        check_no_view(self._session, self._catalogs.full(statement.like.table))
        return like_table(statement, statement.like, self._session.table(statement.like.table))

    def _create_stored(
        self, statement: CreateTable, full: Name, options: dict[str, str], where: str
    ) -> bool:
        if statement.temporary:
            raise OptionError(
                f"{where}: a temporary table needs a 'connector', such as 'datagen' or 'mysql-cdc'"
            )
        metadata = next((c.name for c in statement.columns if c.metadata is not None), None)
        if metadata is not None:
            raise OptionError(
                f"{where}: Paimon tables have no metadata; leave out METADATA column '{metadata}'"
            )
        options.pop("connector", None)
        given = (
            statement.columns,
            statement.primary_key,
            statement.partitioned_by,
            options | options_of(statement.computed, statement.watermark),
            statement.comment,
        )
        warehouse = self._catalogs.warehouse(full[0])
        created = warehouse.create_table(full[1], full[2], *given, statement.if_not_exists)
        if not created:
            stored: Any = warehouse.readable(".".join(full[1:]))
            found = declared_differences(stored.identifier, TableDeclaration(*given), stored)
            if found:
                self._session.notice(
                    f"{where} exists and stays as it is; this declaration has no effect: "
                    f"{'; '.join(found)}. To change the table, use ALTER TABLE, or DROP TABLE first"
                )
        return created

    def _create_temporary(self, statement: CreateTable, info: TableInfo, where: str) -> bool:
        if info.name in self.temporary:
            if statement.if_not_exists:
                return False
            raise TableError(f"{where} already exists; drop it or write IF NOT EXISTS")
        for text in registry.check_declaration(info, where):
            self._session.notice(text)
        self.temporary[info.name] = info
        return True

    def _resolved(self, options: Mapping[str, str], where: str) -> dict[str, str]:
        """A table's options by their Paimon names; gives a notice for each that was replaced."""
        result, notices = current(options)
        for text in notices:
            self._session.notice(f"{where}: {text}")
        return result

    def _resolved_change(self, change: SchemaChange, where: str) -> SchemaChange:
        if isinstance(change, ResetTableOption):
            return ResetTableOption(renamed(change.key))
        if not isinstance(change, SetTableOption):
            return change
        ((key, value),) = self._resolved({change.key: change.value}, where).items()
        return SetTableOption(key, value)
