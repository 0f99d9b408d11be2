"""All supported Flink functions, each with a builder of its DuckDB expression.

Every entry of the tables has the least and greatest number of arguments and the builder. A function
that is not in `BUILDERS` is an error; no call is passed to DuckDB by name alone.
"""

from sqlglot import exp

from streamhouse.close_matches import closest
from streamhouse.options import table_of
from streamhouse.sql.functions import json, macros, texts, times
from streamhouse.sql.functions.expression_builders import (
    GROUP_ID,
    Args,
    ArgumentError,
    Build,
    Table,
    aggregate,
    any_null,
    call,
    cast,
    when,
)

REPLACEMENTS = table_of(__package__, "unsupported_functions.toml")
WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


def unknown(name: str) -> str:
    """The error message for an unsupported function, with a replacement or suggestion."""
    upper = name.upper()
    if upper.split("_", 1)[0] in WINDOW_TABLES:
        kind = upper.split("_", 1)[0]
        return f"{upper} is no function of a value; write FROM {kind}(TABLE t, DESCRIPTOR(ts), …)"
    replacement = REPLACEMENTS.get(upper)
    guess = closest(upper, known(), cutoff=0.7)
    hint = f"did you mean {guess}?" if guess else "use one that SHOW FUNCTIONS lists"
    return f"function '{name}' is not supported; {replacement or hint}"


def known() -> list[str]:
    """The names of all supported functions, sorted."""
    return sorted({*BUILDERS, "CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION",
                   "CEIL", "FLOOR", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP",
                   "JSON_ARRAY", "JSON_ARRAYAGG", "JSON_EXISTS", "JSON_OBJECT", "JSON_OBJECTAGG",
                   "JSON_QUERY", "JSON_VALUE", "LOCALTIME", "LOCALTIMESTAMP"})  # fmt: skip


def check_count(name: str, count: int, least: int, most: int | None) -> None:
    """Raise `ArgumentError` if a function takes another number of arguments than `count`."""
    if count < least or (most is not None and count > most):
        expected = str(least) if most == least else f"{least} to {most}"
        if most is None:
            expected = f"at least {least}"
        raise ArgumentError(f"{name} takes {expected} argument(s), not {count}")


def _checked(name: str, least: int, most: int | None, build: Build) -> Build:
    def builder(args: Args) -> exp.Expr:
        if args and isinstance(args[0], exp.Distinct) and most is not None and name != "COUNT":
            first, *rest = args[0].expressions
            args = [exp.Distinct(expressions=[first]), *rest, *args[1:]]
        check_count(name, len([arg for arg in args if arg is not None]), least, most)
        return build(args)

    return builder


def _percentile(args: Args) -> exp.Expr:
    if len(args) > 2:
        return aggregate("PERCENTILE", *args)
    if isinstance(args[0], exp.Distinct):
        value: exp.Expr = exp.Distinct(expressions=[cast(args[0].expressions[0], "DOUBLE")])
    else:
        value = cast(args[0], "DOUBLE")
    return exp.PercentileCont(this=value, expression=args[1])


def _grouping(args: Args) -> exp.Expr:
    return cast(exp.Grouping(expressions=args), "BIGINT")


def _group_id() -> exp.Expr:
    zero = cast(exp.Literal.number(0), "BIGINT")
    zero.meta[GROUP_ID] = True
    return zero


def _any_value(args: Args) -> exp.Expr:
    if isinstance(args[0], exp.Order):
        raise ArgumentError("ANY_VALUE takes no ORDER BY; write MAX_BY(x, key) or MIN_BY(x, key)")
    return exp.Max(this=args[0])


def _list(args: Args) -> exp.Expr:
    separator = args[1] if len(args) > 1 else exp.Literal.string(",")
    return exp.GroupConcat(this=args[0], separator=separator)


def _strict(name: str) -> Build:
    """Builds a call of DuckDB's function `name`; null if an argument is null."""
    return lambda args: any_null(args, call(name, *args))


def _round(args: Args) -> exp.Expr:
    return exp.Round(**dict(zip(("this", "decimals"), args, strict=False)))


def _digits(build: Build) -> Build:
    """Wrap the builder of ROUND or TRUNCATE: a literal NULL as number of digits gives null."""

    def rounded(args: Args) -> exp.Expr:
        null = len(args) > 1 and isinstance(_value(args[1]), exp.Null)
        return when(exp.false(), args[0]) if null else build(args)

    return rounded


def _value(node: exp.Expr) -> exp.Expr:
    return _value(node.this) if isinstance(node, exp.Cast | exp.Paren) else node


def _extreme(kind: type[exp.Expr]) -> Build:
    return lambda args: any_null(args, kind(this=args[0], expressions=args[1:]))


def _sort(args: Args) -> exp.Expr:
    """ARRAY_SORT(array[, ascending[, nulls first]])."""
    ascending = _constant(args[1], "the order") if len(args) > 1 else True
    first = _constant(args[2], "the place of nulls") if len(args) > 2 else ascending
    words = ("ASC" if ascending else "DESC", "NULLS FIRST" if first else "NULLS LAST")
    return call("LIST_SORT", args[0], *map(exp.Literal.string, words))


def _constant(node: exp.Expr, what: str) -> bool:
    if not isinstance(node, exp.Boolean):
        raise ArgumentError(f"{what} of ARRAY_SORT must be TRUE or FALSE", unsupported=True)
    return bool(node.this)


_VALUES: Table = {
    "ARRAY_CONCAT": (1, None, _strict("LIST_CONCAT")),
    "ARRAY_SORT": (1, 3, _sort),
    "GREATEST": (1, None, _extreme(exp.Greatest)),
    "LEAST": (1, None, _extreme(exp.Least)),
    "MAP_UNION": (1, None, _strict("MAP_CONCAT")),
    "ROUND": (1, 2, _digits(_round)),
    "ROW": (1, None, lambda args: call("ROW", *args)),
    "TRUNCATE": (1, 2, _digits(lambda args: call("TRUNC", *args))),
    "COALESCE": (1, None, lambda args: exp.Coalesce(this=args[0], expressions=args[1:])),
}
_AGGREGATES: Table = {
    "COUNT": (0, 1, lambda args: exp.Count(this=args[0] if args else exp.Star(), big_int=True)),
    "MIN": (1, 1, lambda args: exp.Min(this=args[0])),
    "MAX": (1, 1, lambda args: exp.Max(this=args[0])),
    "LISTAGG": (1, 2, _list),
    "ARRAY_AGG": (1, 1, lambda args: exp.ArrayAgg(this=args[0])),
    "PERCENTILE": (2, 3, _percentile),
    "COLLECT": (1, 1, lambda args: aggregate("COLLECT", *args)),
    "GROUPING": (1, None, _grouping),
    "GROUPING_ID": (1, None, _grouping),
    "GROUP_ID": (0, 0, lambda _: _group_id()),
}
_OF_OTHER_SYSTEMS: Table = {
    "ANY_VALUE": (1, 1, _any_value),
    "MEDIAN": (1, 1, lambda args: _percentile([args[0], exp.Literal.number("0.5")])),
    "STRING_AGG": (2, 2, _list),
}
"""Functions that other systems have and Flink lacks, by the names that most of them use."""
_TABLE: Table = {
    "TYPEOF": (1, 2, lambda args: exp.Typeof(this=args[0])),
    **macros.TABLE,
    **texts.TABLE,
    **json.TABLE,
    **_VALUES,
    **times.TABLE,
    **_AGGREGATES,
    **_OF_OTHER_SYSTEMS,
}

BUILDERS: dict[str, Build] = {
    name: _checked(name, least, most, build) for name, (least, most, build) in _TABLE.items()
}
