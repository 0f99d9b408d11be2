"""`streamhouse query`: one look at the tables of a warehouse."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.arguments import (
    DEFAULT_WAREHOUSE,
    LookFormat,
    OptionsArgument,
    WarehouseArgument,
    open_warehouse,
)
from streamhouse.errors import SqlError, TableError

if TYPE_CHECKING:
    from streamhouse.paimon.catalog import Warehouse
    from streamhouse.sql.plan import AsOf, Name, Query, TableInfo, ViewInfo


def query(
    sql: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT statement.")],
    warehouse: WarehouseArgument = DEFAULT_WAREHOUSE,
    option: OptionsArgument = None,
    format: Annotated[
        LookFormat,
        typer.Option("--format", help="A table, one JSON array of objects, or CSV (RFC 4180)."),
    ] = LookFormat.TABLE,
) -> None:
    """Print the answer of one SELECT over the tables of a warehouse.

    Tables are named database.table; a bare name does where only one database has it. In JSON,
    decimals and timestamps are strings (all digits, ISO 8601), bytes base64, NaN null.
    """
    asked = selected(sql)
    opened = open_warehouse(warehouse, option)

    from streamhouse.cli import output
    from streamhouse.engine import bounded_reader
    from streamhouse.sql.analysis import analyze_bounded

    plan = analyze_bounded(asked, WarehouseTables(opened))
    with bounded_reader(plan, opened) as reader:
        match format:
            case LookFormat.JSON:
                output.write_json(reader, sys.stdout)
            case LookFormat.CSV:
                output.write_csv(reader.schema, reader, sys.stdout)
            case LookFormat.TABLE:
                output.write_table(reader.schema, reader, sys.stdout)


def selected(sql: str) -> Query:
    """The query of a text that is one SELECT; `SqlError` for anything else."""
    from streamhouse.sql.plan import Select
    from streamhouse.sql.script import parse_script

    statements = parse_script(sql)
    if len(statements) == 1 and isinstance(statements[0], Select):
        return statements[0].query
    if not statements:
        raise SqlError("there is no statement; write one SELECT")
    other = next((s for s in statements if not isinstance(s, Select)), statements[-1])
    raise SqlError(
        "`query` takes one SELECT and nothing else; `streamhouse run` runs scripts",
        line=other.position.line,
        column=other.position.column,
        source_line=sql.splitlines()[other.position.line - 1],
        snippet=other.text,
    )


class WarehouseTables:
    """Resolves the names of a query in one warehouse."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def table(self, name: Name) -> TableInfo:
        """The table of `database.table`, or of a bare name that only one database has."""
        from streamhouse.sql.plan import AsOf

        return self.table_as_of(name, AsOf())

    def table_as_of(self, name: Name, moment: AsOf) -> TableInfo:
        """As `table`, with the columns that it had then."""
        from streamhouse.sql.plan import TableInfo

        table = self._warehouse.readable(".".join(self._full(name)), moment)
        return TableInfo(
            name=(table.database, table.name),
            columns=tuple(table.columns),
            primary_key=tuple(table.primary_key),
            partitioned_by=tuple(table.partition_keys),
            options=dict(table.options),
        )

    def view(self, name: Name) -> ViewInfo | None:
        """The view of `database.view`, or of a bare name that only one database has."""
        from streamhouse.paimon.views import Views

        if "$" in name[-1]:
            return None
        try:
            database, view = self._full(name)
        except TableError:
            return None  # `table` says so, with the place
        return Views(self._warehouse).find(database, view)

    def viewed(self, name: Name) -> TableInfo:
        """As `table`, with computed columns, which a view may name."""
        from dataclasses import replace

        from streamhouse.runtime.computed import computed_of

        info = self.table(name)
        return replace(info, computed=computed_of(info.options)[1])

    def qualified(self, name: str) -> str:
        """`database.table` of a table as it was written."""
        return ".".join(self._full(tuple(name.split("."))))

    def _full(self, name: Name) -> Name:
        if len(name) != 1:
            return name[-2:]
        base = name[0].partition("$")[0]
        having = [db for db in self._warehouse.databases() if self._has(db, base)]
        if len(having) == 1:
            return having[0], name[0]
        if having:
            named = " or ".join(f"{database}.{name[0]}" for database in sorted(having))
            raise TableError(f"table '{name[0]}' is in several databases; write {named}")
        raise TableError(f"there is no table '{base}'; {self._nearest(base)}")

    def _has(self, database: str, table: str) -> bool:
        from streamhouse.paimon.views import Views

        if table in self._warehouse.tables(database):
            return True
        return table in Views(self._warehouse).names(database)

    def _nearest(self, word: str) -> str:
        from streamhouse.options import nearest

        tables = {t: db for db in self._warehouse.databases() for t in self._warehouse.tables(db)}
        text = nearest(word, tables)
        for table, database in tables.items():
            text = text.replace(f"'{table}'", f"'{database}.{table}'")
        return text
