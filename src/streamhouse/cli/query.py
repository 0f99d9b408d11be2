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
from streamhouse.errors import SqlError

if TYPE_CHECKING:
    from streamhouse.sql.plan import Query


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
    from streamhouse.serve import formats
    from streamhouse.serve.warehouse_tables import WarehouseTables
    from streamhouse.sql.analysis import analyze_bounded

    plan = analyze_bounded(asked, WarehouseTables(opened))
    with bounded_reader(plan, opened) as reader:
        match format:
            case LookFormat.JSON:
                formats.write_json(reader, sys.stdout)
            case LookFormat.CSV:
                formats.write_csv(reader.schema, reader, sys.stdout)
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
