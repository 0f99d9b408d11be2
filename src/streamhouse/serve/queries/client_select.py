"""Runs one SELECT of a client over the served views; it can reach no other tables or files."""

import contextlib
import re
from collections.abc import Sequence

from sqlglot import exp

from streamhouse.close_matches import nearest
from streamhouse.duckdb_engine import bounded_reader
from streamhouse.errors import SqlError, TableError, UnsupportedSqlError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.queries import output
from streamhouse.serve.queries.output import ReadResult, SelectRequest
from streamhouse.serve.queries.pinned_tables import PinnedTables
from streamhouse.serve.views.served_view import (
    ServedView,
    ViewCatalog,
    WarehouseTables,
    definition,
    hide_definition_errors,
)
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.options.time_travel_options import TRAVEL_KEYS
from streamhouse.sql.plan import CURRENT, AsOf, BoundedQuery, Name, TableInfo, ViewInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Query, Select, Statement
from streamhouse.types import flink_type

_RAW, _SERVED = "streamhouse_source", "streamhouse_served"
"""Internal catalogs of names in view definitions; clients cannot use them in their queries."""
_RELATION = re.compile(r"scan_\d+", re.IGNORECASE)


def run_select(warehouse: Warehouse, request: SelectRequest) -> ReadResult:
    """Run the SELECT and write its rows to the target; returns their number.

    Raises `SqlError` for anything but one SELECT over views that the scope sees, `QueryError` if it
    fails on a value, `LimitError` and `TooLargeError` if it exceeds a limit.
    """
    pins = PinnedTables(warehouse)
    plan = plan_select(warehouse, request)
    pins.pin_all(plan.scans)
    with bounded_reader(plan, pins.scanner, request.limits, output.ROWS_AT_ONCE) as reader:
        columns = [{"name": f.name, "type": flink_type(f.type)} for f in reader.schema]
        head = {"columns": columns}
        written = output.write(request.target, reader.schema, reader, head, {})
    return ReadResult(truncated=written.truncated)


def plan_select(warehouse: Warehouse, request: SelectRequest) -> BoundedQuery:
    """The plan of the one SELECT."""
    query = parse_single_select(request.sql)
    catalog = ViewCatalog(request.views)
    tables = _Served(warehouse, catalog, request)
    _check(query, tables)
    with contextlib.ExitStack() as stack:
        for view in tables.used:
            stack.enter_context(hide_definition_errors(warehouse, view))
        return analyze_bounded(query, tables)


def parse_single_select(sql: str) -> Query:
    """The query of a text that is exactly one SELECT; `SqlError` for anything else."""
    return single_select(sql, parse_script(sql))


def single_select(sql: str, statements: Sequence[Statement]) -> Query:
    """As `parse_single_select`, of a text that has been parsed."""
    if len(statements) == 1 and isinstance(statements[0], Select):
        return statements[0].query
    if not statements:
        raise SqlError("there is no statement; write one SELECT")
    other = next((s for s in statements if not isinstance(s, Select)), statements[-1])
    raise SqlError(
        "a query takes one SELECT and nothing else; `streamhouse run` runs scripts",
        line=other.position.line,
        column=other.position.column,
        source_line=sql.splitlines()[other.position.line - 1],
        snippet=other.text,
    )


class _Served(WarehouseTables):
    """Resolves names of a client's query to served views, with their columns and filters."""

    def __init__(self, warehouse: Warehouse, catalog: ViewCatalog, request: SelectRequest) -> None:
        super().__init__(warehouse)
        self._catalog = catalog
        self._request = request
        self.used: list[ServedView] = []
        """The served views that have been looked up so far."""

    def served(self, name: Name) -> ServedView:
        """The served view of a name in a client's query; `TableError` names the nearest match."""
        scope = self._request.scope
        if len(name) == 1:
            full = self._catalog.full_name(self._warehouse, name[0], scope)
        elif len(name) == 2:
            full = ".".join(name)
        else:
            raise TableError(f"'{'.'.join(name)}' names a catalog; write database.table")
        view = self._catalog.find(self._warehouse, full, scope)
        self.used.append(view)
        return view

    def view(self, name: Name) -> ViewInfo | None:
        """The definition of a served view; None if it is a whole table under its own name."""
        if _is_raw(name):
            view_info = super().view(name[1:])
            return None if view_info is None else _raw(view_info)
        served = self.served(name)
        source = tuple(served.source.split(".", 1))
        if served.columns is None and served.filter is None:
            view_info = super().view(source)
            if view_info is not None:
                return _raw(view_info)
            if served.name == served.source:
                return None
        return ViewInfo((_SERVED, *served.name.split(".", 1)), (), definition(served))

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        raw = _is_raw(name)
        full = name[1:] if raw else tuple(self.served(name).source.split(".", 1))
        return super().table(full, as_of)


def _is_raw(name: Name) -> bool:
    return len(name) == 3 and name[0] in (_RAW, _SERVED)


def _raw(view: ViewInfo) -> ViewInfo:
    """The view in an internal catalog, so that its query reads the warehouse, not served views."""
    return ViewInfo((_RAW, *view.name[-2:]), view.columns, view.query)


def _check(query: Query, tables: _Served) -> None:
    """Reject what a client's query may not contain, before view definitions are expanded in it."""
    parsed = names.parse_query(query)
    tree, script = parsed.tree, parsed.script
    for clause in tree.find_all(exp.With):
        if clause.args.get("recursive"):
            raise script.unsupported(clause, "WITH RECURSIVE is not supported")
        for name in (expression.alias for expression in clause.expressions):
            # It would shadow one of the engine's relations (`scan_0`, …).
            if _RELATION.fullmatch(name):
                raise UnsupportedSqlError(f"'{name}' is a reserved name; rename the WITH query")
    for table in names.leaves(tree):
        if not isinstance(table.this, exp.Identifier):
            raise script.unsupported(table, "table functions are not supported here")
        for key in names.table_options(script, table):
            if key not in TRAVEL_KEYS:
                message = (
                    f"hint OPTIONS: option '{key}' is not supported here; "
                    f"{nearest(key, TRAVEL_KEYS)}"
                )
                raise script.error_at(table.meta["hints"][0], message)
        try:
            tables.served(names.table_name(table))
        except TableError as error:
            raise script.error_at(table, str(error)) from None
