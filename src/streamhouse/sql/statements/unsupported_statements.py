"""Unsupported statements of Flink and of similar engines, each with an alternative."""

from collections.abc import Mapping

from streamhouse.options import table_of
from streamhouse.sql.parser.token_cursor import Cursor

_TABLE = table_of(__package__, "unsupported_statements.toml")
UNSUPPORTED: Mapping[str, str] = _TABLE["statements"]


def refuse_object(cursor: Cursor, start: int) -> None:
    """Raise if CREATE, ALTER or DROP is followed by a known object that is not supported."""
    words = [cursor.peek(ahead) for ahead in range(3)]
    while words and words[0] in ("TEMPORARY", "SYSTEM", "UNIQUE", "EXTERNAL"):
        del words[0]
    if words and words[0] in _TABLE["objects"]:
        cursor.unsupported(_TABLE["objects"][words[0]], start)


def refuse_show(cursor: Cursor) -> None:
    """Raise if SHOW is followed by known words that are not supported."""
    pair = f"{cursor.peek()} {cursor.peek(1)}"
    message = _TABLE["shown"].get(pair) or _TABLE["shown"].get(cursor.peek())
    if message is not None:
        cursor.unsupported(message)


def refuse_described(cursor: Cursor) -> None:
    """Raise if DESCRIBE is followed by a known word that is not supported, and by a name.

    Without a name after it, the word is the name of a table.
    """
    named = cursor.peek(1) or cursor.index + 1 < len(cursor.tokens)
    if cursor.peek() in _TABLE["described"] and named and cursor.peek(1) != ".":
        cursor.unsupported(_TABLE["described"][cursor.peek()])
