"""Runs bounded queries in DuckDB, over tables that it reads as streams of Arrow batches.

Each scan uses the table format's own reader, and is opened again each time that the query reads it.
DuckDB keeps the state of joins and aggregations in memory, up to a limit, and spills the rest to a
temporary folder. Nothing here needs a JVM.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from streamhouse.background import RepeatedStep
from streamhouse.duckdb_database import open_database
from streamhouse.errors import LimitError, NoSpaceError, QueryError, TimeLimitError, is_full
from streamhouse.sql.expressions.value_errors import is_of_duckdb, readable
from streamhouse.sql.functions.builtin_udfs import register
from streamhouse.sql.options.time_travel_options import split_options
from streamhouse.sql.plan import ROWS, BoundedQuery, BoundedScan
from streamhouse.sql.udf_modules.evaluation import PythonUdfs
from streamhouse.work_folder import work_folder

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse

THREADS = 2
BATCH_ROWS = 65_536
_INTERRUPT_INTERVAL_S = 0.1
_SEARCH_S = 10
"""How long a failed query is searched for the row that failed."""

_T = TypeVar("_T")
Batches: TypeAlias = Callable[[], Iterator[Any]]
Scanner: TypeAlias = Callable[[BoundedScan], tuple[pa.Schema, Batches]]
"""Returns a scan's schema, and a function that reads its batches from the start on each call."""


def no_tables(scan: BoundedScan) -> NoReturn:
    """The `Scanner` of a query that reads no table."""
    raise AssertionError(f"nothing reads {scan.table.name}")


@dataclass(frozen=True)
class Limits:
    """Limits of a query's resources; a query that exceeds one raises `LimitError`.

    `seconds`: from the start until the last batch has been consumed; None: no limit. `memory` and
    `spill` (the size of temporary files; None: DuckDB's default) are written as in DuckDB, such as
    `256MB`.
    """

    seconds: float | None = None
    memory: str = "1GB"
    spill: str | None = None

    @staticmethod
    def growing(run: Callable[[Limits], _T], first: str) -> _T:
        """What `run` returns with `first` as memory; with 1 GB if that is too little."""
        try:
            return run(Limits(memory=first))
        except LimitError:
            return run(Limits())


def run_bounded(query: BoundedQuery, tables: Warehouse | Scanner) -> pa.Table:
    """Run a bounded query and return all its rows, with columns named as in `query.output`.

    `tables` is a warehouse, or a `Scanner` if the tables are not all in one. Raises `TableError`
    for a snapshot, tag or time that does not exist, `StreamhouseError` for other failures.
    """
    with bounded_reader(query, tables) as reader:
        return reader.read_all()


@contextlib.contextmanager
def bounded_reader(
    query: BoundedQuery,
    tables: Warehouse | Scanner,
    limits: Limits | None = None,
    rows: int = BATCH_ROWS,
    cancelled: threading.Event | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Like `run_bounded`, but yields a reader of batches of at most `rows` rows.

    The query fails with `QueryError` soon after another thread has set `cancelled`.
    """
    with opened(query, tables, limits, cancelled) as connection:
        relation = _flink_integers(connection.sql(query.sql))
        yield _renamed(relation.to_arrow_reader(rows), query.output)


@contextlib.contextmanager
def opened(
    query: BoundedQuery,
    tables: Warehouse | Scanner,
    limits: Limits | None = None,
    cancelled: threading.Event | None = None,
    threads: int = THREADS,
    now_ms: int | None = None,
    more: Mapping[str, tuple[pa.Schema, Batches]] = MappingProxyType({}),
    lasting: AbstractContextManager[duckdb.DuckDBPyConnection] | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a new DuckDB in which a query's relations and functions are registered.

    `now_ms` is the time of the query (epoch ms; default: now), `more` are further relations,
    `lasting` is a connection to another DuckDB, with the built-in functions. Errors of DuckDB are
    raised as `run_bounded` does.
    """
    scanner = tables if callable(tables) else warehouse_scanner(tables)
    with lasting or _new_database(query.sql, limits or Limits(), threads) as connection:
        clock = _Clock(connection, limits, cancelled)
        # Users write the queries: these may read the registered tables, but no files.
        connection.execute("SET enable_external_access = false")
        connection.execute(f"SET VARIABLE now = {time_sql(now_ms)}")
        python = PythonUdfs(query.functions)
        python.register(connection)
        scans = {scan.relation: _Scan(*scanner(scan)) for scan in query.scans}
        scans |= {relation: _Scan(*scan) for relation, scan in more.items()}
        for relation, scan in scans.items():
            connection.register(relation, scan)
        if query.rows is not None:
            connection.register(ROWS, query.rows.table())
        with clock, _readable_errors(list(scans.values()), clock, python, query, connection):
            yield connection


@contextlib.contextmanager
def _new_database(sql: str, limits: Limits, threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    with work_folder("streamhouse-spill-") as spill:
        config = {"memory_limit": limits.memory, "temp_directory": spill}
        if limits.spill is not None:
            config["max_temp_directory_size"] = limits.spill
        with contextlib.closing(open_database(threads, **config)) as connection:
            register(connection, sql)
            yield connection


class _Clock:
    """Interrupts a query that is cancelled, or whose time is up; `late` is True from then on."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        limits: Limits | None,
        cancelled: threading.Event | None,
    ) -> None:
        self.limits = limits
        self.late = False
        self._connection = connection
        self._cancelled = cancelled
        self._thread: RepeatedStep | None = None

    def __enter__(self) -> None:
        seconds = None if self.limits is None else self.limits.seconds
        if seconds is not None or self._cancelled is not None:
            left = math.inf if seconds is None else seconds
            self._deadline = time.monotonic() + left
            first_s = min(_INTERRUPT_INTERVAL_S, left)
            self._thread = RepeatedStep(self._interrupt, "query-clock", first_s)

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.stop()

    def _interrupt(self) -> float:
        """Interrupt the query if it is time; again and again.

        DuckDB forgets an interrupt that falls between two steps of a query.
        """
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            self.late, remaining = True, _INTERRUPT_INTERVAL_S
        if self.late or (self._cancelled is not None and self._cancelled.is_set()):
            self._connection.interrupt()
        return min(_INTERRUPT_INTERVAL_S, remaining)


class _Scan:
    """A scan with Arrow's C stream interface; each stream reads the table from the start."""

    def __init__(self, schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._schema = schema
        self._read = read
        self.error: Exception | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._read():
                yield batch.select(self._schema.names).cast(self._schema)
        except Exception as error:
            # Kept here, because DuckDB passes on only the error's text.
            self.error = error
            raise


def time_sql(epoch_ms: int | None) -> str:
    """The SQL of a time (None: the current one) as a TIMESTAMP in UTC."""
    seconds = time.time() if epoch_ms is None else epoch_ms / 1000
    now = datetime.datetime.fromtimestamp(seconds, datetime.UTC).replace(tzinfo=None)
    return f"TIMESTAMP '{now}'"


def _flink_integers(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    # DuckDB sums integers to 128 bits, which no column here has and Arrow exports as a decimal.
    wide = [str(kind) == "HUGEINT" for kind in relation.types]
    if not any(wide):
        return relation
    names = ['"' + name.replace('"', '""') + '"' for name in relation.columns]
    return relation.project(
        ", ".join(
            f"CAST({name} AS BIGINT) AS {name}" if cast else name
            for name, cast in zip(names, wide, strict=True)
        )
    )


def _renamed(reader: pa.RecordBatchReader, names: tuple[str, ...]) -> pa.RecordBatchReader:
    if list(names) == reader.schema.names:
        return reader
    fields = [field.with_name(name) for field, name in zip(reader.schema, names, strict=True)]
    schema = pa.schema(fields)
    batches = (pa.record_batch(batch.columns, schema=schema) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, batches)


@contextlib.contextmanager
def _readable_errors(
    scans: list[_Scan],
    clock: _Clock,
    python: PythonUdfs,
    query: BoundedQuery,
    connection: duckdb.DuckDBPyConnection,
) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        failed = next((scan.error for scan in scans if scan.error is not None), None)
        if failed is not None and not clock.late:
            raise failed from None
        raised = python.failure(error)
        if raised is not None and not clock.late:
            raise raised from None
        passed = _passed(clock, str(error))
        if passed is not None:
            raise passed from error
        if is_full(error):
            raise NoSpaceError from error
        if isinstance(error, OSError) and not is_of_duckdb(error):
            raise
        text = _located(query, connection, readable(str(error)))
        raise QueryError(f"the query failed: {text}") from error


def _located(query: BoundedQuery, connection: duckdb.DuckDBPyConnection, problem: str) -> str:
    from streamhouse.sql.failed_values import located

    def run(sql: str) -> tuple[object, ...]:
        return connection.execute(sql).fetchone() or ()

    with _Clock(connection, Limits(seconds=_SEARCH_S), None):
        return located(query.sql, query.labels or query.output, query.keys, problem, run)


def _passed(clock: _Clock, text: str) -> LimitError | None:
    """The error for the limit that the query exceeded; None if it failed for another reason."""
    limits = clock.limits
    if limits is None:
        return None
    if clock.late and limits.seconds is not None:
        return TimeLimitError.after(limits.seconds)
    if "Out of Memory" in text or "max_temp_directory_size" in text or "bad_alloc" in text:
        return LimitError.of_memory(limits.memory)
    return None


def warehouse_scanner(warehouse: Warehouse) -> Scanner:
    def scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        options, hinted = split_options(scan.options)
        # Pinned to a snapshot, so that a query that reads the table twice sees the same rows.
        name = ".".join(scan.table.name[-2:])
        table = warehouse.readable(name, scan.as_of or hinted, options, pin=True)
        columns = list(scan.columns)
        return table.read_schema(columns), lambda: table.read(columns=columns)

    return scanner
