"""Reads rows of a served view by a SELECT built from names and parsed conditions."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from streamhouse.close_matches import nearest
from streamhouse.duckdb_engine import Limits, bounded_reader
from streamhouse.errors import (
    DataLossError,
    LimitError,
    NoSpaceError,
    OptionError,
    TableError,
    is_full,
)
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.queries import output
from streamhouse.serve.queries.output import ReadResult, RowsOrigin, RowsRequest
from streamhouse.serve.queries.pinned_tables import PinnedTables, full_name, is_data
from streamhouse.serve.views.served_view import (
    WarehouseTables,
    hide_definition_errors,
    table_info,
    table_of,
)
from streamhouse.serve.views.shown_table import OneTable
from streamhouse.sql.batch.bounded_query import analyze_tree
from streamhouse.sql.expressions import lowering
from streamhouse.sql.parser.query_parser import parse_condition
from streamhouse.sql.plan import BoundedQuery
from streamhouse.sql.resolution.columns import Parsed
from streamhouse.sql.text import Script

_MASK = (1 << 64) - 1


_MAX_ATTEMPTS = 3
SMALL_RECORDS = 20_000
"""The most records, over all tables of a request, that `read_if_small` reads."""
_SMALL = Limits(1.0, "128MiB", "0MiB")
_SMALL_BYTES = 4 << 20


def _with_hashes(plan: BoundedQuery) -> BoundedQuery:
    """The query with one more column, the last: a hash of the row."""
    row, names = "row", {name.lower() for name in plan.output}
    while row in names:
        row += "_"
    # Of the text: DuckDB's hashes of [[1, 2]] and [[1], [2]], and of 0.0 and -0.0, are equal.
    sql = f'SELECT *, hash(CAST("{row}" AS VARCHAR)) FROM ({plan.sql}) AS "{row}"'
    return replace(plan, sql=sql, output=(*plan.output, row))


class RowHashes:
    """The number of the rows, and the sum of their hashes, in any order (decision 130)."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0

    def removed(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The rows without their hashes, which are counted as the rows are read."""
        schema = pa.schema(list(reader.schema)[:-1])

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                self.count += batch.num_rows
                self.sum = (self.sum + sum(batch.column(-1).to_pylist())) & _MASK
                yield pa.record_batch(batch.columns[:-1], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, rows())


def read_rows(warehouse: Warehouse, request: RowsRequest) -> ReadResult:
    """Write the rows to the target; returns their number and their snapshot.

    Raises `OptionError` for a column that is not served, `SqlError` for a condition that cannot be
    parsed, `TableError` and `DataLossError` for a point in time that does not exist, `LimitError`
    and `TooLargeError` if a limit is exceeded.
    """
    for tries_left in reversed(range(_MAX_ATTEMPTS)):
        try:
            return _read(warehouse, request)
        except DataLossError:
            # The newest snapshot expired while it was read, so there is a newer one: retry.
            if request.as_of is not None or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def read_if_small(warehouse: Warehouse, request: RowsRequest) -> ReadResult | None:
    """As `read_rows`, within the limits of a thread of the server; None if they are exceeded.

    Only for requests without a client's SQL text. Rows that the client has already
    (`RowsRequest.known_etags`) are never too many. Deletes the target's file unless it succeeds.
    Raises errors unchanged, but `NoSpaceError` if a disk is full.
    """
    target = replace(request.target, max_bytes=_SMALL_BYTES)
    small = replace(request, target=target, limits=_SMALL, small_only=True)
    try:
        return read_rows(warehouse, small)
    except BaseException as error:
        target.delete()
        if isinstance(error, _LargeError | LimitError):
            return None
        if is_full(error):
            raise NoSpaceError from None
        raise


class _LargeError(Exception):
    """The request may be too large for a thread of the server."""


def _read(warehouse: Warehouse, request: RowsRequest) -> ReadResult:
    with hide_definition_errors(warehouse, request.view):
        source = RowsSource(warehouse, request, request.target.max_rows)
        plan = source.plan()
    pins = source.pins
    state = None if "getvariable(" in plan.sql.lower() else _state(request, plan, pins.stamp)
    result = ReadResult(
        pins.snapshot, pins.time_ms, request.etags_of_states.get(state or ""), state
    )
    if result.etag is not None:
        return replace(result, changed=False)
    if request.small_only and pins.records > SMALL_RECORDS:
        raise _LargeError
    hashed = plan if state is None else _with_hashes(plan)
    with bounded_reader(hashed, pins.scanner, request.limits, output.ROWS_AT_ONCE) as reader:
        hashes = RowHashes()
        rows = reader if state is None else hashes.removed(reader)
        schema = source.schema(rows.schema)
        batches = cast_rows(rows, schema)
        origin = RowsOrigin(request.view.name, pins.snapshot, pins.time_ms)
        written = output.write(request.target, schema, batches, origin.head, origin.metadata)
    result = replace(result, truncated=written.truncated)
    if state is None:
        return result
    etag = _etag(request, schema, hashes)
    if etag in request.known_etags:
        os.unlink(request.target.path)
    return replace(result, etag=etag, changed=etag not in request.known_etags)


class RowsSource:
    """The table or SQL view behind a served view, and the query that reads it.

    `pin` is the pinned table, None for a SQL view, and `names` are the names of its columns.
    `most`: how many rows may be read; None: all.
    """

    def __init__(self, warehouse: Warehouse, request: RowsRequest, most: int | None) -> None:
        self._request = request
        self._most = most
        self.pins = PinnedTables(warehouse, request.as_of)
        name = request.view.source
        self.pin = None if table_of(warehouse, name) is None else self.pins.get(name)
        info = None if self.pin is None else table_info(self.pin.table)
        self._tables = WarehouseTables(warehouse) if info is None else OneTable(info)
        self.names = self._columns()
        self._served = request.view.visible(self.names)

    def plan(self) -> BoundedQuery:
        """Build the query and pin all tables that it reads."""
        condition, script = self._condition()
        wanted = self._wanted()
        database, name = self._name
        table = exp.table_(name, db=database, alias=exp.to_identifier(name, True), quoted=True)
        select = exp.select(*(exp.column(name, quoted=True) for name in wanted)).from_(table)
        if condition is not None:
            select.where(condition, copy=False)
        order = self._order()
        for name, desc in order:
            column = exp.column(name, quoted=True)
            select.order_by(exp.Ordered(this=column, desc=desc, nulls_first=False), copy=False)
        if self.pin is not None and not (order or condition or self.pin.table.primary_key):
            self.pins.keep_newest(self._request.view.source, self._request.limit)
        limits = [self._request.limit, None if self._most is None else self._most + 1]
        # One more than may be returned, to detect that there are more.
        limit = min((number for number in limits if number is not None), default=None)
        if limit is not None:
            select.limit(limit, copy=False)
        analyzed = analyze_tree(Parsed(script, select, ""), select, self._tables)
        plan = analyzed.plan(output=list(wanted))
        if self.pin is None and self._request.as_of is not None:
            self._check_as_of(plan)
            try:
                self.pins.pin_all(plan.scans)
            except TableError as error:
                raise TableError(
                    f"view '{self._request.view.name}' cannot be read as of that time: {error}; "
                    "give a time, such as '5 min ago', that all of its tables still have"
                ) from None
        self.pins.pin_all(plan.scans)
        return plan

    def _check_as_of(self, plan: BoundedQuery) -> None:
        names = sorted({full_name(scan) for scan in plan.scans if is_data(scan)})
        if len(names) > 1 and (self._request.as_of or "").isdigit():
            raise TableError(
                f"'{self._request.view.name}' is a view of several tables ({', '.join(names)}), "
                "whose snapshots with the same number are of different times; give a time"
            )

    def schema(self, engine_schema: pa.Schema) -> pa.Schema:
        """The schema of the response: a table's own types, since the engine may widen them."""
        if self.pin is None:
            return engine_schema
        return self.pin.shown.read_schema(engine_schema.names)

    @property
    def _name(self) -> tuple[str, str]:
        database, table = self._request.view.source.split(".", 1)
        return database, table

    def _columns(self) -> tuple[str, ...]:
        if self.pin is not None:
            return self.pin.shown.names
        assert isinstance(self._tables, WarehouseTables)
        columns = self._tables.stored_view(self._request.view.source).columns
        return tuple(column.name for column in columns)

    def _wanted(self) -> tuple[str, ...]:
        if self._request.columns is None:
            return self._served
        for name in self._request.columns:
            self._check("columns", name)
        return tuple(dict.fromkeys(self._request.columns))

    def _check(self, parameter: str, name: str) -> None:
        if name not in self._served:
            raise OptionError(
                f"parameter '{parameter}': there is no column '{name[:80]}'; "
                f"{nearest(name, self._served)}"
            )

    def _order(self) -> Sequence[tuple[str, bool]]:
        if self._request.order is not None:
            for name, _ in self._request.order:
                self._check("order", name)
            return self._request.order
        key = () if self.pin is None else self.pin.table.primary_key
        return [(name, False) for name in key if set(key) <= set(self._served)]

    def _condition(self) -> tuple[exp.Expr | None, Script]:
        """The WHERE condition, and the script to which positions in error messages refer."""
        client_filter, view_filter = self._request.filter, self._request.view.filter
        client_condition = None if client_filter is None else _parsed(client_filter)
        if client_condition is not None:
            self._check_columns(client_condition, Script(client_filter or ""))
        view_condition = None if view_filter is None else _parsed(view_filter)
        script = Script(client_filter if client_filter is not None else view_filter or "")
        if client_condition is None or view_condition is None:
            return (view_condition if client_condition is None else client_condition), script
        for node in view_condition.walk():
            for key in ("line", "col", "start", "end"):
                node.meta.pop(key, None)
        return exp.and_(exp.Paren(this=view_condition), exp.Paren(this=client_condition)), script

    def _check_columns(self, condition: exp.Expr, script: Script) -> None:
        """Reject a client's condition on hidden columns, whose values it could probe."""
        table = self._name[1]
        for column in condition.find_all(exp.Column):
            parts = [part.name for part in column.parts]
            # After the table's name comes a column name, even if a column has the table's name.
            after_table = [name for before, name in itertools.pairwise(parts) if before == table]
            for name in after_table or parts[:1]:
                if name not in self._served:
                    message = f"there is no column '{name}'; {nearest(name, self._served)}"
                    raise script.error_at(column, message)


def _parsed(text: str) -> exp.Expr:
    return lowering.simplify(Script(text), parse_condition(text))


def cast_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch if batch.schema.types == schema.types else batch.cast(schema)


def _state(request: RowsRequest, plan: BoundedQuery, stamp: str) -> str:
    """A key of the query and of the state of its tables: equal keys have equal rows."""
    scans = [
        (full_name(scan), scan.columns, str(scan.as_of)) for scan in plan.scans if is_data(scan)
    ]
    return _digest(request.target.format, plan.sql, plan.output, scans, stamp)


def _etag(request: RowsRequest, schema: pa.Schema, hashes: RowHashes) -> str:
    """An ETag that depends on the request and the rows only, not on the state of the tables."""
    asked = (request.columns, request.filter, request.order, request.limit, request.as_of)
    types = [(field.name, str(field.type)) for field in schema]
    view, form = request.view.name, request.target.format
    return f'"{_digest(view, form, asked, types, hashes.count, hashes.sum)}"'


def _digest(*parts: object) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()
