"""Refuses parts of a parsed expression or query that are not supported here.

Each error has a position and suggests an alternative. The check runs before DuckDB sees the query:
DuckDB's parser accepts other syntax than Flink's, and its errors quote SQL that the user did not
write.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql import node_errors
from streamhouse.sql.functions.expression_builders import GENERATED
from streamhouse.sql.parser.strict_parser import ADVICE
from streamhouse.sql.text import Script, span
from streamhouse.sql.types import DECIMAL_SIZE, SIZES

_SCALARS = (
    exp.DType.BIGINT, exp.DType.BINARY, exp.DType.BOOLEAN, exp.DType.CHAR, exp.DType.DATE,
    exp.DType.DECIMAL, exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.INT, exp.DType.SMALLINT,
    exp.DType.TEXT, exp.DType.TIME, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPLTZ,
    exp.DType.TIMESTAMPNTZ, exp.DType.TINYINT, exp.DType.VARBINARY, exp.DType.VARCHAR,
)  # fmt: skip
_FLINK_NAMES = {
    exp.DType.STRUCT: "ROW",
    exp.DType.TEXT: "STRING",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
    exp.DType.TIMESTAMPTZ: "TIMESTAMP WITH TIME ZONE",
}
_ELEMENT_COUNTS = {exp.DType.ARRAY: 1, exp.DType.MAP: 2, exp.DType.STRUCT: None}
"""Types with element types, and how many these are; None: one or more."""
_SUPPORTED_TYPES = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), CHAR(n), VARCHAR(n), "
    "STRING, BINARY(n), BYTES, DATE, TIME, TIMESTAMP(p), TIMESTAMP_LTZ(p), ARRAY<…>, MAP<…, …>, "
    "ROW<…>"
)


def check(script: Script, tree: exp.Expr, start: int, end: int) -> None:
    """Raise for the first invalid part: `UnsupportedSqlError`, or `SqlError` for a mistake.

    `start` and `end` are the offsets of the whole text, for a part without a position of its own.
    """
    for node in tree.walk(bfs=False):
        message = None if node.meta.get(GENERATED) else ADVICE["nodes"].get(type(node).__name__)
        if message is None and isinstance(node, exp.DataType):
            message = _type_error(node)
        elif isinstance(node, exp.LimitOptions):
            message = _limit_error(node)
        error_class = SqlError if message is None else UnsupportedSqlError
        message = message or _syntax_mistake(node)
        if message is not None:
            has_position = any(span(ancestor) for ancestor in (node, *_ancestors(node)))
            offsets = node_errors.position_of(script, node) if has_position else (start, end)
            raise script.error(message, *offsets, error_class)


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _syntax_mistake(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Values):
        widths = {len(row.expressions) for row in node.expressions}
        if len(widths) > 1 or 0 in widths:
            return "each row of VALUES needs the same number of values, at least one"
    if isinstance(node, exp.Group) and not any(node.args.values()):
        return "GROUP BY needs an expression; name a column"
    if isinstance(node, exp.DataType) and node.this in _SCALARS:
        return _size_error(node.this, [part.name for part in node.expressions])
    return None


def _limit_error(node: exp.LimitOptions) -> str | None:
    if node.args.get("with_ties"):
        return "WITH TIES is not supported; number the rows with RANK, and filter by the number"
    if node.args.get("percent"):
        return "a LIMIT in percent is not supported; write a number of rows"
    return None


def _type_error(node: exp.DataType) -> str | None:
    parent = node.parent
    if isinstance(parent, exp.Cast) and parent.meta.get(GENERATED):
        # Part of how a function is computed, not of the user's text.
        return None
    kind = node.this
    if kind in _ELEMENT_COUNTS:
        element_count = _ELEMENT_COUNTS[kind]
        count = len(node.expressions)
        if count == 0 or (element_count is not None and count != element_count):
            return (
                f"type {_flink_name(kind)} needs its element types; write one of {_SUPPORTED_TYPES}"
            )
        return None
    if kind not in _SCALARS:
        return f"type {_flink_name(kind)} is not supported; write one of {_SUPPORTED_TYPES}"
    return None


def _flink_name(kind: object) -> str:
    if not isinstance(kind, exp.DType):
        return "INTERVAL"
    return _FLINK_NAMES.get(kind, kind.value)


def _size_error(kind: exp.DType, sizes: list[str]) -> str | None:
    if not sizes:
        return None
    numbers = [int(size) for size in sizes if size.isdigit()]
    if kind == exp.DType.DECIMAL:
        precision, scale = (*numbers, 0)[:2] if numbers else (0, 0)
        if len(numbers) == len(sizes) <= 2 and 1 <= precision <= 38 and scale <= precision:
            return None
        return DECIMAL_SIZE
    name = "TIMESTAMP" if kind == exp.DType.TIMESTAMPNTZ else _flink_name(kind)
    if name not in SIZES:
        return f"type {_flink_name(kind)} takes no size; leave it out"
    minimum, maximum = SIZES[name]
    if len(numbers) == len(sizes) == 1 and minimum <= numbers[0] <= maximum:
        return None
    given = f", not {sizes[0]}" if len(numbers) == len(sizes) == 1 else ""
    return f"the size of {_flink_name(kind)} must be from {minimum} to {maximum}{given}"
