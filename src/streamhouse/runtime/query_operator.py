"""The operator of a query: its projection, lookup joins and partial aggregation, run by DuckDB."""

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.specs import arrow_schema
from streamhouse.duckdb_connection import CONTINUOUS_QUERY, LastingConnection
from streamhouse.duckdb_engine import time_sql
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.schema.evolution import with_planned_types
from streamhouse.runtime.query_spec import PartialAggregation
from streamhouse.source import ROW_KIND
from streamhouse.sql.expressions.value_errors import readable
from streamhouse.sql.failed_values import located
from streamhouse.sql.plan import StreamQuery, TableInfo
from streamhouse.types import arrow_type

ROW = "_row"
"""The column of row numbers, by which missed rows are found again."""


class QueryOperator:
    """Computes the output rows of one query from chunks of its source, in an embedded DuckDB.

    Not thread-safe; each process keeps one per query. A query that only copies columns of the
    target's types does not run DuckDB.

    `schema` is the Arrow schema of the target's columns, to which the rows are cast. With `number`
    the output is unordered, and a column `_row` after the target's columns has the number of the
    row of `src` from which each output row was made. `key`: the columns of the target by which
    errors name a row.
    """

    def __init__(
        self,
        query: StreamQuery,
        schema: pa.Schema,
        combine: PartialAggregation | None,
        number: bool = False,
        key: Sequence[str] = (),
    ) -> None:
        self._query = query
        self._key = key
        self._combine = None if query.row_kinds else combine
        self._rows_sql = query.rows.sql
        if number:
            assert query.rows.numbered_sql is not None
            self._rows_sql = query.rows.numbered_sql
            schema = schema.append(pa.field(ROW, pa.int64()))
        self._schema = schema.append(pa.field(ROW_KIND, pa.string())) if query.row_kinds else schema
        self._names = self._schema.names
        self._dimensions = {
            lookup.relation: _planned_types(lookup.table, lookup.columns)
            for lookup in query.lookups
        }
        self._copied = query.copied
        self._copied_schema: pa.Schema | None = None
        self._types_kept = False
        self._db = LastingConnection(query.rows.functions, threads=1, memory_limit=CONTINUOUS_QUERY)

    @property
    def combines(self) -> bool:
        """Whether rows are pre-aggregated before the write."""
        return self._combine is not None

    def bind(self, now_ms: int, watermark_ms: int | None = None) -> None:
        """Set the batch's time and watermark."""
        set_times(self._db, now_ms, watermark_ms)

    def watermarks(self, src: pa.Table) -> dict[str, int | None]:
        """The greatest watermark (epoch ms) among rows of each split; none if it has no use."""
        sql = self._query.scan.watermarks
        columns = self._run(sql, src=src).to_pydict().values() if sql else ()
        return dict(zip(*columns, strict=True)) if columns else {}

    def bind_dimension(self, relation: str, table: pa.Table) -> None:
        """Set the rows of a dimension, in the types of the query's plan."""
        planned = self._dimensions.get(relation, table.schema)
        self._db.keep(relation, with_planned_types(table, planned))

    def keys(self, sql: str, src: pa.Table) -> pa.Table:
        """The result of a lookup's `keys_sql` on `src`; the lookups before it must be bound."""
        return self._run(sql, src=src)

    def misses(self, src: pa.Table) -> pa.Array:
        """`_row` of the rows of `src` that have no match in a lookup with a retry policy."""
        if self._query.misses_sql is None or src.num_rows == 0:
            return pa.array([], pa.int64())
        return self._run(self._query.misses_sql, src=src).column(0).combine_chunks()

    def rows(self, src: pa.Table) -> pa.Table:
        """The output rows of `src`, pre-aggregated where the target allows it."""
        if self._combine is not None:
            combined = self._combine.sql(f"({self._rows_sql})", self._names)
            out = self._run(combined, src=src)
        elif self._copied is not None and self._keeps_types(src, self._copied):
            out = src.select(self._copied)
        else:
            out = self._run(self._rows_sql, src=src)
        return self._cast(out)

    def _keeps_types(self, src: pa.Table, names: Sequence[str]) -> bool:
        """Whether copied columns have the target's types, which are those of the query's plan."""
        if src.schema != self._copied_schema:
            planned = [arrow_type(column.type) for column in self._query.rows.columns]
            types = [src.schema.field(name).type for name in names]
            self._types_kept = types == self._schema.types and types[: len(planned)] == planned
            self._copied_schema = src.schema
        return self._types_kept

    def combine(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The output of several chunks as one table, pre-aggregated where the target allows it."""
        rows = pa.concat_tables(parts) if parts else self._schema.empty_table()
        if self._combine is None or len(parts) < 2:
            return rows
        return self._cast(self._run(self._combine.sql("parts", self._names), parts=rows))

    def _run(self, sql: str, **relations: pa.Table) -> pa.Table:
        try:
            return self._db.run(sql, **relations)
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
            raise  # a bug in the generated SQL, not an error of the data
        except duckdb.Error as error:
            problem = readable(str(error))
            advice = (
                "change the SELECT, for instance with TRY_CAST, NULLIF or a WHERE that leaves such "
                "rows out"
            )
            if self._query.merging.signed and ("does not fit" in problem or "exceeds" in problem):
                advice = "if it is a sum's change, give its column a wider type (ALTER TABLE … "
                advice += "MODIFY) and start the query again"
            raise StreamhouseError(
                f"the query cannot compute a row: {self._located(problem, relations)}; {advice}"
            ) from error

    def _located(self, problem: str, relations: Mapping[str, pa.Table]) -> str:
        """The problem with the column or clause, and the row that failed, if they are found."""

        def run(sql: str) -> Sequence[object]:
            found = self._db.run(sql, **relations).slice(0, 1).to_pylist()
            return list(found[0].values()) if found else ()

        keys = [at for at, name in enumerate(self._names) if name in (self._key or self._names[:3])]
        return located(self._rows_sql, self._names, keys, problem, run)

    def _cast(self, table: pa.Table) -> pa.Table:
        return conformed(table.rename_columns(self._names), self._schema, self._key)


def set_times(db: LastingConnection, now_ms: int, watermark_ms: int | None) -> None:
    """Set the time of a batch, and the watermark before it, which `StreamQuery`s read."""
    db.set("now", f"SET VARIABLE now = {time_sql(now_ms)}")
    at = "NULL" if watermark_ms is None else watermark_ms
    db.set("watermark", f"SET VARIABLE watermark = {at}::BIGINT")


def _planned_types(table: TableInfo, names: Sequence[str]) -> pa.Schema:
    columns = {column.name: column for column in table.columns}
    return arrow_schema([columns[name] for name in names])


def conformed(table: pa.Table, schema: pa.Schema, key: Sequence[str] = ()) -> pa.Table:
    """Rows cast to `schema`; `TableError` for a null or a value that the target cannot hold.

    The error names the row by its `key`.
    """
    for field, column in zip(schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            first = pc.index(column.is_null(), True).as_py()
            raise TableError(
                f"column '{field.name}' of the target cannot be null, but is null in "
                f"{column.null_count} rows of the query{_row_text(table, first, key, field.name)}; "
                "leave these out (WHERE … IS NOT NULL), or give a value (COALESCE)"
            )
    try:
        return table.cast(schema)
    except (pa.ArrowInvalid, ValueError) as error:
        name = next((f.name for f in schema if not _fits(table.column(f.name), f.type)), None)
        where = "" if name is None else f" in column '{name}'"
        raise TableError(
            f"the query returns a value that the target cannot hold{where}: {error}"
        ) from error


def _fits(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except (pa.ArrowInvalid, ValueError):
        return False
    return True


def _row_text(table: pa.Table, row: int, key: Sequence[str], failed: str) -> str:
    names = [name for name in key or table.column_names[:3] if name != failed]
    values = [f"{name} = {table.column(name)[row].as_py()}" for name in names]
    return f", the first with {', '.join(values)}" if values else ""


def numbered(chunk: pa.Table, first: int) -> pa.Table:
    """`chunk` with a last column `_row`: row numbers that start at `first`."""
    numbers = pa.array(np.arange(first, first + chunk.num_rows, dtype=np.int64))
    return chunk.append_column(ROW, numbers)


def without(src: pa.Table, missed: pa.Array) -> pa.Table:
    """The rows of `src` whose `_row` is not among `missed`."""
    if len(missed) == 0:
        return src
    return src.filter(pc.invert(pc.is_in(src.column(ROW), value_set=missed)))


def only(src: pa.Table, numbers: pa.Array) -> pa.Table:
    """The rows of `src` whose `_row` is among `numbers`."""
    return src.filter(pc.is_in(src.column(ROW), value_set=numbers))
