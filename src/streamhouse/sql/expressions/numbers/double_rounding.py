"""ROUND, TRUNCATE and CAST to DECIMAL of a DOUBLE, which Flink computes on its decimal text.

DuckDB rounds the binary value, which is a little more or less than the text. Its `ROUND(0.565, 2)`
is 0.56 and its `TRUNC(71.6, 2)` is 71.59; Flink's results are 0.57 and 71.6.
"""

from sqlglot import exp

from streamhouse.sql.functions import builtin_udfs
from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import cast
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.udf import function

_MOST_EXACT = 10**15
"""Integers below this are exact as DOUBLE."""
_SCALE = 18
"""Decimal places that hold all ties of numbers below `_MOST_EXACT`."""
_MOST_NODES = 20
"""A larger expression is not repeated: only a function that runs in Python rounds its result."""
_UNCHANGED = "WHEN ROUND(value, digits) = value THEN value"
"""The branch for a number that has no more than these digits."""
_IN_RANGE = f"ABS(value) * POW(10, (digits) + 1) < {_MOST_EXACT}"
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
    ifs = [
        _UNCHANGED,
        f"WHEN {_IN_RANGE} AND ROUND(value, (digits) + 1) <> value THEN ROUND(value, digits)",
    ]
    if isinstance(digits, exp.Literal) and digits.is_int and int(digits.name) < _SCALE:
        tie = f"ROUND(value::VARCHAR::DECIMAL(38, {_SCALE}), digits)::DOUBLE"
        ifs.append(f"WHEN {_IN_RANGE} THEN {tie}")
    cases = f"CASE {' '.join(ifs)} ELSE exact END"
    return filled(cases, value=value.copy(), digits=digits.copy(), exact=exact)


def truncated(node: exp.Anonymous) -> exp.Expr:
    """TRUNC(double, digits)."""
    value, digits = node.expressions
    exact = arrow_call("truncate_double", value, digits)
    if not is_repeatable(value):
        return exact
    parts = {"value": value.copy(), "digits": digits.copy(), "exact": exact}
    return filled(f"CASE {_UNCHANGED} ELSE exact END", **parts)


def decimal_source(value: exp.Expr) -> exp.Expr:
    """The operand of a cast from DOUBLE to DECIMAL: the decimal text, which DuckDB rounds."""
    return cast(value, "VARCHAR")


def is_repeatable(value: exp.Expr) -> bool:
    """Whether an expression is cheap, and the same, each time that it is computed for a row."""
    nodes = list(value.walk())
    return len(nodes) <= _MOST_NODES and not any(
        isinstance(node, exp.Query | exp.AggFunc)
        or (isinstance(node, exp.Anonymous) and node.name.lower().startswith(_PYTHON_CALLS))
        for node in nodes
    )
