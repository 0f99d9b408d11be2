"""Exact division of decimals with Flink's result type, and the rounding of DOUBLE by its text.

DuckDB divides decimals as DOUBLE, which has about 16 digits. Here both sides become integers of up
to 38 digits, and the last digit of their quotient is rounded half up. DuckDB raises an error for a
longer number; no digit is lost silently.

DuckDB rounds the binary value of a DOUBLE, which differs a little from its decimal text. Its
`ROUND(0.565, 2)` is 0.56 and its `TRUNC(71.6, 2)` is 71.59; Flink's results are 0.57 and 71.6.
"""

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from streamhouse.sql.expressions import type_probe
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions import builtin_udfs
from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import cast
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.types import flink_type, number_digits
from streamhouse.sql.udf import function

_MOST, _LEAST_SCALE = 38, 6
_INTEGERS = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_REAL = ("float", "double", "null")
_MOST_EXACT = 10**15
"""Integers below this are exact as DOUBLE."""
_TIE_SCALE = 18
"""Decimal places that hold all ties of numbers below `_MOST_EXACT`."""
_MOST_NODES = 20
"""A larger expression is not repeated: only a function that runs in Python rounds its result."""
_UNCHANGED = "WHEN ROUND(value, digits) = value THEN value"
"""The branch for a number that has no more than these digits."""
_IN_RANGE = f"ABS(value) * POW(10, (digits) + 1) < {_MOST_EXACT}"
_PYTHON_CALLS = (builtin_udfs.PREFIX, function.PREFIX)


def divided(node: exp.Div, relations: Relations) -> exp.Expr | None:
    """Give a division, whose sides are translated and in parentheses, Flink's value and type.

    None if a type is unknown or cannot be divided.
    """
    if _is_real(node.left) or _is_real(node.right):
        return node
    kinds = type_probe.types(node, [node.left, node.right], relations)
    return None if kinds is None else _divided(node, kinds)


def average(total: exp.Expr, count: exp.Expr, scale: int) -> exp.Expr:
    """AVG of decimals: a sum divided by a count, a DECIMAL(38, max(6, scale)); null of a null sum.

    It is computed in Python: as a SQL expression it would repeat the sum a dozen times.
    """
    scale = max(_LEAST_SCALE, scale)
    mean = arrow_call("average", total, count, exp.Literal.number(scale))
    return cast(mean, f"DECIMAL({_MOST}, {scale})")


def result_type(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
    """Precision and scale of a quotient, from those of the dividend and the divisor."""
    scale = max(_LEAST_SCALE, one[1] + two[0] + 1)
    whole = one[0] - one[1] + two[1]
    if whole + scale <= _MOST:
        return whole + scale, scale
    return _MOST, max(_MOST - whole, min(scale, _LEAST_SCALE))


def _is_real(side: exp.Expr) -> bool:
    inner = side.unnest()
    return isinstance(inner, exp.Cast) and inner.to.is_type(exp.DType.DOUBLE, exp.DType.FLOAT)


def digits(kind: DuckDBPyType) -> tuple[int, int] | None:
    """Precision and scale of an integer or decimal type; None for any other."""
    if kind.id not in (*_INTEGERS, "decimal"):
        return None
    whole, fraction = number_digits(flink_type(kind))
    return whole + fraction, fraction


def _divided(node: exp.Div, kinds: list[DuckDBPyType]) -> exp.Expr | None:
    """A division of operands of these types; None for types that cannot be divided."""
    if all(kind.id in _INTEGERS for kind in kinds):
        return exp.Paren(this=exp.IntDiv(this=node.left, expression=node.right))
    one, two = (digits(kind) for kind in kinds)
    if one is None or two is None:
        is_number = all(kind.id in _REAL or digits(kind) is not None for kind in kinds)
        return node if is_number else None
    if max(one[1], two[1]) >= _MOST:
        return None
    return _quotient(node.left, node.right, one, two)


def _quotient(
    left: exp.Expr, right: exp.Expr, one: tuple[int, int], two: tuple[int, int]
) -> exp.Expr:
    precision, scale = result_type(one, two)
    # The number of digits that the quotient of the two integers lacks to the result's scale.
    lacking = scale - one[1] + two[1]
    ten, whole, dividend = f"'1{'0' * lacking}'::HUGEINT", "", "whole"
    if one[0] + lacking > _MOST:
        whole, dividend = f"(whole // divisor) * {ten} + ", "(whole % divisor)"
    shifted = f"({dividend} * {ten})"
    rounds_up = f"({shifted} % divisor) >= (divisor - ({shifted} % divisor))"
    increment = f"CASE WHEN {rounds_up} THEN 1 ELSE '0'::HUGEINT END"
    rounded = f"({whole}({shifted} // divisor) + {increment})"
    unit = f"'0.{'1'.zfill(scale)}'::DECIMAL({_MOST}, {scale})"
    return filled(
        f"(((SIGN(l) * SIGN(r)) * {rounded})::DECIMAL({_MOST}, 0) * {unit})"
        f"::DECIMAL({precision}, {scale})",
        l=left.copy(), r=right.copy(), whole=_magnitude(left, one),
        divisor=_magnitude(right, two),
    )  # fmt: skip


def _magnitude(side: exp.Expr, kind: tuple[int, int]) -> exp.Expr:
    """The digits of a number without its decimal point and sign, as a HUGEINT."""
    precision, scale = kind
    value = "value"
    if scale and precision + scale <= _MOST:
        # The factor has 38 digits, since DuckDB limits products of shorter decimals to 18 digits.
        value = f"(value * '1{'0' * scale}'::DECIMAL({_MOST}, 0))"
    elif scale:
        # The product would have too many digits; go by the text, which has all of them.
        value = "REPLACE(value::VARCHAR, '.', '')"
    return filled(f"ABS({value}::HUGEINT)", value=side.copy())


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
    if isinstance(digits, exp.Literal) and digits.is_int and int(digits.name) < _TIE_SCALE:
        tie = f"ROUND(value::VARCHAR::DECIMAL(38, {_TIE_SCALE}), digits)::DOUBLE"
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


def is_repeatable(value: exp.Expr) -> bool:
    """Whether an expression is cheap, and the same, each time that it is computed for a row."""
    nodes = list(value.walk())
    return len(nodes) <= _MOST_NODES and not any(
        isinstance(node, exp.Query | exp.AggFunc)
        or (isinstance(node, exp.Anonymous) and node.name.lower().startswith(_PYTHON_CALLS))
        for node in nodes
    )
