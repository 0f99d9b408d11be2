"""INTERVAL literals of one unit or two, and their texts as Flink writes them.

Flink has year-month intervals and day-time intervals; DuckDB has one type for both. The units
written in an expression decide which one it is.
"""

import re
from decimal import Decimal

from sqlglot import exp

from streamhouse.sql.functions.expression_builders import ArgumentError, call
from streamhouse.sql.functions.macros import filled

MONTHS = ("MONTH", "QUARTER", "YEAR")
"""Units of year-month intervals; all other units are of day-time intervals."""
_WHOLE_DAYS = {"DAY", "WEEK", *MONTHS}
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_FIELD_MS = {
    "WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000,
    "MILLISECOND": 1,
}  # fmt: skip
_NUMBER = re.compile(r"\s*[+-]?\d+(\.\d+)?\s*")
_PATTERNS = {
    "DAY": r"(\d+)",
    "HOUR": r"(\d+)",
    "MINUTE": r"(\d+)",
    "SECOND": r"(\d+(?:\.\d{1,9})?)",
}
_BETWEEN = {"HOUR": " ", "MINUTE": ":", "SECOND": ":"}
_YEAR_MONTH = re.compile(r"\s*([+-]?)(\d+)-(\d+)\s*")


def of_two_units(text: str, first: str, second: str) -> exp.Expr:
    """INTERVAL 'text' first TO second; `ArgumentError` for a text that does not match the units."""
    if (first, second) == ("YEAR", "MONTH"):
        match = _YEAR_MONTH.fullmatch(text)
        if match is None or int(match[3]) > 11:
            raise ArgumentError(f"'{text}' is not a number of years and months, such as '2-10'")
        months = int(match[2]) * 12 + int(match[3])
        return _interval(-months if match[1] == "-" else months, "MONTH")
    indexes = [_FIELDS.index(name) for name in (first, second) if name in _FIELDS]
    if len(indexes) < 2 or indexes[0] >= indexes[1]:
        raise ArgumentError(
            f"{first} TO {second} are not valid INTERVAL units; write YEAR TO MONTH, or two of "
            f"{', '.join(_FIELDS)}, the larger one first"
        )
    units = _FIELDS[indexes[0] : indexes[1] + 1]
    pattern = _PATTERNS[first] + "".join(_BETWEEN[name] + _PATTERNS[name] for name in units[1:])
    match = re.fullmatch(rf"\s*([+-]?){pattern}\s*", text)
    if match is None:
        example = "10 12:30:59.123"
        raise ArgumentError(
            f"'{text}' is not an interval of {first} TO {second}, such as '{example}'"
        )
    sign = -1 if match[1] == "-" else 1
    days, millis = 0, 0
    for unit, value in zip(units, match.groups()[1:], strict=True):
        if unit == "DAY":
            days = sign * int(value)
        else:
            millis += sign * round(float(value) * _FIELD_MS[unit])
    # Days are a part of their own, so that EXTRACT finds them.
    return exp.Paren(
        this=exp.Add(this=_interval(days, "DAY"), expression=_interval(millis, "MILLISECOND"))
    )


def _interval(value: int, unit: str) -> exp.Interval:
    return exp.Interval(this=exp.Literal.string(str(value)), unit=exp.Var(this=unit))


def units(node: exp.Expr) -> set[str]:
    """The units of an expression that is an interval; empty for anything else."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        return units(inner.this)
    if isinstance(inner, exp.Add | exp.Sub):
        # Right side first: a chain of sums nests to the left, and each part of it gets this call.
        two = units(inner.right)
        one = units(inner.left) if two else set()
        return one | two if one else set()
    if not isinstance(inner, exp.Interval):
        return set()
    unit = inner.args.get("unit")
    return {unit.name.upper().removesuffix("S")} if isinstance(unit, exp.Var) else set()


def is_whole_days(node: exp.Expr) -> bool:
    """Whether an expression is an interval of days, months or years."""
    interval_units = units(node)
    return bool(interval_units) and interval_units <= _WHOLE_DAYS


def has_fraction(node: exp.Expr) -> bool:
    """Whether an interval has fractions of a second."""
    literals = (interval.this for interval in node.find_all(exp.Interval))
    return "MILLISECOND" in units(node) or any("." in literal.name for literal in literals)


def text(node: exp.Expr) -> exp.Expr | None:
    """The text of an interval, `+2-10` or `+10 00:00:00.004`; None for anything else."""
    interval_units = units(node)
    if not interval_units:
        return None
    if interval_units <= set(MONTHS):
        whole = filled("(DATE_PART('year', i) * 12 + DATE_PART('month', i))", i=node.copy())
        return _formatted("{}{}-{:02d}", whole, [12])
    millis = call("EPOCH_MS", node.copy())
    return _formatted("{}{} {:02d}:{:02d}:{:02d}.{:03d}", millis, [24, 60, 60, 1000])


def _formatted(pattern: str, whole: exp.Expr, sizes: list[int]) -> exp.Expr:
    """A sign and a number split into parts of these sizes, formatted by a DuckDB pattern."""
    rest, parts = "ABS(whole)::BIGINT", list[str]()
    for size in reversed(sizes):
        parts.insert(0, f"({rest} % {size})::BIGINT")
        rest = f"({rest} // {size})"
    sign = "CASE WHEN whole < 0 THEN '-' ELSE '+' END"
    text = f"FORMAT('{pattern}', {sign}, {rest}, {', '.join(parts)})::VARCHAR"
    return filled(text, whole=whole)


def milliseconds(node: exp.Expr) -> int | None:
    """The length of a constant day-time interval; None for any other expression."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        length = milliseconds(inner.this)
        return None if length is None else -length
    if isinstance(inner, exp.Add):
        one, two = milliseconds(inner.left), milliseconds(inner.right)
        return None if one is None or two is None else one + two
    size = _FIELD_MS.get(next(iter(units(inner)), "")) if isinstance(inner, exp.Interval) else None
    if size is None or not _NUMBER.fullmatch(inner.this.name):
        return None
    return int(Decimal(inner.this.name.strip()) * size)
