"""Which values can be compared, and comparisons with NaN.

Flink compares values of one family of types, and a text with a time. It compares a text with a
number only by `<` and the like, as whole numbers; such a comparison is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.functions import times
from streamhouse.sql.functions.expression_builders import call, cast
from streamhouse.sql.text import Script

OPERATORS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)
_REALS = (exp.DType.FLOAT, exp.DType.DOUBLE)
_NUMBERS = (*exp.DataType.INTEGER_TYPES, *_REALS, exp.DType.DECIMAL)
_TIMES = (exp.DType.DATE, exp.DType.TIME, *times.TIMESTAMPS)
_FAMILIES = (
    (exp.DType.BOOLEAN,), _NUMBERS, (exp.DType.TIME,), (exp.DType.DATE, *times.TIMESTAMPS),
    (exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB), (exp.DType.ARRAY, exp.DType.LIST),
    (exp.DType.MAP,), (exp.DType.STRUCT,),
)  # fmt: skip


def operands(node: exp.In | exp.Between | exp.Binary) -> list[exp.Expr]:
    """The values that IN, BETWEEN or IS DISTINCT FROM compares."""
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    return [node.this, *(node.expressions if isinstance(node, exp.In) else [node.expression])]


def check(script: Script, values: Sequence[exp.Expr]) -> None:
    """Raise `SqlError` for values that are not comparable, and cast texts to the type of times."""
    values = [value for value in values if not isinstance(value, exp.Any | exp.All)]
    kinds = [value.type for value in values if value.type is not None]
    families = {family for family in _FAMILIES for kind in kinds if kind.is_type(*family)}
    if len(families) > 1:
        names = " and ".join(dict.fromkeys(kind.sql("duckdb") for kind in kinds))
        message = f"{names} are not comparable; CAST one of them"
        raise node_errors.error(script, values[0], message)
    texts = [value for value in values if _is_text(value)]
    for other in kinds if texts else ():
        if other.is_type(exp.DType.BOOLEAN, *_NUMBERS):
            message = "a string is not compared with a number or BOOLEAN; CAST one of them"
            raise node_errors.error(script, texts[0], message)
        if other.is_type(*_TIMES):
            for text in texts:
                kind = exp.DataType(this=other.this)
                new = cast(times.strict_text(text.copy(), kind), kind)
                new.type = new.to
                text.replace(new)
            return


def _is_text(value: exp.Expr) -> bool:
    """Whether a value is a text, but no literal, which DuckDB converts to any type."""
    literal = isinstance(value.unnest(), exp.Literal)
    return not literal and value.is_type(*exp.DataType.TEXT_TYPES)


def without_nan(node: exp.Binary | exp.In) -> exp.Expr:
    """Make comparisons with NaN false, except `<>`; for DuckDB NaN is the greatest number."""
    if isinstance(node, exp.In):
        return _unless_nan(node, node.this) if node.this.is_type(*_REALS) else node
    if not (node.left.is_type(*_REALS) or node.right.is_type(*_REALS)):
        return node
    side = node.right if isinstance(node, exp.LT | exp.LTE) else node.left
    if isinstance(side.unnest(), exp.Literal):
        side = node.left if side is node.right else node.right
        if not isinstance(node, exp.EQ | exp.NEQ):
            return node
    if isinstance(node, exp.NEQ):
        return exp.Paren(this=exp.Or(this=node.copy(), expression=_is_nan(side)))
    return _unless_nan(node, side)


def _unless_nan(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.And(this=node.copy(), expression=exp.Not(this=_is_nan(value))))


def _is_nan(value: exp.Expr) -> exp.Expr:
    return cast(call("ISNAN", cast(value.copy(), "DOUBLE")), "BOOLEAN")
