"""The Flink functions that exist here, each as what DuckDB shall compute.

Every entry gives the least and greatest number of arguments and how to build the call. A function
that is not in `BUILDERS` is an error; nothing is passed on by name alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from streamhouse.sql import timeformat
from streamhouse.sql.text import suggestion

Args = list[exp.Expr]
Build = Callable[[Args], exp.Expr]

MOMENTS = ("PROCTIME", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "LOCALTIME")
_MOMENT = "__moment_"
_DEFAULT_TIME = "yyyy-MM-dd HH:mm:ss"
_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK")
_LONG_UNITS = ("MONTH", "QUARTER", "YEAR")

WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


class ArgumentError(ValueError):
    """A call with arguments that the function does not take; the text is the message."""

    def __init__(self, message: str, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


def moment(name: str) -> exp.Expr:
    """The time of the batch (or of the bounded query), as the function `name` gives it."""
    return exp.Anonymous(this=_MOMENT + name)


def moment_name(node: exp.Expr | None) -> str | None:
    """Which of `MOMENTS` a node is, if it is one."""
    if isinstance(node, exp.Anonymous) and str(node.this).startswith(_MOMENT):
        return str(node.this).removeprefix(_MOMENT)
    return None


def cast(node: exp.Expr, kind: str) -> exp.Expr:
    """A cast that only tells the type of a DuckDB call or makes it so."""
    tree = exp.Cast(this=node, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta["plain"] = True
    return tree


def call(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(args))


def unknown(name: str) -> str:
    """The message for a function that does not exist here."""
    upper = name.upper()
    if upper in WINDOW_TABLES:
        return (
            f"window function {upper} is not supported yet; write GROUP BY a part of the time, as "
            "FLOOR(t TO HOUR)"
        )
    guess = suggestion(upper, known())
    hint = f"did you mean {guess}?" if guess else "see the reference for the supported functions"
    return f"function '{name}' is not supported; {hint}"


def known() -> list[str]:
    """The names of all functions, sorted."""
    return sorted({*BUILDERS, "CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION",
                   "CEIL", "FLOOR", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP",
                   "LOCALTIME", "LOCALTIMESTAMP"})  # fmt: skip


def _checked(name: str, least: int, most: int | None, build: Build) -> Build:
    def builder(args: Args) -> exp.Expr:
        count = len([arg for arg in args if arg is not None])
        if count < least or (most is not None and count > most):
            wanted = str(least) if most == least else f"{least} to {most or 'any number of'}"
            raise ArgumentError(f"{name} takes {wanted} argument(s), not {count}")
        return build(args)

    return builder


def _plain(kind: type[exp.Expr], *names: str) -> Build:
    """A function that sqlglot knows under a class, its arguments by position."""

    def build(args: Args) -> exp.Expr:
        return kind(**dict(zip(names or ("this",), args, strict=False)))

    return build


def _duck(name: str, result: str) -> Build:
    """DuckDB's function of the same meaning, with its result type."""
    return lambda args: cast(call(name, *args), result)


def _text(node: exp.Expr, what: str) -> str:
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise ArgumentError(f"{what} must be a string literal", unsupported=True)
    return str(node.this)


def _pattern(node: exp.Expr) -> exp.Expr:
    try:
        return exp.Literal.string(timeformat.strftime(_text(node, "the date pattern")))
    except timeformat.PatternError as error:
        raise ArgumentError(str(error), unsupported=True) from None


def _unit(node: exp.Expr) -> str:
    unit = node.name.upper().removesuffix("S") if isinstance(node, exp.Column | exp.Var) else ""
    if unit not in (*_UNITS, *_LONG_UNITS):
        raise ArgumentError(
            f"'{node.name}' is not a unit of time; known: {', '.join((*_UNITS, *_LONG_UNITS))}"
        )
    return unit


def _any_null(args: Args, otherwise: exp.Expr) -> exp.Expr:
    nulls = exp.or_(*(exp.Is(this=arg.copy(), expression=exp.Null()) for arg in args))
    return exp.Case(ifs=[exp.If(this=nulls, true=exp.Null())], default=otherwise)


def _extreme(kind: type[exp.Expr]) -> Build:
    return lambda args: _any_null(args, kind(this=args[0], expressions=args[1:]))


def _concat(args: Args) -> exp.Expr:
    parts = [cast(arg, "VARCHAR") for arg in args]
    tree = parts[0]
    for part in parts[1:]:
        tree = exp.DPipe(this=tree, expression=part, safe=True)
    return exp.Paren(this=tree)


def _date_format(args: Args) -> exp.Expr:
    return cast(call("STRFTIME", cast(args[0], "TIMESTAMP"), _pattern(args[1])), "VARCHAR")


def _to_timestamp(args: Args) -> exp.Expr:
    if len(args) == 1:
        tree = exp.TryCast(this=args[0], to=exp.DataType.build("TIMESTAMP"))
        tree.meta["plain"] = True
        return tree
    return cast(call("TRY_STRPTIME", args[0], _pattern(args[1])), "TIMESTAMP")


def _to_date(args: Args) -> exp.Expr:
    return cast(_to_timestamp(args), "DATE")


def _difference(args: Args) -> exp.Expr:
    unit = exp.Literal.string(_unit(args[0]).lower())
    moments = [cast(arg, "TIMESTAMP") for arg in args[1:]]
    return cast(call("DATE_SUB", unit, *moments), "INT")


def _add(args: Args) -> exp.Expr:
    step = call(f"TO_{_unit(args[0])}S", args[1])
    return cast(exp.Add(this=cast(args[2], "TIMESTAMP"), expression=step), "TIMESTAMP")


def _field(part: str, shift: int = 0) -> Build:
    def build(args: Args) -> exp.Expr:
        return _part(part, cast(args[0], "TIMESTAMP"), shift)

    return build


def _part(part: str, value: exp.Expr, shift: int = 0) -> exp.Expr:
    tree = call("DATE_PART", exp.Literal.string(part), value)
    if shift:
        tree = exp.Paren(this=exp.Add(this=tree, expression=exp.Literal.number(shift)))
    return cast(call("TRUNC", tree) if part == "epoch" else tree, "BIGINT")


_FIELDS = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "WEEK": "week", "DAY": "day",
    "DOY": "doy", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second", "DOW": "dow",
    "ISODOW": "isodow", "EPOCH": "epoch",
}  # fmt: skip


def extract(node: exp.Extract) -> exp.Expr:
    """EXTRACT(part FROM moment); raises `ArgumentError` for an unknown part."""
    name = node.this.name.upper()
    if name not in _FIELDS:
        raise ArgumentError(
            f"EXTRACT knows no part '{node.this.name}'; known: {', '.join(_FIELDS)}"
        )
    return _part(_FIELDS[name], node.expression.copy(), shift=1 if name == "DOW" else 0)


def rounded(node: exp.Floor | exp.Ceil) -> exp.Expr:
    """FLOOR|CEIL(moment TO unit); raises `ArgumentError` for an unknown unit."""
    unit = node.args["to"].name.upper()
    if unit not in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "QUARTER", "YEAR"):
        raise ArgumentError(f"'{unit}' is not supported as the unit of FLOOR and CEIL", True)
    value = cast(node.this.copy(), "TIMESTAMP")
    down = call("DATE_TRUNC", exp.Literal.string(unit.lower()), value)
    if isinstance(node, exp.Floor):
        return cast(down, "TIMESTAMP")
    step = call(f"TO_{unit}S", exp.Literal.number(1))
    up = exp.Add(this=down.copy(), expression=step)
    exact = exp.EQ(this=down, expression=value.copy())
    return cast(exp.Case(ifs=[exp.If(this=exact, true=value.copy())], default=up), "TIMESTAMP")


def _from_seconds(args: Args) -> exp.Expr:
    micros = exp.Mul(this=cast(args[0], "BIGINT"), expression=exp.Literal.number(1_000_000))
    pattern = _pattern(args[1] if len(args) > 1 else exp.Literal.string(_DEFAULT_TIME))
    return cast(call("STRFTIME", call("MAKE_TIMESTAMP", micros), pattern), "VARCHAR")


def _unix_seconds(args: Args) -> exp.Expr:
    value = _to_timestamp(args) if args else moment("LOCALTIMESTAMP")
    return _part("epoch", value)


def _to_zoned(args: Args) -> exp.Expr:
    digits = args[1].name if len(args) > 1 and isinstance(args[1], exp.Literal) else "3"
    if digits not in ("0", "3"):
        raise ArgumentError("the precision of TO_TIMESTAMP_LTZ is 0 (seconds) or 3 (milliseconds)")
    factor = 1_000_000 if digits == "0" else 1_000
    micros = exp.Mul(this=cast(args[0], "BIGINT"), expression=exp.Literal.number(factor))
    return cast(call("MAKE_TIMESTAMP", micros), "TIMESTAMP")


def _convert_tz(args: Args) -> exp.Expr:
    """A moment told in one zone, told in another."""
    told = exp.TryCast(this=args[0], to=exp.DataType.build("TIMESTAMP"))
    told.meta["plain"] = True
    there = call("TIMEZONE", args[2], call("TIMEZONE", args[1], told))
    return cast(call("STRFTIME", there, _pattern(exp.Literal.string(_DEFAULT_TIME))), "VARCHAR")


def _json_value(args: Args) -> exp.Expr:
    """A scalar in a JSON text; null where there is none, or no JSON."""
    text, path = args
    others = [exp.Literal.string(kind) for kind in ("OBJECT", "ARRAY")]
    kind = call("TRY", call("JSON_TYPE", text, path))
    found = call("TRY", call("JSON_EXTRACT_STRING", text.copy(), path.copy()))
    scalar = exp.Not(this=exp.In(this=kind, expressions=others))
    return exp.Case(ifs=[exp.If(this=scalar, true=cast(found, "VARCHAR"))])


def _split_index(args: Args) -> exp.Expr:
    index = exp.Add(this=exp.Paren(this=args[2]), expression=exp.Literal.number(1))
    return cast(call("LIST_EXTRACT", call("STRING_SPLIT", args[0], args[1]), index), "VARCHAR")


def _regexp_extract(args: Args) -> exp.Expr:
    group = args[2] if len(args) > 2 else exp.Literal.number(0)
    found = cast(call("REGEXP_EXTRACT", args[0], args[1], group), "VARCHAR")
    matches = call("REGEXP_MATCHES", args[0].copy(), args[1].copy())
    return exp.Case(ifs=[exp.If(this=matches, true=found)])


def _regexp_replace(args: Args) -> exp.Expr:
    text = re.sub(r"\$(\d)", r"\\\1", _text(args[2], "the replacement of REGEXP_REPLACE"))
    new = exp.Literal.string(text)
    return cast(call("REGEXP_REPLACE", args[0], args[1], new, exp.Literal.string("g")), "VARCHAR")


def _count(args: Args) -> exp.Expr:
    return exp.Count(this=args[0] if args else exp.Star(), big_int=True)


def _if(args: Args) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=args[0], true=args[1])], default=args[2])


def _truncate(args: Args) -> exp.Expr:
    return call("TRUNC", *args)


def _list(args: Args) -> exp.Expr:
    separator = args[1] if len(args) > 1 else exp.Literal.string(",")
    return exp.GroupConcat(this=args[0], separator=separator)


_TABLE: dict[str, tuple[int, int | None, Build]] = {
    # numbers
    "ABS": (1, 1, _plain(exp.Abs)),
    "MOD": (2, 2, lambda a: exp.Mod(this=exp.Paren(this=a[0]), expression=exp.Paren(this=a[1]))),
    "ROUND": (1, 2, _plain(exp.Round, "this", "decimals")),
    "TRUNCATE": (1, 2, _truncate),
    "POWER": (2, 2, _duck("POW", "DOUBLE")),
    "SQRT": (1, 1, _duck("SQRT", "DOUBLE")),
    "EXP": (1, 1, _duck("EXP", "DOUBLE")),
    "LN": (1, 1, _duck("LN", "DOUBLE")),
    "LOG2": (1, 1, _duck("LOG2", "DOUBLE")),
    "LOG10": (1, 1, _duck("LOG10", "DOUBLE")),
    "SIN": (1, 1, _duck("SIN", "DOUBLE")),
    "COS": (1, 1, _duck("COS", "DOUBLE")),
    "TAN": (1, 1, _duck("TAN", "DOUBLE")),
    "PI": (0, 0, _duck("PI", "DOUBLE")),
    "SIGN": (1, 1, _duck("SIGN", "INT")),
    "CEILING": (1, 1, _plain(exp.Ceil)),
    "GREATEST": (1, None, _extreme(exp.Greatest)),
    "LEAST": (1, None, _extreme(exp.Least)),
    # strings
    "UPPER": (1, 1, _plain(exp.Upper)),
    "LOWER": (1, 1, _plain(exp.Lower)),
    "LTRIM": (1, 2, _duck("LTRIM", "VARCHAR")),
    "RTRIM": (1, 2, _duck("RTRIM", "VARCHAR")),
    "BTRIM": (1, 2, _duck("TRIM", "VARCHAR")),
    "SUBSTR": (2, 3, _plain(exp.Substring, "this", "start", "length")),
    "CHAR_LENGTH": (1, 1, _duck("LENGTH", "INT")),
    "CHARACTER_LENGTH": (1, 1, _duck("LENGTH", "INT")),
    "CONCAT": (1, None, _concat),
    "CONCAT_WS": (2, None, _duck("CONCAT_WS", "VARCHAR")),
    "REPLACE": (3, 3, _duck("REPLACE", "VARCHAR")),
    "REVERSE": (1, 1, _duck("REVERSE", "VARCHAR")),
    "REPEAT": (2, 2, _duck("REPEAT", "VARCHAR")),
    "LEFT": (2, 2, _duck("LEFT", "VARCHAR")),
    "RIGHT": (2, 2, _duck("RIGHT", "VARCHAR")),
    "LPAD": (3, 3, _duck("LPAD", "VARCHAR")),
    "RPAD": (3, 3, _duck("RPAD", "VARCHAR")),
    "INSTR": (2, 2, _duck("INSTR", "INT")),
    "LOCATE": (2, 2, lambda a: cast(call("INSTR", a[1], a[0]), "INT")),
    "ASCII": (1, 1, _duck("ASCII", "INT")),
    "CHR": (1, 1, _duck("CHR", "VARCHAR")),
    "MD5": (1, 1, _duck("MD5", "VARCHAR")),
    "SHA1": (1, 1, _duck("SHA1", "VARCHAR")),
    "SHA256": (1, 1, _duck("SHA256", "VARCHAR")),
    "STARTSWITH": (2, 2, _duck("STARTS_WITH", "BOOLEAN")),
    "ENDSWITH": (2, 2, _duck("ENDS_WITH", "BOOLEAN")),
    "SPLIT_INDEX": (3, 3, _split_index),
    "JSON_VALUE": (2, 2, _json_value),
    "REGEXP": (2, 2, _duck("REGEXP_MATCHES", "BOOLEAN")),
    "REGEXP_EXTRACT": (2, 3, _regexp_extract),
    "REGEXP_REPLACE": (3, 3, _regexp_replace),
    # choices
    "IF": (3, 3, _if),
    "COALESCE": (1, None, lambda a: exp.Coalesce(this=a[0], expressions=a[1:])),
    "IFNULL": (2, 2, lambda a: exp.Coalesce(this=a[0], expressions=a[1:])),
    "NULLIF": (2, 2, _plain(exp.Nullif, "this", "expression")),
    # time
    "DATE_FORMAT": (2, 2, _date_format),
    "TO_TIMESTAMP": (1, 2, _to_timestamp),
    "TO_TIMESTAMP_LTZ": (1, 2, _to_zoned),
    "TO_DATE": (1, 2, _to_date),
    "TIMESTAMPDIFF": (3, 3, _difference),
    "TIMESTAMPADD": (3, 3, _add),
    "FROM_UNIXTIME": (1, 2, _from_seconds),
    "UNIX_TIMESTAMP": (0, 2, _unix_seconds),
    "CONVERT_TZ": (3, 3, _convert_tz),
    "YEAR": (1, 1, _field("year")),
    "QUARTER": (1, 1, _field("quarter")),
    "MONTH": (1, 1, _field("month")),
    "WEEK": (1, 1, _field("week")),
    "DAYOFYEAR": (1, 1, _field("doy")),
    "DAYOFMONTH": (1, 1, _field("day")),
    "DAYOFWEEK": (1, 1, _field("dow", shift=1)),
    "HOUR": (1, 1, _field("hour")),
    "MINUTE": (1, 1, _field("minute")),
    "SECOND": (1, 1, _field("second")),
    "PROCTIME": (0, 0, lambda _: moment("PROCTIME")),
    "NOW": (0, 0, lambda _: moment("CURRENT_TIMESTAMP")),
    "CURRENT_ROW_TIMESTAMP": (0, 0, lambda _: moment("CURRENT_TIMESTAMP")),
    # aggregates and windows
    "COUNT": (0, 1, _count),
    "SUM": (1, 1, _plain(exp.Sum)),
    "AVG": (1, 1, _plain(exp.Avg)),
    "MIN": (1, 1, _plain(exp.Min)),
    "MAX": (1, 1, _plain(exp.Max)),
    "STDDEV_POP": (1, 1, _plain(exp.StddevPop)),
    "STDDEV_SAMP": (1, 1, _plain(exp.StddevSamp)),
    "VAR_POP": (1, 1, _plain(exp.VariancePop)),
    "VAR_SAMP": (1, 1, _plain(exp.Variance)),
    "FIRST_VALUE": (1, 1, _plain(exp.FirstValue)),
    "LAST_VALUE": (1, 1, _plain(exp.LastValue)),
    "LISTAGG": (1, 2, _list),
    "ROW_NUMBER": (0, 0, lambda _: exp.RowNumber()),
    "RANK": (0, 0, lambda _: exp.Rank()),
    "DENSE_RANK": (0, 0, lambda _: exp.DenseRank()),
    "LAG": (1, 3, _plain(exp.Lag, "this", "offset", "default")),
    "LEAD": (1, 3, _plain(exp.Lead, "this", "offset", "default")),
    "CARDINALITY": (1, 1, _duck("CARDINALITY", "INT")),
}

BUILDERS: dict[str, Build] = {
    name: _checked(name, least, most, build) for name, (least, most, build) in _TABLE.items()
}
