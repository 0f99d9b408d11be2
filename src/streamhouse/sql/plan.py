"""Tables and plans of queries as frozen records; independent of Spark, Paimon and MySQL."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streamhouse.sql.literal_rows import LiteralRows
from streamhouse.sql.udf.function import Declarations, PythonFunction

Name: TypeAlias = tuple[str, ...]
"""A dotted name as written: (table,), (database, table) or (catalog, database, table)."""


@dataclass(frozen=True)
class Column:
    """A physical column; `type` is Flink's spelling in upper case, such as `TIMESTAMP(3)`.

    `metadata` is set for a METADATA column: the connector's key of the value that it holds. If it
    is also `virtual`, an INSERT does not write it.
    """

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None
    metadata: str | None = None
    virtual: bool = False


@dataclass(frozen=True)
class ComputedColumn:
    """A column that is not stored: its Flink SQL expression over the others (or `PROCTIME()`).

    `place` is its index among all columns of the table.
    """

    name: str
    expression: str
    place: int = sys.maxsize


@dataclass(frozen=True)
class Watermark:
    """`WATERMARK FOR column AS expression`: up to which time the rows of a table have arrived.

    `split` is a column with the partition or shard of each row, which all have watermarks of their
    own; empty: the table has one. `idle_timeout` is that of a source, a duration; empty: none.
    """

    column: str
    expression: str
    split: str = ""
    idle_timeout: str = ""


@dataclass(frozen=True)
class Capabilities:
    """What the planner may do with a table.

    The defaults are those of a Paimon table, so most other connectors set several to False.

    - `stream`: a continuous query can read it.
    - `changelog`: that stream has updates and deletes; None: if the table has a primary key.
    - `upserts`: its updates lack the row before the change, and its deletes have only the key.
    - `lookup`: a lookup join can look up rows by key.
    - `server`: a lookup queries an external server, which reports no changes.
    - `scan`: a bounded query can read it.
    - `sink`: a query can write it.
    - `merges`: the table merges rows of one key as its options say, so it can store sums.
    """

    stream: bool = True
    changelog: bool | None = None
    upserts: bool = False
    lookup: bool = True
    server: bool = False
    scan: bool = True
    sink: bool = True
    merges: bool = True


@dataclass(frozen=True)
class TableInfo:
    """A table as the planner sees it: its declaration, and its connector's capabilities."""

    name: Name
    columns: tuple[Column, ...]
    computed: tuple[ComputedColumn, ...] = ()
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    connector: str = "paimon"
    capabilities: Capabilities = Capabilities()
    watermark: Watermark | None = None

    @property
    def declared(self) -> list[Column | ComputedColumn]:
        """All columns, stored and computed, in the order of their declaration."""
        columns: list[Column | ComputedColumn] = list(self.columns)
        for column in sorted(self.computed, key=lambda column: column.place):
            columns.insert(column.place, column)
        return columns

    @property
    def changelog(self) -> bool:
        """Whether a stream over the table can update or delete rows that it emitted before."""
        if self.capabilities.changelog is None:
            return bool(self.primary_key)
        return self.capabilities.changelog


@dataclass(frozen=True)
class AsOf:
    """The time travel target of a table: at most one field is set; none: as it is now.

    `version` is a tag's name or, if no tag has this name, a snapshot's id. `timestamp_ms` is in
    milliseconds since 1970, UTC.
    """

    snapshot: int | None = None
    tag: str | None = None
    version: str | None = None
    timestamp_ms: int | None = None

    def __bool__(self) -> bool:
        return self != AsOf()


@dataclass(frozen=True)
class ViewInfo:
    """A view: its columns, and its query, which names every table as `database.table`.

    A table of another catalog than the view's is named with its catalog. `functions` are the Python
    functions that a temporary view may call.
    """

    name: Name
    columns: tuple[Column, ...]
    query: str
    comment: str | None = None
    temporary: bool = False
    functions: Declarations = field(default_factory=dict, compare=False, repr=False)


CURRENT = AsOf()
"""A table as it is now."""


class Resolver(ABC):
    """Finds tables and views by name for the planner."""

    @property
    def zone(self) -> str:
        """The time zone in which queries are planned."""
        return "UTC"

    @abstractmethod
    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        """The table, with its full name and the columns that it had at `as_of`.

        Raises `TableError`, which names the nearest one, if there is none.
        """

    def view(self, name: Name) -> ViewInfo | None:
        """The view of that name; None if there is no such view."""
        return None

    def viewed(self, name: Name) -> TableInfo:
        """As `table`, for a table that a view reads."""
        return self.table(name)


class ResolverAround(Resolver):
    """Finds what another resolver finds, in its zone or another; subclasses change a part of it."""

    def __init__(self, resolver: Resolver, zone: str | None = None) -> None:
        self._resolver, self._zone = resolver, zone

    @property
    def zone(self) -> str:
        return self._zone or self._resolver.zone

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        return self._resolver.table(name, as_of)

    def view(self, name: Name) -> ViewInfo | None:
        return self._resolver.view(name)


@dataclass(frozen=True)
class LookupRetry:
    """Retry policy of a `LOOKUP` hint: at most `max_attempts` retries, `delay_ms` apart."""

    delay_ms: int
    max_attempts: int


@dataclass(frozen=True)
class LookupJoin:
    """One `JOIN dim FOR SYSTEM_TIME AS OF … ON …` of a continuous query.

    - `relation` is the dimension's name in `OutputRows.sql` (`dim_0`, `dim_1`, …).
    - `columns` are the dimension's columns that the query needs.
    - `keys` are the dimension's columns that ON compares for equality.
    - `left`: it is a LEFT JOIN.
    - `strategy` is set by a LOOKUP hint: `full`, `partial`, `bucket`, or `shuffle` (`bucket`
      where that is possible).
    - `ordered`: a LOOKUP hint requests the output in the order of the stream.
    - `key_columns` are the `keys` for which equality in ON is equality in the column's own type.
    - `keys_sql` gives the keys that the rows of a chunk look up: DuckDB SQL over `src` and the
      lookups before this one, without duplicates and nulls. Its columns are `key_columns`, with the
      dimension's names and types. Each row of the dimension that can join a row of the chunk has
      one of these keys. None if there are no `key_columns`.
    - `row_keys_sql` gives `_row` and the key of each row that passes the filters over the source,
      over `src` alone. None if there are no `key_columns`, if a key depends on what another lookup
      finds, or for several parts of a UNION ALL over one table.
    """

    table: TableInfo
    relation: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    left: bool
    retry: LookupRetry | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    strategy: str | None = None
    ordered: bool = False
    key_columns: tuple[str, ...] = ()
    keys_sql: str | None = None
    row_keys_sql: str | None = None

    @property
    def on_server(self) -> bool:
        """Whether its table is on a server (MySQL), and not a Paimon table."""
        return self.table.capabilities.server


@dataclass(frozen=True)
class StreamScan:
    """Reads the stream of a table, as the relation `src` of a `StreamQuery`.

    The relation has `columns`, then `_row BIGINT`, then, if `changelog`, `rowkind VARCHAR`.
    `options` are those of an OPTIONS hint. `watermarks` is the SQL over `src` of the greatest
    watermark (epoch ms) of each split, for CURRENT_WATERMARK; empty: the query has none.
    """

    table: TableInfo
    columns: tuple[str, ...]
    changelog: bool
    options: Mapping[str, str] = field(default_factory=dict)
    watermarks: str = ""


@dataclass(frozen=True)
class OutputRows:
    """Filters, joins, projects and groups the rows of a chunk.

    - `sql` gives `columns`, named and cast as the target's (or a bare SELECT's own), then
      `rowkind` if the query has `row_kinds`. INNER lookups drop rows without a match, LEFT ones
      give nulls.
    - `numbered_sql` is `sql` in any order, with `_row` after the columns. It is set where the order
      of the output matters, rows are not grouped, and a lookup can reorder them.
    - `functions` are the Python functions that the texts call.
    - `passed` maps columns to the source columns whose values they have, unconverted; those for
      which this is certain.
    - `copies`: each row of the source gives one row, in which all columns are `passed`.
    """

    sql: str
    columns: tuple[Column, ...]
    numbered_sql: str | None = None
    functions: tuple[PythonFunction, ...] = ()
    passed: Mapping[str, str] = field(default_factory=dict)
    copies: bool = False


@dataclass(frozen=True)
class Merging:
    """What the target's merge engine does with the output rows.

    - `grouped`: the query has a GROUP BY (or an aggregate) whose aggregates are the target's own
      merge functions, so the target may combine partial results of parts of a batch.
    - `signed`: the source is a changelog, but all output rows are inserts. Their values express
      retractions, see `streamhouse.sql.streaming.retraction`.
    - `upsert` describes in words which row of each key is kept, if the query has ROW_NUMBER() = 1.
    """

    grouped: bool = False
    signed: bool = False
    upsert: str = ""


@dataclass(frozen=True)
class StreamQuery:
    """A continuous SELECT over one streaming source, as a chain of operators for embedded DuckDB.

    Their SQL texts are in DuckDB's dialect over `src`, the relation of the `scan`, and those of the
    `lookups`. The time of the batch is `getvariable('now')` (TIMESTAMP, UTC), where the query uses
    PROCTIME(), CURRENT_TIMESTAMP, LOCALTIMESTAMP, NOW(), CURRENT_DATE ….

    - `misses_sql` gives `_row` of the source rows that pass the filters over the source's own
      columns and find no match in a lookup with a retry policy: these wait. None when no lookup has
      one.
    - `reorder_key` is the source's primary key if a batch must write the rows that are current at
      its end after all others: see `streamhouse.sql.streaming.changing_rows`.
    - `fingerprint` is a hash that is the same for two texts that differ only in layout.
    """

    scan: StreamScan
    lookups: tuple[LookupJoin, ...]
    rows: OutputRows
    fingerprint: str
    merging: Merging = Merging()
    misses_sql: str | None = None
    reorder_key: tuple[str, ...] = ()

    @property
    def source(self) -> TableInfo:
        """The table that it reads."""
        return self.scan.table

    @property
    def row_kinds(self) -> bool:
        """Whether the output rows end with `rowkind`."""
        return self.scan.changelog and not self.merging.signed

    @property
    def copied(self) -> tuple[str, ...] | None:
        """The columns of `src` that the query copies, in its order; None if it does more."""
        if not self.rows.copies:
            return None
        names = tuple(self.rows.passed[column.name] for column in self.rows.columns)
        return (*names, "rowkind") if self.row_kinds else names

    @property
    def timed(self) -> bool:
        """Whether the output rows depend on the time of the batch."""
        texts = (self.rows.sql, self.misses_sql or "")
        return any("getvariable(" in text.lower() for text in texts)

    @property
    def ordered(self) -> bool:
        """Whether a LOOKUP hint requests the output in the order of the stream."""
        return any(lookup.ordered for lookup in self.lookups)


@dataclass(frozen=True)
class BoundedScan:
    """One table of a bounded query: its `relation` in the SQL and the columns that the query needs.

    `options` come from an OPTIONS hint, `as_of` from time travel.
    """

    table: TableInfo
    relation: str
    columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    as_of: AsOf = AsOf()


@dataclass(frozen=True)
class BoundedQuery:
    """A SELECT or VALUES that ends: DuckDB SQL over the relations of `scans`; it keeps ORDER BY.

    `rows` are rows of literals that the SQL reads from the relation `ROWS`, `functions` the Python
    functions that it calls. For error messages: `keys` are the positions of the columns that
    identify a row, `labels` what the user calls the columns (none: `output`). `state_ttl_ms` is the
    longest time of a STATE_TTL hint (0: there is none).
    """

    scans: tuple[BoundedScan, ...]
    sql: str
    output: tuple[str, ...]
    rows: LiteralRows | None = field(default=None, compare=False, repr=False)
    functions: tuple[PythonFunction, ...] = ()
    keys: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    state_ttl_ms: int = 0


@dataclass(frozen=True)
class DmlQuery:
    """MERGE, UPDATE or DELETE as a query over the target (always its first scan) and others.

    The query's columns are the action (the number of the clause that applies; null for an unchanged
    row, only if all rows were requested), the row's number (null for a new row), the target's
    columns before the change, then those after it. The first scan has the column `ROW`, which
    numbers the target's rows. `actions` has `insert`, `update` or `delete` for each clause,
    `assigned` the columns that any UPDATE sets. `joined`: the statement is a MERGE.
    """

    target: TableInfo
    query: BoundedQuery
    actions: tuple[str, ...]
    assigned: frozenset[str]
    joined: bool


ROW = "__row"
"""The column that numbers the rows of the target of a MERGE, UPDATE or DELETE."""

ROWS = "given_rows"
"""The relation from which a `BoundedQuery` reads its rows of literals."""
