"""`streamhouse query`: prints the result of a SELECT over the tables of a warehouse."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from streamhouse.cli.arguments import (
    DEFAULT_WAREHOUSE,
    LookFormat,
    OptionsArgument,
    WarehouseArgument,
    open_warehouse,
)


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
    from streamhouse.serve.queries.single_select import selected

    asked = selected(sql)
    opened = open_warehouse(warehouse, option)

    from streamhouse.cli import output
    from streamhouse.engine import bounded_reader
    from streamhouse.serve.formats import row_formats
    from streamhouse.serve.views.warehouse_tables import WarehouseTables
    from streamhouse.sql.batch.bounded_query import analyze_bounded

    plan = analyze_bounded(asked, WarehouseTables(opened))
    with bounded_reader(plan, opened) as reader:
        match format:
            case LookFormat.JSON:
                row_formats.write_json(reader, sys.stdout)
            case LookFormat.CSV:
                row_formats.write_csv(reader.schema, reader, sys.stdout)
            case LookFormat.TABLE:
                output.write_table(reader.schema, reader, sys.stdout)
