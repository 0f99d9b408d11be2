"""All supported Flink functions, each with a builder of its DuckDB expression.

Every entry of the tables has the least and greatest number of arguments and the builder. A function
that is not in `BUILDERS` is an error; no call is passed to DuckDB by name alone.
"""

from __future__ import annotations

from sqlglot import exp

from streamhouse.close_matches import closest
from streamhouse.sql.functions import array_functions, json, numbers, texts, times
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
    plain,
    when,
)
from streamhouse.sql.functions.unsupported_functions import replacement_for

WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


def unknown(name: str) -> str:
    """The error message for an unsupported function, with a replacement or suggestion."""
    upper = name.upper()
    if upper.split("_", 1)[0] in WINDOW_TABLES:
        kind = upper.split("_", 1)[0]
        return f"{upper} is no function of a value; write FROM {kind}(TABLE t, DESCRIPTOR(ts), …)"
    replacement = replacement_for(upper)
    guess = closest(upper, known(), cutoff=0.7)
    hint = f"did you mean {guess}?" if guess else "use one that SHOW FUNCTIONS lists"
    return f"function '{name}' is not supported; {replacement or hint}"


def known() -> list[str]:
    """The names of all supported functions, sorted."""
    return sorted({*BUILDERS, "CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION",
                   "CEIL", "FLOOR", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP",
                   "JSON_ARRAY", "JSON_ARRAYAGG", "JSON_OBJECT", "JSON_OBJECTAGG",
                   "LOCALTIME", "LOCALTIMESTAMP"})  # fmt: skip


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


def _count(args: Args) -> exp.Expr:
    return exp.Count(this=args[0] if args else exp.Star(), big_int=True)


def _coalesce(args: Args) -> exp.Expr:
    return exp.Coalesce(this=args[0], expressions=args[1:])


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


def _at_extreme(kind: type[exp.Expr]) -> Build:
    """MIN_BY, MAX_BY: the value at an extreme of a key; of equal keys, the extreme value."""

    def build(args: Args) -> exp.Expr:
        value, key = args
        pair = any_null([key, value], call("ROW", key.copy(), value.copy()))
        return kind(this=value, expression=pair)

    return build


def _any_value(args: Args) -> exp.Expr:
    if isinstance(args[0], exp.Order):
        raise ArgumentError("ANY_VALUE takes no ORDER BY; write MAX_BY(x, key) or MIN_BY(x, key)")
    return exp.Max(this=args[0])


def _within(kind: type[exp.Expr]) -> Build:
    """PERCENTILE_CONT, PERCENTILE_DISC: their values are in WITHIN GROUP (ORDER BY …)."""
    return lambda args: kind(this=args[0])


def _list(args: Args) -> exp.Expr:
    separator = args[1] if len(args) > 1 else exp.Literal.string(",")
    return exp.GroupConcat(this=args[0], separator=separator)


_CHOICES: Table = {
    "IF": (3, 3, lambda args: when(*args)),
    "COALESCE": (1, None, _coalesce),
    "IFNULL": (2, 2, _coalesce),
    "NVL": (2, 2, _coalesce),
    "NULLIF": (2, 2, plain(exp.Nullif, "this", "expression")),
}
_AGGREGATES: Table = {
    "COUNT": (0, 1, _count),
    "SUM": (1, 1, plain(exp.Sum)),
    "AVG": (1, 1, plain(exp.Avg)),
    "MIN": (1, 1, plain(exp.Min)),
    "MAX": (1, 1, plain(exp.Max)),
    "STDDEV": (1, 1, plain(exp.StddevSamp)),
    "STDDEV_POP": (1, 1, plain(exp.StddevPop)),
    "STDDEV_SAMP": (1, 1, plain(exp.StddevSamp)),
    "COVAR_POP": (2, 2, plain(exp.CovarPop, "this", "expression")),
    "COVAR_SAMP": (2, 2, plain(exp.CovarSamp, "this", "expression")),
    "VAR_POP": (1, 1, plain(exp.VariancePop)),
    "VAR_SAMP": (1, 1, plain(exp.Variance)),
    "VARIANCE": (1, 1, plain(exp.Variance)),
    "FIRST_VALUE": (1, 1, plain(exp.FirstValue)),
    "LAST_VALUE": (1, 1, plain(exp.LastValue)),
    "NTH_VALUE": (2, 2, plain(exp.NthValue, "this", "offset")),
    "LISTAGG": (1, 2, _list),
    "ROW_NUMBER": (0, 0, lambda _: exp.RowNumber()),
    "RANK": (0, 0, lambda _: exp.Rank()),
    "DENSE_RANK": (0, 0, lambda _: exp.DenseRank()),
    "PERCENT_RANK": (0, 0, lambda _: exp.PercentRank()),
    "CUME_DIST": (0, 0, lambda _: exp.CumeDist()),
    "NTILE": (1, 1, plain(exp.Ntile)),
    "ARRAY_AGG": (1, 1, plain(exp.ArrayAgg)),
    "PERCENTILE": (2, 3, _percentile),
    "COLLECT": (1, 1, lambda args: aggregate("COLLECT", *args)),
    "GROUPING": (1, None, _grouping),
    "GROUPING_ID": (1, None, _grouping),
    "GROUP_ID": (0, 0, lambda _: _group_id()),
    "APPROX_COUNT_DISTINCT": (1, 1, plain(exp.ApproxDistinct)),
    "LAG": (1, 3, plain(exp.Lag, "this", "offset", "default")),
    "LEAD": (1, 3, plain(exp.Lead, "this", "offset", "default")),
}
_OF_OTHER_SYSTEMS: Table = {
    "ANY_VALUE": (1, 1, _any_value),
    "BIT_AND": (1, 1, plain(exp.BitwiseAndAgg)),
    "BIT_OR": (1, 1, plain(exp.BitwiseOrAgg)),
    "BIT_XOR": (1, 1, plain(exp.BitwiseXorAgg)),
    "BOOL_AND": (1, 1, plain(exp.LogicalAnd)),
    "BOOL_OR": (1, 1, plain(exp.LogicalOr)),
    "CORR": (2, 2, plain(exp.Corr, "this", "expression")),
    "EVERY": (1, 1, plain(exp.LogicalAnd)),
    "KURTOSIS": (1, 1, plain(exp.Kurtosis)),
    "MAX_BY": (2, 2, _at_extreme(exp.ArgMax)),
    "MEDIAN": (1, 1, lambda args: _percentile([args[0], exp.Literal.number("0.5")])),
    "MIN_BY": (2, 2, _at_extreme(exp.ArgMin)),
    "PERCENTILE_CONT": (1, 1, _within(exp.PercentileCont)),
    "PERCENTILE_DISC": (1, 1, _within(exp.PercentileDisc)),
    "POW": (2, 2, numbers.TABLE["POWER"][2]),
    "REGR_INTERCEPT": (2, 2, plain(exp.RegrIntercept, "this", "expression")),
    "REGR_R2": (2, 2, plain(exp.RegrR2, "this", "expression")),
    "REGR_SLOPE": (2, 2, plain(exp.RegrSlope, "this", "expression")),
    "SKEWNESS": (1, 1, plain(exp.Skewness)),
    "STRING_AGG": (2, 2, _list),
}
"""Functions that other systems have and Flink lacks, by the names that most of them use."""
_TABLE: Table = {
    "TYPEOF": (1, 2, lambda args: exp.Typeof(this=args[0])),
    **numbers.TABLE,
    **texts.TABLE,
    **json.TABLE,
    **_CHOICES,
    **times.TABLE,
    **_AGGREGATES,
    **_OF_OTHER_SYSTEMS,
    **array_functions.TABLE,
}

BUILDERS: dict[str, Build] = {
    name: _checked(name, least, most, build) for name, (least, most, build) in _TABLE.items()
}
