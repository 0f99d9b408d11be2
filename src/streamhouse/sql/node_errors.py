"""Errors at a node of a parsed query, with the node's position in the script."""

from sqlglot import exp

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.text import Script, span


def position_of(script: Script, node: exp.Expr) -> tuple[int, int]:
    """Offsets (start, end exclusive) of a node in the script.

    For a node without a position: those of the nearest enclosing node that has one, or of the whole
    text.
    """
    current: exp.Expr | None = node
    while current is not None:
        offsets = span(current)
        if offsets:
            return offsets
        current = current.parent
    return len(script.text) - len(script.text.lstrip()), len(script.text)


def error(
    script: Script, node: exp.Expr, message: str, kind: type[SqlError] = SqlError
) -> SqlError:
    """An error that points at a node."""
    start, end = position_of(script, node)
    return script.error(message, start, end, kind)


def unsupported(script: Script, node: exp.Expr, message: str) -> SqlError:
    return error(script, node, message, UnsupportedSqlError)
