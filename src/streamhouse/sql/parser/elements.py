"""Elements that statements share: names, strings, numbers and lists of options; moves a cursor."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Name


def identifier(cursor: Cursor, what: str) -> str:
    """A name, quoted with ` or a plain word."""
    token = cursor.current
    if token is None or not _is_name(token):
        cursor.fail(f"expected {what}")
    return cursor.take().text


def dotted_name(cursor: Cursor, what: str) -> Name:
    """A dotted name of at most three parts."""
    start = cursor.offset
    parts = [identifier(cursor, what)]
    while cursor.accept("."):
        parts.append(identifier(cursor, what))
    if len(parts) > 3:
        raise cursor.script.error(
            f"{what} has at most three parts: catalog.database.table",
            start,
            cursor.previous.end + 1,
        )
    return tuple(parts)


def string(cursor: Cursor, what: str) -> str:
    """The text of a `'string'`."""
    token = cursor.current
    if token is None or token.token_type != TokenType.STRING:
        cursor.fail(f"expected {what} as a 'string'")
    return cursor.take().text


def whole_number(cursor: Cursor, what: str) -> int:
    """A number of digits only."""
    token = cursor.current
    if token is None or token.token_type != TokenType.NUMBER or not token.text.isdigit():
        cursor.fail(f"expected {what} as a whole number")
    return int(cursor.take().text)


def option_list(cursor: Cursor, offsets: dict[str, int] | None = None) -> dict[str, str]:
    """`('key' = 'value', …)`; an empty list is allowed; `offsets` gets each key's offset."""
    cursor.expect("(")
    options: dict[str, str] = {}
    while not cursor.accept(")"):
        if options:
            cursor.expect(",")
        offset = cursor.offset
        key = string(cursor, "an option's key")
        if key in options:
            raise cursor.script.error(f"option '{key}' is given twice", offset)
        if offsets is not None:
            offsets[key] = offset
        cursor.expect("=")
        options[key] = string(cursor, f"the value of option '{key}'")
    return options


def identifiers(cursor: Cursor, what: str) -> tuple[str, ...]:
    """`(a, b, …)`."""
    cursor.expect("(")
    names = [identifier(cursor, what)]
    while cursor.accept(","):
        names.append(identifier(cursor, what))
    cursor.expect(")")
    return tuple(names)


def _is_name(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.HINT):
        return False
    return token.token_type == TokenType.IDENTIFIER or token.text.replace("$", "_").isidentifier()
