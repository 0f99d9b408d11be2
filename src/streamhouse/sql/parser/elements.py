"""Elements that statements share: names, strings, lists of options, queries; moves a cursor."""

from collections.abc import Collection

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.literal_rows import LiteralRows
from streamhouse.sql.parser import query_parser
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Name
from streamhouse.sql.syntax import Query
from streamhouse.sql.udf.registry import declarations_in


def dotted_name(cursor: Cursor, what: str) -> Name:
    """A dotted name of at most three parts."""
    start = cursor.offset
    parts = [cursor.identifier(what)]
    while cursor.accept("."):
        parts.append(cursor.identifier(what))
    if len(parts) > 3:
        raise cursor.error(f"{what} has at most three parts: catalog.database.table", start)
    return tuple(parts)


def option_list(cursor: Cursor, offsets: dict[str, int] | None = None) -> dict[str, str]:
    """`('key' = 'value', …)`; an empty list is allowed; `offsets` gets each key's offset."""
    options: dict[str, str] = {}

    def option() -> None:
        offset = cursor.offset
        key = cursor.string("an option's key")
        if key in options:
            raise cursor.script.error(f"option '{key}' is given twice", offset)
        if offsets is not None:
            offsets[key] = offset
        cursor.expect("=")
        options[key] = cursor.string(f"the value of option '{key}'")

    cursor.wrapped(option, empty=True)
    return options


def identifiers(cursor: Cursor, what: str) -> tuple[str, ...]:
    """`(a, b, …)` of columns, each once."""
    start = cursor.offset
    names = tuple(cursor.wrapped(lambda: cursor.identifier(what)))
    check_distinct(cursor, names, start)
    return names


def check_distinct(cursor: Cursor, names: Collection[str], start: int) -> None:
    """Raise `SqlError` for a column that a list from `start` names twice."""
    if len(set(names)) < len(names):
        raise cursor.script.error("a column is named twice", start)


def partition_values(cursor: Cursor) -> dict[str, str]:
    """`(p = 'x', q = 1)`."""
    values: dict[str, str] = {}

    def value() -> None:
        start = cursor.offset
        name = cursor.identifier("a partition column")
        if name in values:
            raise cursor.script.error(f"column '{name}' is named twice", start)
        if not cursor.accept("="):
            cursor.fail(
                "expected a value, such as (p = 'x'); leave out columns whose values are in the "
                "rows"
            )
        if cursor.peek() in ("DATE", "TIMESTAMP"):
            cursor.take()
        if not cursor.at_kind(TokenType.STRING, TokenType.NUMBER):
            cursor.fail("expected the partition's value as a 'string' or a number")
        values[name] = cursor.take().text

    cursor.wrapped(value)
    return values


def if_not_exists(cursor: Cursor, replace: bool) -> bool:
    """Whether IF NOT EXISTS comes next, which OR REPLACE excludes."""
    start = cursor.offset
    found = cursor.accept("IF", "NOT", "EXISTS")
    if found and replace:
        raise cursor.script.error("IF NOT EXISTS contradicts OR REPLACE; leave out one", start)
    return found


def view_columns(cursor: Cursor, keyed: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`(a, b COMMENT '…', PRIMARY KEY (a) NOT ENFORCED)` of a view: its columns and its key.

    The comments are dropped; only a `keyed` view may have a key. Empty without a list.
    """
    columns: list[str] = []
    key: tuple[str, ...] = ()
    start = cursor.offset
    if not cursor.at("("):
        return (), ()

    def element() -> None:
        nonlocal key
        if keyed and cursor.accept("CONSTRAINT"):
            cursor.identifier("the constraint's name")
        if keyed and cursor.accept("PRIMARY", "KEY"):
            key = identifiers(cursor, "a key column")
            cursor.expect("NOT", "ENFORCED")
            return
        columns.append(cursor.identifier("a column"))
        if cursor.accept("COMMENT"):
            cursor.string("a comment")
        elif not cursor.at(",") and not cursor.at(")"):
            cursor.fail("a view's columns have no types of their own; expected ',' or ')'")

    cursor.wrapped(element)
    check_distinct(cursor, columns, start)
    return tuple(columns), key


def query(cursor: Cursor) -> Query:
    """The rest of the statement as a query; raises for an error in its syntax."""
    if cursor.done:
        cursor.fail("expected SELECT, WITH or VALUES")
    tokens = cursor.rest()
    if not isinstance(query_parser.parse_tokens(cursor.script, tokens), exp.Query | exp.Values):
        raise cursor.script.error_in(tokens, "expected SELECT, WITH or VALUES")
    return query_of(cursor, tokens)


def query_of(cursor: Cursor, tokens: list[Token], rows: LiteralRows | None = None) -> Query:
    """The tokens as a query, with the text before it on its line."""
    start, script = tokens[0].start, cursor.script
    position = script.position(start)
    prefix = script.text[start - position.column + 1 : start]
    return Query(cursor.text_of(tokens), position, prefix, rows, script.functions)


def checked_expression(cursor: Cursor, tokens: list[Token]) -> None:
    """Parse an expression, so that CREATE TABLE reports errors in it; refuse Python functions."""
    tree = query_parser.parse_tokens(cursor.script, cursor.lexed(tokens))
    for declaration in declarations_in(tree):
        raise cursor.script.error_in(
            tokens,
            "an expression of a table is stored with it, but function "
            f"'{declaration.name}' belongs only to the script; call it in the SELECT that "
            "reads the table, or in a temporary view",
        )
