"""`streamhouse query`: prints the result of a SELECT over the tables of a warehouse."""

import sys

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, QueryFormat, open_warehouse, with_flags


@with_flags("query")
def query(
    sql: str,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    format: QueryFormat = QueryFormat.TABLE,
) -> None:
    """Print the result of one SELECT over the tables of a warehouse.

    Write tables as database.table, or just table if only one database has it. In JSON, decimals and
    timestamps are strings (all digits, ISO 8601), bytes are base64, and NaN and the
    infinities are strings.
    """
    from streamhouse.serve.queries.client_select import parse_single_select

    select = parse_single_select(sql)
    opened = open_warehouse(warehouse, option)

    from streamhouse.cli.output import write_rows
    from streamhouse.duckdb_engine import bounded_reader
    from streamhouse.serve.views.served_view import WarehouseTables
    from streamhouse.sql.batch.bounded_query import analyze_bounded

    plan = analyze_bounded(select, WarehouseTables(opened))
    with bounded_reader(plan, opened) as reader:
        write_rows(format, reader.schema, reader, sys.stdout)
