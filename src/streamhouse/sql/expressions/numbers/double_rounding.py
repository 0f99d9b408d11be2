"""ROUND, TRUNCATE and CAST to DECIMAL of a DOUBLE, which Flink computes on its decimal text.

DuckDB rounds the binary value, which is a little more or less than the text. Its `ROUND(0.565, 2)`
is 0.56 and its `TRUNC(71.6, 2)` is 71.59; Flink's results are 0.57 and 71.6.
"""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql.functions import builtin_udfs
from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import call, cast, number
from streamhouse.sql.udf import function

_MOST_EXACT = 10**15
"""Integers below this are exact as DOUBLE."""
_SCALE = 18
"""Decimal places that hold all ties of numbers below `_MOST_EXACT`."""
_MOST_NODES = 20
"""A larger expression is not repeated: only a function that runs in Python rounds its result."""
_PYTHON_CALLS = (builtin_udfs.PREFIX, function.PREFIX)


def rounded(node: exp.Round) -> exp.Expr:
    """ROUND(double, digits).

    Only a number with exactly one digit more can have a tie, and needs the decimal text.
    """
    value, digits = node.this, node.args.get("decimals")
    if digits is None:
        return node
    exact = arrow_call("round_double", value, digits)
    if not is_repeatable(value):
        return exact
    more = exp.Add(this=exp.Paren(this=digits.copy()), expression=number(1))
    size = exp.Mul(this=exp.Abs(this=value.copy()), expression=call("POW", number(10), more))
    in_range = exp.LT(this=size, expression=number(_MOST_EXACT))
    no_tie = exp.NEQ(this=call("ROUND", value.copy(), more.copy()), expression=value.copy())
    plain = call("ROUND", value.copy(), digits.copy())
    ifs = [
        _unchanged(value, digits),
        exp.If(this=exp.and_(in_range, no_tie), true=plain),
    ]
    if isinstance(digits, exp.Literal) and digits.is_int and int(digits.name) < _SCALE:
        text = decimal_source(value.copy())
        tie = call("ROUND", cast(text, f"DECIMAL(38, {_SCALE})"), digits.copy())
        ifs.append(exp.If(this=in_range.copy(), true=cast(tie, "DOUBLE")))
    return exp.Case(ifs=ifs, default=exact)


def truncated(node: exp.Anonymous) -> exp.Expr:
    """TRUNC(double, digits)."""
    value, digits = node.expressions
    exact = arrow_call("truncate_double", value, digits)
    if not is_repeatable(value):
        return exact
    return exp.Case(ifs=[_unchanged(value, digits)], default=exact)


def decimal_source(value: exp.Expr) -> exp.Expr:
    """The operand of a cast from DOUBLE to DECIMAL: the decimal text, which DuckDB rounds."""
    return cast(value, "VARCHAR")


def is_repeatable(value: exp.Expr) -> bool:
    """Whether an expression is cheap, and the same, each time that it is computed for a row."""
    nodes = list(value.walk())
    return len(nodes) <= _MOST_NODES and not any(
        isinstance(node, exp.Query | exp.AggFunc) or _runs_in_python(node) for node in nodes
    )


def _runs_in_python(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower().startswith(_PYTHON_CALLS)


def _unchanged(value: exp.Expr, digits: exp.Expr) -> exp.If:
    """The branch for a number that has no more than these digits."""
    same = exp.EQ(this=call("ROUND", value.copy(), digits.copy()), expression=value.copy())
    return exp.If(this=same, true=value.copy())
