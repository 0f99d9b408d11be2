"""Builds DuckDB expressions for Flink's numeric functions."""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import (
    Args,
    Build,
    Table,
    any_null,
    call,
    cast,
    duck,
    number,
    plain,
    when,
)


def _log(args: Args) -> exp.Expr:
    """LOG(x), the natural logarithm, or LOG(base, x)."""
    logs = [cast(call("LN", arg), "DOUBLE") for arg in reversed(args)]
    return logs[0] if len(logs) == 1 else _ratio(*logs)


def _ratio(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Div(this=one, expression=two))


def _mod(args: Args) -> exp.Expr:
    return exp.Mod(this=exp.Paren(this=args[0]), expression=exp.Paren(this=args[1]))


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


def _sign(args: Args) -> exp.Expr:
    """SIGN: -1, 0 or 1, in the type of the argument."""
    return call("CAST_TO_TYPE", call("SIGN", args[0]), args[0].copy())


def _real(name: str) -> Build:
    return duck(name, "DOUBLE")


TABLE: Table = {
    "ABS": (1, 1, plain(exp.Abs)),
    "MOD": (2, 2, _mod),
    "ROUND": (1, 2, _digits(plain(exp.Round, "this", "decimals"))),
    "TRUNCATE": (1, 2, _digits(lambda args: call("TRUNC", *args))),
    "POWER": (2, 2, _real("POW")),
    **{name: (1, 1, _real(name)) for name in (
        "SQRT", "EXP", "LN", "LOG10", "SIN", "COS", "TAN", "COT", "SINH", "COSH", "TANH", "ASIN",
        "ACOS", "ATAN", "DEGREES", "RADIANS",
    )},
    "LOG2": (1, 1, lambda args: _log([number(2), *args])),
    "LOG": (1, 2, _log),
    "ATAN2": (2, 2, _real("ATAN2")),
    "PI": (0, 0, _real("PI")),
    "E": (0, 0, lambda _: cast(call("EXP", number(1)), "DOUBLE")),
    "SIGN": (1, 1, _sign),
    "CEILING": (1, 1, plain(exp.Ceil)),
    "GREATEST": (1, None, _extreme(exp.Greatest)),
    "LEAST": (1, None, _extreme(exp.Least)),
    "BIN": (1, 1, lambda args: cast(call("BIN", cast(args[0], "BIGINT")), "VARCHAR")),
    "CONV": (3, 3, lambda args: arrow_call("conv", *args)),
}  # fmt: skip
