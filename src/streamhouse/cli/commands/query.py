"""`streamhouse query`: prints the result of a SELECT, SHOW, DESCRIBE or EXPLAIN."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, QueryFormat, open_warehouse, with_flags

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.sql.syntax import Describe, Explain, Show


@with_flags("query")
def query(
    sql: str,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    format: QueryFormat = QueryFormat.TABLE,
) -> None:
    """Print the result of one SELECT, SHOW, DESCRIBE or EXPLAIN over the tables of a warehouse.

    Write tables as database.table, or just table if only one database has it. In JSON, decimals and
    timestamps are strings (all digits, ISO 8601), bytes are base64, and NaN and the
    infinities are strings.
    """
    from streamhouse.cli.output import write_rows
    from streamhouse.serve.queries.client_select import single_select
    from streamhouse.sql import syntax
    from streamhouse.sql.statements.script import parse_script

    match statements := parse_script(sql):
        case [syntax.Show() | syntax.Describe() | syntax.Explain() as statement]:
            _show(statement, open_warehouse(warehouse, option), format)
            return
    select = single_select(sql, statements)
    opened = open_warehouse(warehouse, option)

    from streamhouse.duckdb_engine import bounded_reader
    from streamhouse.serve.views.served_view import WarehouseTables
    from streamhouse.sql.batch.bounded_query import analyze_bounded

    plan = analyze_bounded(select, WarehouseTables(opened))
    with bounded_reader(plan, opened) as reader:
        write_rows(format, reader.schema, reader, sys.stdout)


def _show(statement: Show | Describe | Explain, warehouse: Warehouse, format: QueryFormat) -> None:
    from streamhouse.cli.output import write_rows
    from streamhouse.runtime.session.session import Session
    from streamhouse.runtime.statements.explain import shown
    from streamhouse.sql.syntax import Explain, Show
    from streamhouse.work_folder import work_folder

    with work_folder("streamhouse-results-") as folder:
        session = Session(warehouse.options)
        session.catalogs.temporary_folder = lambda: folder
        rows = shown(session, statement)
    defines = isinstance(statement, Show) and statement.kind.startswith("CREATE")
    # A plan or definition has lines of its own.
    if format == QueryFormat.TABLE and (defines or isinstance(statement, Explain)):
        print("\n".join(rows.column(0).to_pylist()))
    else:
        write_rows(format, rows.schema, rows.to_batches(), sys.stdout)
