"""The Flink functions that exist here, each as what DuckDB shall compute.

Every entry gives the least and greatest number of arguments and how to build the call. A function
that is not in `BUILDERS` is an error; nothing is passed on by name alone.
"""

from __future__ import annotations

import re

from sqlglot import exp

from streamhouse.sql import time_functions as times
from streamhouse.sql.duck_calls import (
    MOMENTS,
    Args,
    ArgumentError,
    Build,
    call,
    cast,
    literal_text,
    moment,
    moment_name,
)
from streamhouse.sql.foreign_functions import instead
from streamhouse.sql.text import suggestion
from streamhouse.sql.time_functions import extract, rounded

__all__ = [
    "BUILDERS", "MOMENTS", "WINDOW_TABLES", "ArgumentError", "call", "cast", "extract", "instead",
    "known", "moment", "moment_name", "rounded", "unknown",
]  # fmt: skip

WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


def unknown(name: str) -> str:
    """The message for a function that does not exist here."""
    upper = name.upper()
    if upper.split("_", 1)[0] in WINDOW_TABLES:
        return (
            f"window function {upper} is not supported yet; write GROUP BY a part of the time, as "
            "FLOOR(t TO HOUR)"
        )
    way = instead(upper)
    guess = suggestion(upper, known(), cutoff=0.7)
    hint = f"did you mean {guess}?" if guess else "write it with those that SHOW FUNCTIONS lists"
    return f"function '{name}' is not supported; {way or hint}"


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


def _any_null(args: Args, otherwise: exp.Expr) -> exp.Expr:
    nulls = exp.or_(*(exp.Is(this=arg.copy(), expression=exp.Null()) for arg in args))
    return exp.Case(ifs=[exp.If(this=nulls, true=exp.Null())], default=otherwise)


def _extreme(kind: type[exp.Expr]) -> Build:
    return lambda args: _any_null(args, kind(this=args[0], expressions=args[1:]))


def _log(args: Args) -> exp.Expr:
    """LOG(x) is the natural logarithm, LOG(base, x) that to a base."""
    logs = [cast(call("LN", arg), "DOUBLE") for arg in reversed(args)]
    return logs[0] if len(logs) == 1 else exp.Paren(this=exp.Div(this=logs[0], expression=logs[1]))


def _concat(args: Args) -> exp.Expr:
    parts: list[exp.Expr] = [cast(arg, "VARCHAR") for arg in args]
    tree = parts[0]
    for part in parts[1:]:
        tree = exp.DPipe(this=tree, expression=part, safe=True)
    return exp.Paren(this=tree)


def _path(node: exp.Expr) -> exp.Expr:
    """A path of JSON without the word that says how strict it is: what is not there is null."""
    if isinstance(node, exp.Literal) and node.is_string:
        return exp.Literal.string(re.sub(r"^\s*(lax|strict)\s+", "", node.name))
    return node


def _json_value(args: Args) -> exp.Expr:
    """A scalar in a JSON text; null where there is none, or no JSON."""
    text, path = args[0], _path(args[1])
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
    text = re.sub(r"\$(\d)", r"\\\1", literal_text(args[2], "the replacement of REGEXP_REPLACE"))
    new = exp.Literal.string(text)
    return cast(call("REGEXP_REPLACE", args[0], args[1], new, exp.Literal.string("g")), "VARCHAR")


def _json_query(args: Args) -> exp.Expr:
    """An object or a list in a JSON text, as JSON."""
    text, path = args[0], _path(args[1])
    others = [exp.Literal.string(kind) for kind in ("OBJECT", "ARRAY")]
    kind = call("TRY", call("JSON_TYPE", text, path))
    found = call("TRY", call("JSON_EXTRACT", text.copy(), path.copy()))
    whole = exp.In(this=kind, expressions=others)
    return exp.Case(ifs=[exp.If(this=whole, true=cast(found, "VARCHAR"))])


def _json_exists(args: Args) -> exp.Expr:
    there = call("TRY", call("JSON_EXISTS", args[0], _path(args[1])))
    return exp.Coalesce(this=cast(there, "BOOLEAN"), expressions=[exp.false()])


def _all_of(pattern: str) -> Build:
    """Whether a text is made of nothing but what the pattern matches; false for a null."""

    def build(args: Args) -> exp.Expr:
        whole = call("REGEXP_FULL_MATCH", args[0], exp.Literal.string(pattern))
        return exp.Coalesce(this=cast(whole, "BOOLEAN"), expressions=[exp.false()])

    return build


def _sha2(args: Args) -> exp.Expr:
    if args[1].sql() != "256":
        raise ArgumentError("SHA2 takes a length of 256 only", unsupported=True)
    return cast(call("SHA256", args[0]), "VARCHAR")


def _base64(args: Args) -> exp.Expr:
    return cast(call("BASE64", call("ENCODE", args[0])), "VARCHAR")


def _from_base64(args: Args) -> exp.Expr:
    return cast(call("DECODE", call("FROM_BASE64", args[0])), "VARCHAR")


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
    "E": (0, 0, lambda _: cast(call("EXP", exp.Literal.number(1)), "DOUBLE")),
    "LOG": (1, 2, _log),
    "ASIN": (1, 1, _duck("ASIN", "DOUBLE")),
    "ACOS": (1, 1, _duck("ACOS", "DOUBLE")),
    "ATAN": (1, 1, _duck("ATAN", "DOUBLE")),
    "ATAN2": (2, 2, _duck("ATAN2", "DOUBLE")),
    "DEGREES": (1, 1, _duck("DEGREES", "DOUBLE")),
    "RADIANS": (1, 1, _duck("RADIANS", "DOUBLE")),
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
    "SHA2": (2, 2, _sha2),
    "HEX": (1, 1, _duck("HEX", "VARCHAR")),
    "TO_BASE64": (1, 1, _base64),
    "FROM_BASE64": (1, 1, _from_base64),
    "TRANSLATE": (3, 3, _duck("TRANSLATE", "VARCHAR")),
    "IS_ALPHA": (1, 1, _all_of("\\p{L}+")),
    "IS_DIGIT": (1, 1, _all_of("\\p{Nd}+")),
    "IS_DECIMAL": (1, 1, _all_of("[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)")),
    "STARTSWITH": (2, 2, _duck("STARTS_WITH", "BOOLEAN")),
    "ENDSWITH": (2, 2, _duck("ENDS_WITH", "BOOLEAN")),
    "SPLIT_INDEX": (3, 3, _split_index),
    "JSON_VALUE": (2, 2, _json_value),
    "JSON_QUERY": (2, 2, _json_query),
    "JSON_EXISTS": (2, 2, _json_exists),
    "REGEXP": (2, 2, _duck("REGEXP_MATCHES", "BOOLEAN")),
    "REGEXP_EXTRACT": (2, 3, _regexp_extract),
    "REGEXP_REPLACE": (3, 3, _regexp_replace),
    # choices
    "IF": (3, 3, _if),
    "COALESCE": (1, None, lambda a: exp.Coalesce(this=a[0], expressions=a[1:])),
    "IFNULL": (2, 2, lambda a: exp.Coalesce(this=a[0], expressions=a[1:])),
    "NVL": (2, 2, lambda a: exp.Coalesce(this=a[0], expressions=a[1:])),
    "NULLIF": (2, 2, _plain(exp.Nullif, "this", "expression")),
    # time
    "DATE_FORMAT": (2, 2, times.date_format),
    "TO_TIMESTAMP": (1, 2, times.to_timestamp),
    "TO_TIMESTAMP_LTZ": (1, 2, times.to_zoned),
    "TO_DATE": (1, 2, times.to_date),
    "TIMESTAMPDIFF": (3, 3, times.difference),
    "TIMESTAMPADD": (3, 3, times.add),
    "DATEDIFF": (2, 2, times.days_between),
    "FROM_UNIXTIME": (1, 2, times.from_seconds),
    "UNIX_TIMESTAMP": (0, 2, times.unix_seconds),
    "CONVERT_TZ": (3, 3, times.convert_tz),
    "YEAR": (1, 1, times.field("year")),
    "QUARTER": (1, 1, times.field("quarter")),
    "MONTH": (1, 1, times.field("month")),
    "WEEK": (1, 1, times.field("week")),
    "DAYOFYEAR": (1, 1, times.field("doy")),
    "DAYOFMONTH": (1, 1, times.field("day")),
    "DAYOFWEEK": (1, 1, times.field("dow", shift=1)),
    "HOUR": (1, 1, times.field("hour")),
    "MINUTE": (1, 1, times.field("minute")),
    "SECOND": (1, 1, times.field("second")),
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
    "VARIANCE": (1, 1, _plain(exp.Variance)),
    "FIRST_VALUE": (1, 1, _plain(exp.FirstValue)),
    "LAST_VALUE": (1, 1, _plain(exp.LastValue)),
    "LISTAGG": (1, 2, _list),
    "ROW_NUMBER": (0, 0, lambda _: exp.RowNumber()),
    "RANK": (0, 0, lambda _: exp.Rank()),
    "DENSE_RANK": (0, 0, lambda _: exp.DenseRank()),
    "LAG": (1, 3, _plain(exp.Lag, "this", "offset", "default")),
    "LEAD": (1, 3, _plain(exp.Lead, "this", "offset", "default")),
    "CARDINALITY": (1, 1, _duck("CARDINALITY", "INT")),
    "ROW": (1, None, lambda a: call("ROW", *a)),
    "ARRAY_CONTAINS": (2, 2, _duck("LIST_CONTAINS", "BOOLEAN")),
    "MAP_KEYS": (1, 1, lambda a: call("MAP_KEYS", *a)),
    "MAP_VALUES": (1, 1, lambda a: call("MAP_VALUES", *a)),
}

BUILDERS: dict[str, Build] = {
    name: _checked(name, least, most, build) for name, (least, most, build) in _TABLE.items()
}
