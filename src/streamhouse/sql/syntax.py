"""Statements of a script as frozen records, as the parser returns them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streamhouse.sql.literal_rows import LiteralRows
from streamhouse.sql.plan import Column, ComputedColumn, Name, Watermark
from streamhouse.sql.udf.function import Declaration, Declarations


@dataclass(frozen=True)
class TextPosition:
    """Where a statement starts in the script, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Statement:
    """Base of all statements: its position and its text.

    Reprs leave out texts and options, since these can hold passwords.
    """

    position: TextPosition
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
class Like:
    """LIKE `table` (INCLUDING | EXCLUDING | OVERWRITING a feature of it, …)."""

    table: Name
    strategies: Mapping[str, str] = field(default_factory=dict)

    def strategy(self, feature: str) -> str:
        """How a feature is taken; by default all are included, and options overwritten."""
        default = "OVERWRITING" if feature == "OPTIONS" else "INCLUDING"
        return self.strategies.get(feature) or self.strategies.get("ALL", default)


@dataclass(frozen=True)
class Query:
    """The text of a SELECT or VALUES; `sql.streaming.query_planner` or `sql.batch` plans it.

    `prefix` is the text before it on its first line, so that errors can show the whole line.
    `rows` are the rows of a query that is one long VALUES list, if `literal_reader` has read it.
    `functions` are the Python functions that the script has declared before the query.
    """

    text: str
    position: TextPosition
    prefix: str = field(default="", compare=False, repr=False)
    rows: LiteralRows | None = field(default=None, compare=False, repr=False)
    functions: Declarations = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE [TEMPORARY] TABLE.

    `like` and `query` (of CREATE TABLE … AS) have columns that the statement does not name.
    """

    name: Name
    columns: tuple[Column, ...]
    computed: tuple[ComputedColumn, ...]
    primary_key: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False
    watermark: Watermark | None = None
    like: Like | None = None
    query: Query | None = None


@dataclass(frozen=True)
class Drop(Statement):
    """DROP TABLE | DATABASE | CATALOG | VIEW | FUNCTION; `kind` is the word in upper case."""

    kind: str
    name: Name
    if_exists: bool = False
    temporary: bool = False


@dataclass(frozen=True)
class CreateFunction(Statement):
    """CREATE FUNCTION … LANGUAGE PYTHON; `permanent`: without TEMPORARY.

    `already_exists`: it has IF NOT EXISTS, and the function exists.
    """

    declaration: Declaration
    permanent: bool = False
    already_exists: bool = False


@dataclass(frozen=True)
class SetOption(Statement):
    """SET 'key' = 'value'; a bare SET has no key and lists the options that are set."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class ResetOption(Statement):
    key: str | None = None


@dataclass(frozen=True)
class Show(Statement):
    """SHOW TABLES, SHOW CREATE TABLE t, …; `kind` has the words after SHOW in upper case.

    `like` is a regular expression that names must match, or with `unlike` must not.
    """

    kind: str
    name: Name = ()
    like: str | None = None
    unlike: bool = False


@dataclass(frozen=True)
class Describe(Statement):
    name: Name = ()


@dataclass(frozen=True)
class Select(Statement):
    query: Query


@dataclass(frozen=True)
class Explain(Statement):
    statement: Statement


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT INTO|OVERWRITE target [PARTITION (…)] [(columns)] query.

    `options` come from an OPTIONS hint; `partition` has the text of each value, by column. `fills`:
    it is of a CREATE TABLE … AS, so a bounded one leaves a table that existed as it is.
    """

    target: Name
    columns: tuple[str, ...]
    query: Query
    overwrite: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    partition: Mapping[str, str] = field(default_factory=dict)
    fills: bool = False


@dataclass(frozen=True)
class DmlStatement(Statement):
    """MERGE, UPDATE or DELETE; `query` is the whole statement, see `batch.dml_plan`."""

    target: Name
    query: Query


@dataclass(frozen=True)
class Truncate(Statement):
    target: Name


ArgumentValue: TypeAlias = (
    str | int | float | bool | None | tuple["ArgumentValue", ...] | Mapping[str, str]
)
"""An argument of a procedure: a literal, `ARRAY[…]` or `MAP['k', 'v', …]`."""


@dataclass(frozen=True)
class Argument:
    """An argument of CALL; `name` is None for a positional argument."""

    name: str | None
    value: ArgumentValue


@dataclass(frozen=True)
class Call(Statement):
    """CALL [catalog.]sys.procedure(argument, name => argument, …)."""

    procedure: str
    arguments: tuple[Argument, ...]
    catalog: str | None = None


@dataclass(frozen=True)
class StatementSet(Statement):
    inserts: tuple[Insert, ...]
