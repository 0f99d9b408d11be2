"""Flink's functions of time, each as what DuckDB shall compute.

A function of a DATE may give a DATE where that of a TIMESTAMP gives a TIMESTAMP. Types are not
known when a call is built, so it is marked, and `dated` makes it right once they are.
"""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql import timeformat
from streamhouse.sql.duck_calls import (
    Args,
    ArgumentError,
    Build,
    call,
    cast,
    literal_text,
    moment,
)

_DEFAULT_TIME = "yyyy-MM-dd HH:mm:ss"
_CLOCK_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR")
_DAY_UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_UNITS = (*_CLOCK_UNITS, *_DAY_UNITS)
_FIELDS = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "WEEK": "week", "DAY": "day",
    "DOY": "doy", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second", "DOW": "dow",
    "ISODOW": "isodow", "EPOCH": "epoch",
}  # fmt: skip
_OTHER_FIELDS = (
    "CENTURY", "DECADE", "ISOYEAR", "MICROSECOND", "MILLENNIUM", "MILLISECOND", "NANOSECOND",
)  # fmt: skip
"""Parts that Flink knows, too."""
_ROUNDED = ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "QUARTER", "YEAR")
_ARGUMENT, _DATED, _LENIENT = "moment", "dated", "lenient"


def _pattern(node: exp.Expr) -> exp.Expr:
    try:
        text = literal_text(node, "the date pattern")
        return exp.Literal.string(timeformat.strftime(text))
    except timeformat.PatternError as error:
        raise ArgumentError(str(error), unsupported=True) from None


def _unit(node: exp.Expr) -> str:
    unit = node.name.upper().removesuffix("S") if isinstance(node, exp.Column | exp.Var) else ""
    if unit not in _UNITS:
        raise ArgumentError(f"'{node.name}' is not a unit of time; known: {', '.join(_UNITS)}")
    return unit


def _argument(node: exp.Expr) -> exp.Cast:
    """A moment as a TIMESTAMP, which `dated` finds again."""
    tree = cast(node, "TIMESTAMP")
    tree.meta[_ARGUMENT] = True
    return tree


def _marked(tree: exp.Cast, unit: str) -> exp.Cast:
    """A TIMESTAMP that is a DATE if its argument is one: no unit is finer than a day."""
    if unit in _DAY_UNITS:
        tree.meta[_DATED] = True
    return tree


def lenient(node: exp.Cast) -> exp.Expr:
    """A typed cast that is to give null for a text that cannot be read."""
    if not node.meta.get(_LENIENT) or not node.this.is_type(*exp.DataType.TEXT_TYPES):
        return node
    tree = exp.TryCast(this=node.this, to=node.to)
    tree.meta["plain"] = True
    return tree


def may_be_date(node: exp.Cast) -> bool:
    """Whether a call is a DATE if its argument is one."""
    return bool(node.meta.get(_DATED))


def dated(node: exp.Cast) -> exp.Expr:
    """A call of a typed argument as a DATE, if that is what it is in Flink."""
    if not may_be_date(node):
        return node
    given = next((one for one in node.find_all(exp.Cast) if one.meta.get(_ARGUMENT)), None)
    if given is None or not given.this.unnest().is_type(exp.DType.DATE):
        return node
    return as_date(node)


def as_date(node: exp.Expr) -> exp.Expr:
    """A node of typed parts as a DATE, also for what is around it."""
    new = cast(node.copy(), "DATE")
    new.type = exp.DataType.build("DATE")
    return new


def is_day_step(node: exp.Expr) -> bool:
    """Whether a node is an INTERVAL of days, months or years."""
    inner = node.unnest()
    if not isinstance(inner, exp.Interval):
        return False
    unit = inner.args.get("unit")
    return isinstance(unit, exp.Var) and unit.name.upper().removesuffix("S") in _DAY_UNITS


def date_format(args: Args) -> exp.Expr:
    """What is no moment gives null, as in Flink."""
    given = cast(args[0], "TIMESTAMP")
    given.meta[_LENIENT] = True
    return cast(call("STRFTIME", given, _pattern(args[1])), "VARCHAR")


def to_timestamp(args: Args) -> exp.Expr:
    if len(args) == 1:
        tree = exp.TryCast(this=args[0], to=exp.DataType.build("TIMESTAMP"))
        tree.meta["plain"] = True
        return tree
    return cast(call("TRY_STRPTIME", args[0], _pattern(args[1])), "TIMESTAMP")


def to_date(args: Args) -> exp.Expr:
    return cast(to_timestamp(args), "DATE")


def difference(args: Args) -> exp.Expr:
    unit = exp.Literal.string(_unit(args[0]).lower())
    moments = [cast(arg, "TIMESTAMP") for arg in args[1:]]
    return cast(call("DATE_SUB", unit, *moments), "INT")


def days_between(args: Args) -> exp.Expr:
    """DATEDIFF(end, start)."""
    end, start = (cast(arg, "DATE") for arg in args)
    for one in (end, start):
        one.meta[_LENIENT] = True
    return cast(call("DATE_DIFF", exp.Literal.string("day"), start, end), "INT")


def add(args: Args) -> exp.Expr:
    unit = _unit(args[0])
    step = call(f"TO_{unit}S", args[1])
    return _marked(cast(exp.Add(this=_argument(args[2]), expression=step), "TIMESTAMP"), unit)


def field(part: str, shift: int = 0) -> Build:
    def build(args: Args) -> exp.Expr:
        return _part(part, cast(args[0], "TIMESTAMP"), shift)

    return build


def _part(part: str, value: exp.Expr, shift: int = 0) -> exp.Expr:
    tree: exp.Expr = call("DATE_PART", exp.Literal.string(part), value)
    if shift:
        tree = exp.Paren(this=exp.Add(this=tree, expression=exp.Literal.number(shift)))
    return cast(call("TRUNC", tree) if part == "epoch" else tree, "BIGINT")


def extract(node: exp.Extract) -> exp.Expr:
    """EXTRACT(part FROM moment); raises `ArgumentError` for an unknown part."""
    name = node.this.name.upper()
    if name not in _FIELDS:
        raise ArgumentError(
            f"EXTRACT knows no part '{node.this.name}'; use one of {', '.join(_FIELDS)}",
            unsupported=name in _OTHER_FIELDS,
        )
    return _part(_FIELDS[name], node.expression.copy(), shift=1 if name == "DOW" else 0)


def rounded(node: exp.Floor | exp.Ceil) -> exp.Expr:
    """FLOOR|CEIL(moment TO unit); raises `ArgumentError` for an unknown unit."""
    unit = node.args["to"].name.upper()
    if unit not in _ROUNDED:
        message = f"'{unit}' is not supported as the unit of FLOOR and CEIL; use one of "
        raise ArgumentError(message + ", ".join(_ROUNDED), unsupported=True)
    value = _argument(node.this.copy())
    down = call("DATE_TRUNC", exp.Literal.string(unit.lower()), value)
    if isinstance(node, exp.Floor):
        return _marked(cast(down, "TIMESTAMP"), unit)
    step = call(f"TO_{unit}S", exp.Literal.number(1))
    up = exp.Add(this=down.copy(), expression=step)
    exact = exp.EQ(this=down, expression=value.copy())
    whole = exp.Case(ifs=[exp.If(this=exact, true=value.copy())], default=up)
    return _marked(cast(whole, "TIMESTAMP"), unit)


def from_seconds(args: Args) -> exp.Expr:
    micros = exp.Mul(this=cast(args[0], "BIGINT"), expression=exp.Literal.number(1_000_000))
    pattern = _pattern(args[1] if len(args) > 1 else exp.Literal.string(_DEFAULT_TIME))
    return cast(call("STRFTIME", call("MAKE_TIMESTAMP", micros), pattern), "VARCHAR")


def unix_seconds(args: Args) -> exp.Expr:
    value = to_timestamp(args) if args else moment("LOCALTIMESTAMP")
    return _part("epoch", value)


def to_zoned(args: Args) -> exp.Expr:
    digits = args[1].name if len(args) > 1 and isinstance(args[1], exp.Literal) else "3"
    if digits not in ("0", "3"):
        raise ArgumentError("the precision of TO_TIMESTAMP_LTZ is 0 (seconds) or 3 (milliseconds)")
    factor = 1_000_000 if digits == "0" else 1_000
    micros = exp.Mul(this=cast(args[0], "BIGINT"), expression=exp.Literal.number(factor))
    return cast(call("MAKE_TIMESTAMP", micros), "TIMESTAMP")


def convert_tz(args: Args) -> exp.Expr:
    """A moment told in one zone, told in another."""
    told = exp.TryCast(this=args[0], to=exp.DataType.build("TIMESTAMP"))
    told.meta["plain"] = True
    there = call("TIMEZONE", args[2], call("TIMEZONE", args[1], told))
    return cast(call("STRFTIME", there, _pattern(exp.Literal.string(_DEFAULT_TIME))), "VARCHAR")
