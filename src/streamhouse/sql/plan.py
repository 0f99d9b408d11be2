"""What a script asks for, as frozen records; knows nothing of Spark, Paimon or MySQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from streamhouse.sql.literal_rows import LiteralRows
from streamhouse.sql.udf.declaration import Declaration, Declarations
from streamhouse.sql.udf.function import PythonFunction

Name: TypeAlias = tuple[str, ...]
"""A dotted name as written: (table,), (database, table) or (catalog, database, table)."""


@dataclass(frozen=True)
class Position:
    """Where a statement starts in the script, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Column:
    """A physical column; `type` is Flink's spelling in upper case, such as `TIMESTAMP(3)`."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True)
class ComputedColumn:
    """A column that is not stored: its Flink SQL expression over the others (or `PROCTIME()`)."""

    name: str
    expression: str


@dataclass(frozen=True)
class Capabilities:
    """What the planner may do with a table; by default what it may with one of Paimon's.

    `stream`: a continuous query can read it. `changelog`: that stream has updates and deletes;
    None: if the table has a primary key. `lookup`: rows can be looked up by key; `server`: they are
    asked of a server, which tells of no changes. `scan`: a bounded query can read it. `sink`: it
    can be written. `merges`: the table merges rows of one key by its options, so it can keep sums.
    """

    stream: bool = True
    changelog: bool | None = None
    lookup: bool = True
    server: bool = False
    scan: bool = True
    sink: bool = True
    merges: bool = True


@dataclass(frozen=True)
class TableInfo:
    """A table as the planner sees it: its declaration, and what its connector can do."""

    name: Name
    columns: tuple[Column, ...]
    computed: tuple[ComputedColumn, ...] = ()
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    connector: str = "paimon"
    capabilities: Capabilities = Capabilities()

    @property
    def changelog(self) -> bool:
        """Whether a stream over the table can change rows that it gave before."""
        if self.capabilities.changelog is None:
            return bool(self.primary_key)
        return self.capabilities.changelog


@dataclass(frozen=True)
class AsOf:
    """The moment at which a table is read: at most one field is set, none means now.

    `version` is a tag's name or, where no tag has it, a snapshot's number; `timestamp_ms` is in
    milliseconds since 1970, UTC.
    """

    snapshot: int | None = None
    tag: str | None = None
    version: str | None = None
    timestamp_ms: int | None = None

    def __bool__(self) -> bool:
        return self != AsOf()


class Resolver(Protocol):
    """Gives the planner its tables."""

    def table(self, name: Name) -> TableInfo:
        """The table, its name made full; `TableError` naming the nearest if there is none."""


@runtime_checkable
class TravellingResolver(Resolver, Protocol):
    """A resolver that knows how its tables were."""

    def table_as_of(self, name: Name, moment: AsOf) -> TableInfo:
        """As `table`, with the columns of that moment."""


@dataclass(frozen=True)
class ViewInfo:
    """A view: its columns, and its query with every table named by `database.table`.

    A table of another catalog than the view's own is named with it. `functions` are the Python
    functions that a temporary view may call.
    """

    name: Name
    columns: tuple[Column, ...]
    query: str
    comment: str | None = None
    temporary: bool = False
    functions: Declarations = field(default_factory=dict, compare=False, repr=False)


@runtime_checkable
class ViewResolver(Resolver, Protocol):
    """A resolver that knows views."""

    def view(self, name: Name) -> ViewInfo | None:
        """The view of that name; None if it is none."""

    def viewed(self, name: Name) -> TableInfo:
        """As `table`, as a view reads it: always with computed columns."""


@dataclass(frozen=True)
class Statement:
    """Base of all statements: where it stands and its text.

    Texts and options are left out of reprs, since they can hold passwords.
    """

    position: Position
    text: str = field(repr=False)


@dataclass(frozen=True)
class CreateCatalog(Statement):
    name: str
    options: Mapping[str, str] = field(repr=False)
    if_not_exists: bool = False


@dataclass(frozen=True)
class UseCatalog(Statement):
    name: str


@dataclass(frozen=True)
class CreateDatabase(Statement):
    name: Name
    if_not_exists: bool = False
    comment: str | None = None


@dataclass(frozen=True)
class UseDatabase(Statement):
    name: Name


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE [TEMPORARY] TABLE; `watermark` is the column of its WATERMARK clause, if any."""

    name: Name
    columns: tuple[Column, ...]
    computed: tuple[ComputedColumn, ...]
    primary_key: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False
    watermark: str | None = None


@dataclass(frozen=True)
class Drop(Statement):
    """DROP TABLE | DATABASE | CATALOG | VIEW | FUNCTION; `kind` is the word in upper case."""

    kind: str
    name: Name
    if_exists: bool = False
    temporary: bool = False


@dataclass(frozen=True)
class CreateFunction(Statement):
    """CREATE FUNCTION … LANGUAGE PYTHON; `lasting`: without TEMPORARY.

    `again`: IF NOT EXISTS, of a function that is there.
    """

    declaration: Declaration
    lasting: bool = False
    again: bool = False


@dataclass(frozen=True)
class SetOption(Statement):
    """SET 'key' = 'value'; a bare SET has no key and lists what is set."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class ResetOption(Statement):
    key: str | None = None


@dataclass(frozen=True)
class Show(Statement):
    """SHOW CATALOGS | DATABASES | TABLES | CREATE TABLE t; `kind` is the words in upper case."""

    kind: str
    name: Name = ()


@dataclass(frozen=True)
class Describe(Statement):
    name: Name = ()


@dataclass(frozen=True)
class Query:
    """A SELECT or VALUES as written; `streamhouse.sql.streaming.analysis` gives it meaning.

    `prefix` is what stands before it on its first line, so that errors can show the whole line.
    `rows` are those of a long VALUES list that is the whole query, where they have been read.
    `functions` are the Python functions that the script has declared before.
    """

    text: str
    position: Position
    prefix: str = field(default="", compare=False, repr=False)
    rows: LiteralRows | None = field(default=None, compare=False, repr=False)
    functions: Declarations = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Select(Statement):
    query: Query


@dataclass(frozen=True)
class Explain(Statement):
    statement: Statement


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT INTO|OVERWRITE target [PARTITION (…)] [(columns)] query.

    `options` come from an OPTIONS hint; `partition` has the text of each value that it gives.
    """

    target: Name
    columns: tuple[str, ...]
    query: Query
    overwrite: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    partition: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Change(Statement):
    """MERGE, UPDATE or DELETE; `query` is the whole statement, see `batch.dml_plan`."""

    target: Name
    query: Query


@dataclass(frozen=True)
class Truncate(Statement):
    target: Name


Value: TypeAlias = str | int | float | bool | None | tuple["Value", ...] | Mapping[str, str]
"""An argument of a procedure: a literal, `ARRAY[…]` or `MAP['k', 'v', …]`."""


@dataclass(frozen=True)
class Argument:
    """An argument of CALL; `name` is None where it is given by its place."""

    name: str | None
    value: Value


@dataclass(frozen=True)
class Call(Statement):
    """CALL [catalog.]sys.procedure(argument, name => argument, …)."""

    procedure: str
    arguments: tuple[Argument, ...]
    catalog: str | None = None


@dataclass(frozen=True)
class StatementSet(Statement):
    inserts: tuple[Insert, ...]


@dataclass(frozen=True)
class LookupRetry:
    """`LOOKUP` hint: how long a missed row waits; `delay_ms` between at most `max_attempts`."""

    delay_ms: int
    max_attempts: int


@dataclass(frozen=True)
class LookupJoin:
    """One `JOIN dim FOR SYSTEM_TIME AS OF … ON …` of a continuous query.

    `relation` is the name under which `StreamQuery.rows_sql` reads it (`dim_0`, `dim_1`, …),
    `columns` the dimension's columns it needs, `keys` the dimension's columns compared for
    equality in ON, `left` whether it is a LEFT JOIN.

    `ordered`: a LOOKUP hint asks for the output in the order of the stream. `strategy` is what it
    asks for: `full`, `partial`, `bucket`, or `shuffle` (`bucket`
    where that is possible). `keys_sql` gives the keys that the rows of a chunk look for: DuckDB SQL
    over `src` and the lookups before this one, without duplicates and nulls, whose columns are
    `key_columns`, named and typed as the dimension's. Those are the `keys` whose equality means
    the same in these types; without any, `keys_sql` is None. Each row of the dimension that a row
    of the chunk can join has one of these keys. `row_keys_sql` gives them row by row, after `_row`
    and over `src` alone, for the rows that pass the filters over the source; None where a key takes
    what another lookup finds.
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


@dataclass(frozen=True)
class DistinctCounts:
    """The COUNT(DISTINCT …) of a grouped `StreamQuery`; `rows_sql` gives 0 in their `columns`.

    `keys` are the target's primary key, which the groups are. `sql` gives a row for each group,
    counted column and value: the `keys`, `_column` (its name), `_value` (as text) and `_count`, how
    many rows with that value came, less those that were taken back.
    """

    keys: tuple[Column, ...]
    columns: tuple[str, ...]
    sql: str


@dataclass(frozen=True)
class StreamQuery:
    """A continuous SELECT over one streaming source, ready for an embedded engine.

    The SQL texts are in DuckDB's dialect over the relations `src` (columns `source_columns`, then
    `_row BIGINT`, then, if `changelog`, `rowkind VARCHAR`) and each lookup's `relation`.

    - `rows_sql` gives the output rows: columns named and cast as the target wants them (or, for a
      bare SELECT, as `output`), then, if `row_kinds`, `rowkind`. INNER lookups drop missed rows,
      LEFT ones give nulls.
    - `misses_sql` gives `_row` of the source rows that pass the filters over the source's own
      columns and miss a lookup that has a retry policy; None when no lookup has one.
    - The time of the batch is `getvariable('now')` (TIMESTAMP, UTC), where the query uses
      PROCTIME(), CURRENT_TIMESTAMP, LOCALTIMESTAMP, NOW(), CURRENT_DATE ….
    - `grouped`: the query has a GROUP BY (or an aggregate) whose aggregates are the target's own
      merge functions, so partial results of parts of a batch may be combined by the target.
    - `signed`: the source is a changelog, and the output rows are inserts all the same: what takes
      a row back is in their values, see `streamhouse.sql.streaming.retraction`.
    - `upsert` says in words which row of each key is kept, where the query has a ROW_NUMBER() = 1.
    - `distinct` says what a COUNT(DISTINCT …) needs, if there is one.
    - `numbered_sql` is `rows_sql` with `_row` after the output columns, in any order; there where
      the order of the output matters and rows are not grouped.
    - `functions` are the Python functions that the texts call.
    - `fingerprint` is the same for two texts that differ in layout only.
    """

    source: TableInfo
    source_options: Mapping[str, str]
    source_columns: tuple[str, ...]
    lookups: tuple[LookupJoin, ...]
    output: tuple[Column, ...]
    rows_sql: str
    misses_sql: str | None
    changelog: bool
    grouped: bool
    fingerprint: str
    signed: bool = False
    upsert: str = ""
    distinct: DistinctCounts | None = None
    numbered_sql: str | None = None
    functions: tuple[PythonFunction, ...] = ()

    @property
    def row_kinds(self) -> bool:
        """Whether the output rows end with `rowkind`."""
        return self.changelog and not self.signed

    @property
    def timed(self) -> bool:
        """Whether the rows depend on the time of the batch."""
        counted = None if self.distinct is None else self.distinct.sql
        texts = [text for text in (self.rows_sql, self.misses_sql, counted) if text is not None]
        return any("getvariable(" in text.lower() for text in texts)

    @property
    def ordered(self) -> bool:
        """Whether a hint asks for the rows in the order of the stream."""
        return any(lookup.ordered for lookup in self.lookups)


@dataclass(frozen=True)
class BoundedScan:
    """One table of a bounded query: the `relation` name in its SQL and the columns it needs.

    `options` come from an OPTIONS hint; `snapshot`, `timestamp_ms`, `tag` or `version` from time
    travel, as in `AsOf`.
    """

    table: TableInfo
    relation: str
    columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    snapshot: int | None = None
    timestamp_ms: int | None = None
    tag: str | None = None
    version: str | None = None

    @property
    def as_of(self) -> AsOf:
        """The moment at which the table is read."""
        return AsOf(self.snapshot, self.tag, self.version, self.timestamp_ms)


@dataclass(frozen=True)
class BoundedQuery:
    """A SELECT or VALUES that ends: DuckDB SQL over the scans' relations; ORDER BY is kept.

    `rows` are rows of literals that the SQL reads from the relation `ROWS`, `functions` the Python
    functions that it calls.
    """

    scans: tuple[BoundedScan, ...]
    sql: str
    output: tuple[str, ...]
    rows: LiteralRows | None = field(default=None, compare=False, repr=False)
    functions: tuple[PythonFunction, ...] = ()


@dataclass(frozen=True)
class ChangeQuery:
    """MERGE, UPDATE or DELETE as a query over the target (always its first scan) and others.

    The query gives `action` (the number of the clause that applies; null: the row stays as it is,
    such rows are there only if all were asked for), `row` (null for a row that is new), then the
    target's columns as they are, then as they become. The first scan has the column `ROW`, which
    numbers the target's rows. `actions` has `insert`, `update` or `delete` for each clause,
    `assigned` the columns that any UPDATE sets; `joined` tells a MERGE from the other two.
    """

    target: TableInfo
    query: BoundedQuery
    actions: tuple[str, ...]
    assigned: frozenset[str]
    joined: bool


ROW = "__row"
"""The column of a changed table that numbers its rows."""

ROWS = "given_rows"
"""The relation of a `BoundedQuery` that has rows of literals."""
