"""Builds DuckDB expressions for Flink's date and time functions.

Some functions return a DATE for a DATE, a TIME for a TIME and a TIMESTAMP for a TIMESTAMP. Types
are unknown when a call is built, so the call is marked, and `with_flink_type`
corrects its type later.
"""

import re
from collections.abc import Callable

from sqlglot import exp

from streamhouse.sql.functions import java_times
from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import (
    AS_IS,
    CURRENT_WATERMARK,
    INSTANT,
    VARIES,
    Args,
    ArgumentError,
    Table,
    call,
    cast,
    concat,
    current_time,
    from_local,
    instant,
    literal_text,
    number,
    to_local,
    try_cast,
    zone_marked,
)
from streamhouse.sql.functions.macros import filled

_DEFAULT_TIME = "yyyy-MM-dd HH:mm:ss"
_CLOCK_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR")
_DAY_UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_UNITS = (*_CLOCK_UNITS, *_DAY_UNITS)
_ODBC_UNIT = "SQL_TSI_"
_FIELDS = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "WEEK": "week", "DAY": "day",
    "DOY": "doy", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second", "DOW": "dow",
    "ISODOW": "isodow", "EPOCH": "epoch", "CENTURY": "century", "DECADE": "decade",
    "ISOYEAR": "isoyear", "MILLENNIUM": "millennium",
}  # fmt: skip
_NANOS = "COALESCE(TRY(_REMAINDER(EPOCH_NS(TRY_CAST(t AS TIMESTAMP_NS)), 1000)), 0)"
"""The nanoseconds beyond the microseconds of a timestamp; 0 if they are unknown."""
_FRACTIONS = {"MILLISECOND": 1_000_000, "MICROSECOND": 1_000, "NANOSECOND": 1}
"""Fields that are fractions of a second, and their units in nanoseconds."""
_ROUNDED = {
    **{unit: f"TO_{unit}S" for unit in (*_CLOCK_UNITS, "DAY", "WEEK", "MONTH", "YEAR", "DECADE")},
    "QUARTER": "TO_QUARTERS",
    "CENTURY": "TO_CENTURIES",
    "MILLENNIUM": "TO_MILLENNIA",
}
"""Units of FLOOR and CEIL, and DuckDB's function that makes an interval of n units."""
_ARGUMENT, _CLOCK, _DATED, _LENIENT = "timestamp", "clock", "dated", "lenient"
_TYPE, _DAYS = "argument type", "days"


_MONTHS_BACK = (
    "DATE_SUB('month', first::DATE, last::DATE) - CASE WHEN"
    " (first::DATE + TO_MONTHS(DATE_SUB('month', first::DATE, last::DATE)::INT))::DATE"
    " = last::DATE AND last::TIME < first::TIME THEN 1 ELSE 0 END"
)
"""The months to an earlier timestamp, as Flink counts them.

Those between the dates, and one more if these are whole months and `last` has an earlier time.
"""
_FLOORS = {
    "WEEK": "(DATE_TRUNC('week', value + TO_DAYS(1))::TIMESTAMP - TO_DAYS(1))",
    **{
        unit: f"(DATE_TRUNC('{unit.lower()}', value - TO_YEARS(1))::TIMESTAMP + TO_YEARS(1))"
        for unit in ("CENTURY", "MILLENNIUM")
    },
}
"""Truncates to a unit as Flink does: weeks start on Sunday, centuries with years such as 2001.

In DuckDB weeks start on Monday, and centuries with years such as 2000.
"""


def _strftime(node: exp.Expr) -> exp.Expr | None:
    """A literal Java pattern as DuckDB's; None if only the Python functions can apply it."""
    if not (isinstance(node, exp.Literal) and node.is_string):
        return None
    text = java_times.strftime(node.name)
    return None if text is None else exp.Literal.string(text)


def _checked(node: exp.Expr, check: Callable[[str], object]) -> exp.Expr:
    """A pattern for the Python functions; `ArgumentError` for a literal one that they reject."""
    if isinstance(node, exp.Literal):
        check(literal_text(node, "the date pattern"))
    return node


def _text(timestamp: exp.Expr, nanos: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    """Format a TIMESTAMP by a Java pattern; `nanos` are the nanoseconds beyond its microseconds."""
    strftime_pattern = _strftime(pattern)
    if strftime_pattern is not None:
        return cast(call("STRFTIME", timestamp, strftime_pattern), "VARCHAR")
    pattern = _checked(pattern, java_times.parts)
    return arrow_call("format_time", call("EPOCH_US", timestamp), nanos, pattern)


def _unit(node: exp.Expr) -> str:
    unit = node.name.upper().removesuffix("S") if isinstance(node, exp.Column | exp.Var) else ""
    unit = unit.removeprefix(_ODBC_UNIT)
    if unit not in _UNITS:
        raise ArgumentError(f"'{node.name}' is not a unit of time; known: {', '.join(_UNITS)}")
    return unit


def _argument(node: exp.Expr) -> exp.Cast:
    """The timestamp argument of a call cast to TIMESTAMP, marked for `with_flink_type`."""
    tree = cast(node, "TIMESTAMP")
    tree.meta[_ARGUMENT] = True
    return tree


def _marked(tree: exp.Cast, unit: str) -> exp.Cast:
    """Mark a TIMESTAMP call whose type `with_flink_type` corrects to that of its argument.

    For a TIME it becomes a TIME; for a DATE it becomes a DATE if the unit is a day or longer.
    """
    tree.meta[_DATED] = unit in (*_DAY_UNITS, "DECADE", "CENTURY", "MILLENNIUM")
    return tree


def of_text(node: exp.Cast) -> exp.Expr:
    """Make a cast of a text strict; a marked one gives null for a text that cannot be parsed."""
    if not node.this.is_type(*exp.DataType.TEXT_TYPES):
        return node
    text = strict_text(node.this, node.to)
    if node.meta.get(_LENIENT):
        return try_cast(text, node.to)
    node.set("this", text)
    return node


_DAY = "[0-9]{1,2}-[0-9]{1,2}"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_MINUTES = ":[0-5]?[0-9]"
_HOUR = "(?:[01]?[0-9]|2[0-3])"
_DATE_FORM = f"(?: +({_YEAR}-{_DAY}) *|({_YEAR}-{_DAY})(?: .*)?)"
_TIME_FORM = f" *({_HOUR}{_MINUTES}(?:{_MINUTES}(?:[.][0-9]*)?)?) *"
_HOUR_FORM = f" *({_HOUR}) *"
_CLOCK_FORM = f" (?:{_HOUR}{_MINUTES}{_MINUTES}|24:00:00)"
_DIGITS = {exp.DType.TIMESTAMP_MS: 3, exp.DType.TIMESTAMP_NS: 9}
"""The digits after the seconds that a type has, if not 6; DuckDB would round the others."""


def strict_text(text: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """A text for a cast to DATE, TIME or TIMESTAMP that fails for texts which only DuckDB reads.

    Such are `infinity`, `epoch`, years before 1 or after 9999, `(BC)` and time zones. They get a
    quote before them.
    """
    if kind.is_type(exp.DType.DATE):
        return in_form(text, _DATE_FORM, "\\1\\2")
    if kind.is_type(exp.DType.TIME):
        clock = in_form(text, _TIME_FORM, "\\1")
        return in_form(clock, f'"{_HOUR_FORM}', "\\1:00", quote="")
    if not kind.is_type(*TIMESTAMPS):
        return text
    digits = _DIGITS.get(kind.this, 6)
    fraction = f"(?:([.][0-9]{{0,{digits}}})[0-9]{{0,{9 - digits}}})?"
    return in_form(text, f"({_YEAR}-{_DAY})(?:({_CLOCK_FORM}){fraction})?", "\\1\\2\\3")


def in_form(text: exp.Expr, form: str, new: str, quote: str = '"') -> exp.Expr:
    """The parts `new` of a text of a form; any other text with a quote before it."""
    string = exp.Literal.string
    if isinstance(text, exp.Literal) and VARIES not in text.meta and re.fullmatch(form, text.name):
        return string(re.sub(form, re.sub(r"\\(\d)", r"\\g<\1>", new), text.name))
    quoted = exp.Paren(this=concat(string(quote), text)) if quote else text
    return call("REGEXP_REPLACE", quoted, string(f"(?s)^{quote}{form}$"), string(new))


TIMESTAMPS = (
    exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMP_MS, exp.DType.TIMESTAMP_NS,
    exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ,
)  # fmt: skip


def on_epoch_day(clock: exp.Expr) -> exp.Expr:
    """A TIME as a TIMESTAMP on 1970-01-01, which DuckDB cannot cast."""
    tree = filled("('1970-01-01'::DATE + clock)::TIMESTAMP", clock=clock)
    tree.meta[_CLOCK] = True
    return tree


def clock_of(node: exp.Expr) -> exp.Expr | None:
    """The TIME from which `on_epoch_day` made a TIMESTAMP; None for any other node."""
    clock: exp.Expr | None = node.this.unnest().expression if node.meta.get(_CLOCK) else None
    return clock


def argument(node: exp.Expr) -> exp.Expr | None:
    """The timestamp argument of a call whose type depends on it; None for any other node."""
    if not isinstance(node, exp.Cast) or _DATED not in node.meta:
        return None
    return next((each.this for each in node.find_all(exp.Cast) if each.meta.get(_ARGUMENT)), None)


def note_type(node: exp.Cast, kind: exp.DataType) -> None:
    """Note the type of the argument of a call, for `with_flink_type`; other casts stay."""
    if node.meta.get(_ARGUMENT):
        node.meta[_TYPE] = kind.this


def with_flink_type(node: exp.Expr, zoned: bool) -> exp.Expr:
    """Cast a marked call to DATE or TIME where Flink returns that; if `zoned` to TIMESTAMP_LTZ."""
    if _DATED not in node.meta:
        return node
    marker = next((each for each in node.find_all(exp.Cast) if _TYPE in each.meta), None)
    kind = None if marker is None else marker.meta[_TYPE]
    if zoned and marker is not None and kind in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ):
        if node.meta.get(_DAYS):
            return zone_marked(_as(node, "TIMESTAMPTZ"), INSTANT)
        # Within a day, rounding moves an instant as far as its local time.
        moved = exp.Paren(this=exp.Sub(this=node.copy(), expression=marker.copy()))
        return _as(exp.Add(this=marker.this.copy(), expression=moved), "TIMESTAMPTZ")
    if kind == exp.DType.TIME:
        return _as(node, "TIME")
    return as_date(node) if node.meta[_DATED] and kind == exp.DType.DATE else node


def as_date(node: exp.Expr) -> exp.Expr:
    """Cast a node to DATE, and set its type for the nodes around it."""
    return _as(node, "DATE")


def _as(node: exp.Expr, kind: str) -> exp.Cast:
    new = cast(node.copy(), kind)
    new.type = exp.DataType.build(kind)
    return new


def date_format(args: Args) -> exp.Expr:
    """DATE_FORMAT(timestamp, pattern); a text that is no timestamp gives null, as in Flink."""
    timestamp_argument = cast(args[0], "TIMESTAMP")
    timestamp_argument.meta[_LENIENT] = True
    return _text(timestamp_argument, filled(_NANOS, t=args[0].copy()), args[1])


_DAY_LETTERS = (frozenset("yMd"), frozenset("uMd"), frozenset("yD"), frozenset("uD"))


def _timestamp(args: Args) -> exp.Expr:
    """A text parsed to a TIMESTAMP(6) by an optional pattern; null if it cannot be parsed."""
    if len(args) == 1:
        return try_cast(args[0], "TIMESTAMP")
    text, pattern = args
    strftime_pattern = _strftime(pattern)
    if strftime_pattern is not None and any(
        letters <= set(re.sub("'[^']*'", "", pattern.name)) for letters in _DAY_LETTERS
    ):
        special = exp.Literal.string("(?is)^\\s*(?:[+-]?infinity|epoch|0000).*|.*\\S\\s\\s+\\S.*")
        text = call("REGEXP_REPLACE", text, special, exp.Literal.string(""))
        return cast(call("TRY_STRPTIME", text, strftime_pattern), "TIMESTAMP")
    # DuckDB takes missing parts of the date from 1900-01-01, Flink from 1970-01-01.
    return arrow_call("parse_time", text, _checked(pattern, java_times.check_readable))


def to_timestamp(args: Args) -> exp.Expr:
    """TO_TIMESTAMP: a TIMESTAMP(3), truncated to milliseconds, as in Flink."""
    return in_millis(_timestamp(args))


def in_millis(timestamp: exp.Expr) -> exp.Expr:
    """A TIMESTAMP truncated to milliseconds."""
    return filled("DATE_TRUNC('milliseconds', time)::TIMESTAMP_MS", time=timestamp)


def to_date(args: Args) -> exp.Expr:
    return try_cast(args[0], "DATE") if len(args) == 1 else cast(_timestamp(args), "DATE")


_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def difference(args: Args) -> exp.Expr:
    """TIMESTAMPDIFF(unit, start, end)."""
    name = _unit(args[0])
    first, last = (zone_marked(cast(arg, "TIMESTAMP"), AS_IS) for arg in args[1:])
    whole = filled(f"DATE_SUB('{name.lower()}', first, last)::INT", first=first, last=last)
    if name not in _MONTHS:
        return whole
    return filled(
        "(CASE WHEN last < first"
        f" THEN ((({_MONTHS_BACK}) // {_MONTHS[name]}))::INT ELSE whole END)",
        first=first.copy(), last=last.copy(), whole=whole,
    )  # fmt: skip


def days_between(args: Args) -> exp.Expr:
    """DATEDIFF(end, start)."""
    days = [cast(arg, "DATE") for arg in reversed(args)]
    for day in days:
        day.meta[_LENIENT] = True
    return cast(call("DATE_DIFF", exp.Literal.string("day"), *days), "INT")


def add(args: Args) -> exp.Expr:
    unit = _unit(args[0])
    step = call(f"TO_{unit}S", args[1])
    # An instant stays in UTC, so that a step has its length.
    moment = zone_marked(_argument(args[2]), AS_IS)
    return _marked(cast(exp.Add(this=moment, expression=step), "TIMESTAMP"), unit)


def _part(part: str, value: exp.Expr, shift: int = 0) -> exp.Expr:
    tree: exp.Expr = call("DATE_PART", exp.Literal.string(part), value)
    if shift:
        tree = exp.Paren(this=exp.Add(this=tree, expression=number(shift)))
    return cast(call("TRUNC", tree) if part == "epoch" else tree, "BIGINT")


def _fraction(part: str, source: exp.Expr) -> exp.Expr:
    """EXTRACT of a fraction of a second; DuckDB's fields would include the whole seconds."""
    micros = filled("_REMAINDER(EPOCH_US(source::TIMESTAMP), 1000000)", source=source)
    nanos, more = ("micros * 1000", number(0))
    if part == "NANOSECOND":
        nanos, more = "micros * 1000 + more", filled(_NANOS, t=source.copy())
    return filled(f"(({nanos}) // {_FRACTIONS[part]})::BIGINT", micros=micros, more=more)


def extract(node: exp.Extract) -> exp.Expr:
    """EXTRACT(part FROM timestamp); raises `ArgumentError` for an unknown part."""
    name = node.this.name.upper()
    value = node.expression.copy()
    if name in _FRACTIONS:
        return _fraction(name, value)
    if name not in _FIELDS:
        fields = ", ".join((*_FIELDS, *_FRACTIONS))
        raise ArgumentError(f"EXTRACT has no field '{node.this.name}'; use one of {fields}")
    return _part(_FIELDS[name], cast(value, "TIMESTAMP"), shift=1 if name == "DOW" else 0)


def rounded(node: exp.Floor | exp.Ceil) -> exp.Expr:
    """FLOOR|CEIL(timestamp TO unit); raises `ArgumentError` for an unknown unit."""
    unit = node.args["to"].name.upper()
    if unit not in _ROUNDED:
        message = f"'{unit}' is not a unit of FLOOR and CEIL; use one of "
        raise ArgumentError(message + ", ".join(_ROUNDED))
    value = _argument(node.this.copy())
    down = filled(_FLOORS.get(unit, f"DATE_TRUNC('{unit.lower()}', value)"), value=value)
    if isinstance(node, exp.Floor):
        return _rounded(down, unit)
    up = f"down + {_ROUNDED[unit]}(1)"
    nearest = f"CASE WHEN down = value THEN value ELSE {up} END"
    return _rounded(filled(nearest, down=down, value=value.copy()), unit)


def _rounded(value: exp.Expr, unit: str) -> exp.Cast:
    tree = _marked(cast(value, "TIMESTAMP"), "DAY")
    tree.meta[_DAYS] = unit not in _CLOCK_UNITS
    return tree


def from_seconds(args: Args) -> exp.Expr:
    time = filled("MAKE_TIMESTAMP(seconds::BIGINT * 1000000)", seconds=args[0])
    pattern = args[1] if len(args) > 1 else exp.Literal.string(_DEFAULT_TIME)
    return _text(to_local(time), number(0), pattern)


_LEAST_MS, _MOST_MS = -62167219200000, 253402300799999
"""Years 0 to 9999, in milliseconds since 1970; otherwise Flink's TO_TIMESTAMP_LTZ is null."""


def to_zoned(args: Args) -> exp.Expr:
    digits = args[1].name if len(args) > 1 and isinstance(args[1], exp.Literal) else "3"
    if digits not in ("0", "3"):
        raise ArgumentError("TO_TIMESTAMP_LTZ takes the precision 0 (seconds) or 3 (milliseconds)")
    factor = 1_000 if digits == "0" else 1
    # The number of seconds may be an INT, and that of milliseconds none any more.
    tried_ms = f"TRY_CAST(TRUNC(((value) * {factor}::BIGINT)::DOUBLE) AS BIGINT)"
    within = f"{tried_ms} BETWEEN {_LEAST_MS} AND {_MOST_MS}"
    text = f"CASE WHEN {within} THEN MAKE_TIMESTAMP({tried_ms} * 1000) END"
    return instant(filled(text, value=args[0]))


def overlaps(node: exp.Overlaps) -> exp.Expr:
    """(start, end or interval) OVERLAPS (…): whether two periods have a point in time in common."""
    ends = []
    for side in (node.this, node.expression):
        if not isinstance(side, exp.Tuple) or len(side.expressions) != 2:
            raise ArgumentError("OVERLAPS takes (start, end) or (start, INTERVAL …) on both sides")
        start, end = (expression.copy() for expression in side.expressions)
        first = cast(start, "TIMESTAMP")
        if end.unnest().find(exp.Interval):
            end = exp.Paren(this=exp.Add(this=first.copy(), expression=end))
        last = cast(end, "TIMESTAMP")
        kinds = (exp.Least, exp.Greatest)
        ends.append([kind(this=first.copy(), expressions=[last.copy()]) for kind in kinds])
    (start0, end0), (start1, end1) = ends
    return filled("(e0 >= s1 AND e1 >= s0)", s0=start0, e0=end0, s1=start1, e1=end1)


def _epoch(args: Args) -> exp.Expr:
    now = current_time("CURRENT_TIMESTAMP")
    return _part("epoch", from_local(_timestamp(args)) if args else now)


TABLE: Table = {
    "DATE_FORMAT": (2, 2, date_format),
    "TO_TIMESTAMP": (1, 2, to_timestamp),
    "TO_TIMESTAMP_LTZ": (1, 2, to_zoned),
    "TO_DATE": (1, 2, to_date),
    "TIMESTAMPDIFF": (3, 3, difference),
    "TIMESTAMPADD": (3, 3, add),
    "DATEDIFF": (2, 2, days_between),
    "FROM_UNIXTIME": (1, 2, from_seconds),
    "UNIX_TIMESTAMP": (0, 2, _epoch),
    "CURRENT_WATERMARK": (1, 1, lambda args: call(CURRENT_WATERMARK, *args)),
    "PROCTIME": (0, 0, lambda _: current_time("PROCTIME")),
    "NOW": (0, 0, lambda _: current_time("CURRENT_TIMESTAMP")),
    "CURRENT_ROW_TIMESTAMP": (0, 0, lambda _: current_time("CURRENT_TIMESTAMP")),
}
