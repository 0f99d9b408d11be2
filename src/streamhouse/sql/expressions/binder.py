"""Binds generated queries in DuckDB, without running them, to check them and get their types."""

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import TypeAlias

import duckdb
from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.expressions.sandboxed_connection import sandboxed
from streamhouse.sql.nesting_depth import TOO_DEEP
from streamhouse.sql.udf.registry import macros

Relations: TypeAlias = Mapping[str, Mapping[str, str]]
"""Relation name to its columns and their DuckDB types."""
Shapes: TypeAlias = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
_UNSUPPORTED = (
    "a part of this query is not supported; use the clauses that the guide describes, and the "
    "functions that SHOW FUNCTIONS lists"
)
_UNSUPPORTED_ERRORS = (
    duckdb.CatalogException,
    duckdb.InternalException,
    duckdb.NotImplementedException,
    duckdb.ParserException,
)
"""DuckDB errors that indicate an unsupported construct, not a mistake in the query."""
_DEPTH = "Max expression depth limit"
_NO_FUNCTION = re.compile(
    r"No function matches the given name and argument types '([^(]+)\((.*)\)'"
)


class BindError(ValueError):
    """DuckDB cannot bind the query; the message is its reason in one line.

    `unsupported`: the query itself may be valid, but DuckDB cannot express or run it.
    """

    def __init__(self, message: str, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


def generate(tree: exp.Expr) -> str:
    """The tree as DuckDB SQL, every name quoted; `BindError` for what DuckDB cannot express."""
    try:
        return tree.sql(
            dialect="duckdb", identify=True, comments=False, unsupported_level=ErrorLevel.RAISE
        )
    except UnsupportedError as error:
        raise BindError(_UNSUPPORTED, unsupported=True) from error
    except RecursionError:
        raise BindError(TOO_DEEP, unsupported=True) from None


def describe(sql: str, relations: Relations) -> list[tuple[str, DuckDBPyType]]:
    """Names and DuckDB types of a query's columns, over relations of the given types.

    Raises `BindError` if DuckDB cannot bind the query. Results are cached.
    """
    shapes = tuple((name, tuple(columns.items())) for name, columns in relations.items())
    return list(_described(sql, shapes))


@lru_cache(maxsize=256)
def _described(sql: str, relations: Shapes) -> list[tuple[str, DuckDBPyType]]:
    # Cached, since servers bind the same queries again.
    with sandboxed() as connection:
        for name, columns in relations:
            check_case([column for column, _ in columns])
            body = ", ".join(f"{quote(column)} {kind}" for column, kind in columns)
            connection.execute(f"CREATE TEMP TABLE {quote(name)} ({body})")
        for macro in macros(sql):
            connection.execute(macro)
        try:
            relation = connection.sql(sql)
        except duckdb.Error as error:
            if _DEPTH in str(error):
                raise BindError(TOO_DEEP, unsupported=True) from error
            if isinstance(error, _UNSUPPORTED_ERRORS):
                raise BindError(_UNSUPPORTED, unsupported=True) from error
            raise BindError(_reason(str(error))) from None
        if relation is None:
            raise BindError("the query returns no rows")
        return list(zip(relation.columns, relation.types, strict=True))


def check_case(columns: Iterable[str]) -> None:
    """Raise `BindError` for columns of one relation that DuckDB would take for one."""
    spellings: dict[str, str] = {}
    for column in columns:
        first_spelling = spellings.setdefault(column.lower(), column)
        if first_spelling != column:
            raise BindError(
                f"columns '{first_spelling}' and '{column}' differ only in case, which SQL "
                "here does not distinguish; rename one of them"
            )


@cache
def aggregate_names() -> frozenset[str]:
    """The names of DuckDB's aggregate functions, in lower case."""
    with sandboxed() as connection:
        kinds = connection.execute(
            "SELECT function_name FROM duckdb_functions() GROUP BY function_name "
            "HAVING bool_and(function_type = 'aggregate')"
        ).fetchall()
    return frozenset(name for (name,) in kinds) | {"histogram", "grouping", "grouping_id"}


def is_aggregate_function(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate function of DuckDB."""
    return isinstance(node, exp.AggFunc) or function_name(node) in aggregate_names()


def function_name(node: exp.Expr) -> str:
    """The name by which DuckDB calls the function of a node, in lower case; empty for others."""
    if isinstance(node, exp.AnonymousAggFunc | exp.Anonymous):
        return str(node.this).lower()
    if not isinstance(node, exp.Func) or isinstance(node, exp.Cast | exp.Case | exp.Query):
        return ""
    if isinstance(node, exp.Binary) and not isinstance(node, exp.AggFunc):
        return ""  # AND and other operators: their text may begin with a call.
    text, bracket, _ = node.sql(dialect="duckdb").partition("(")
    return text.strip('"').lower() if bracket else ""


def computes(sql: str) -> bool:
    """Whether DuckDB can compute an expression that reads no table; runs it."""
    with sandboxed() as connection:
        try:
            connection.execute(f"SELECT {sql}")
        except duckdb.Error:
            return False
    return True


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reason(text: str) -> str:
    """DuckDB's message without its error class, candidates and excerpt of the SQL."""
    first = text.split("\n", 1)[0]
    if "must be a constant expression" in first:
        return "ROUND and TRUNCATE of a DECIMAL take a literal as digits; CAST it to DOUBLE"
    wrong = _NO_FUNCTION.search(first)
    if wrong is not None:
        return f"'{wrong[1].upper()}' does not take ({wrong[2]}); add a CAST"
    first = re.sub(r"^(\w+ )+Error: ", "", first)
    return first.replace("You might need to add explicit type casts.", "Add a CAST.").strip()


def refusal(failure: ValueError) -> type[SqlError]:
    """`UnsupportedSqlError` for a limit of this project, `SqlError` for a mistake in the query."""
    limit = isinstance(failure, BindError) and failure.unsupported
    return UnsupportedSqlError if limit else SqlError
