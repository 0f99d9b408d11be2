"""`streamhouse query`: prints the result of a SELECT over the tables of a warehouse."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from streamhouse.cli.arguments import (
    DEFAULT_WAREHOUSE,
    OptionsArgument,
    QueryFormat,
    WarehouseArgument,
    open_warehouse,
)


def query(
    sql: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT statement.")],
    warehouse: WarehouseArgument = DEFAULT_WAREHOUSE,
    option: OptionsArgument = None,
    format: Annotated[
        QueryFormat,
        typer.Option("--format", help="A table, one JSON array of objects, or CSV (RFC 4180)."),
    ] = QueryFormat.TABLE,
) -> None:
    """Print the result of one SELECT over the tables of a warehouse.

    Write tables as database.table, or just table if only one database has it. In JSON, decimals and
    timestamps are strings (all digits, ISO 8601), bytes are base64, and NaN and the
    infinities are strings.
    """
    from streamhouse.serve.queries.single_select import parse_single_select

    select = parse_single_select(sql)
    opened = open_warehouse(warehouse, option)

    from streamhouse.cli import output
    from streamhouse.duckdb_engine import bounded_reader
    from streamhouse.serve.formats import row_formats
    from streamhouse.serve.views.warehouse_tables import WarehouseTables
    from streamhouse.sql.batch.bounded_query import analyze_bounded

    plan = analyze_bounded(select, WarehouseTables(opened))
    with bounded_reader(plan, opened) as reader:
        match format:
            case QueryFormat.JSON:
                row_formats.write_json(reader, sys.stdout)
            case QueryFormat.CSV:
                row_formats.write_csv(reader.schema, reader, sys.stdout)
            case QueryFormat.TABLE:
                output.write_table(reader.schema, reader, sys.stdout)
