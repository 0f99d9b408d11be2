"""Declared precisions of TIMESTAMP and TIME: how many fractional digits their texts have.

DuckDB has only three types, for up to 3, 6 and 9 digits. So the precision is looked up in the
column or CAST that declares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlglot import exp

from streamhouse.sql.expressions import intervals
from streamhouse.sql.functions import times
from streamhouse.sql.functions.expression_builders import call, cast, number, remainder
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.types import base, digits

Digits = Mapping[str, Mapping[str, int]]
"""Relation name to its TIMESTAMP and TIME columns and their precisions."""

NONE: Digits = MappingProxyType({})
_MARK = "digits"
_DEFAULTS = {"TIMESTAMP": 6, "TIME": 0}
_CLOCK_DIGITS = 3
"""A TIME has milliseconds at most."""
_TO_SECOND = "%Y-%m-%d %H:%M:%S"
_UNITS = {
    exp.DType.TIMESTAMP_MS: (3, ".%g"),
    exp.DType.TIMESTAMP: (6, ".%f"),
    exp.DType.TIMESTAMPNTZ: (6, ".%f"),
    exp.DType.TIMESTAMP_NS: (9, ".%n"),
}
"""DuckDB's types with their fractional digits and the `strftime` pattern of these."""


def of_table(info: TableInfo) -> dict[str, int]:
    """The precisions of a table's TIMESTAMP and TIME columns."""
    timestamps = [column for column in info.columns if base(column.type) in _DEFAULTS]
    return {column.name: digits(column.type, _DEFAULTS[base(column.type)]) for column in timestamps}


def mark(node: exp.Expr, precision: int) -> None:
    """Note the declared precision of a CAST to a DuckDB type, which does not keep it."""
    node.meta[_MARK] = precision


def precision(kind: exp.DataType, default: int = 6) -> int:
    """The `p` of TIMESTAMP(p) or TIME(p), or the default."""
    return int(kind.expressions[0].name) if kind.expressions else default


def text(source: exp.Expr, column_digits: Digits) -> exp.Expr | None:
    """The text of a TIME or TIMESTAMP; None for other types."""
    kind = source.type.this if isinstance(source.type, exp.DataType) else None
    if kind == exp.DType.TIME:
        declared = declared_precision(source, column_digits)
        count = _CLOCK_DIGITS if declared is None else min(declared, _CLOCK_DIGITS)
        return _text(times.on_epoch_day(source), "%H:%M:%S", ".%g", _CLOCK_DIGITS, count)
    if kind not in _UNITS:
        return None
    most, pattern = _UNITS[kind]
    declared = declared_precision(source, column_digits)
    count = most if declared is None else min(declared, most)
    timestamp = source if most == 9 else cast(source, "TIMESTAMP")
    return _text(timestamp, _TO_SECOND, pattern, most, count)


def in_micros(fine: exp.Expr) -> exp.Expr:
    """A TIMESTAMP_NS truncated to a TIMESTAMP; DuckDB's own cast would round."""
    whole = exp.Sub(this=call("EPOCH_NS", fine.copy()), expression=_submicro_nanos(fine))
    micros = exp.IntDiv(this=exp.Paren(this=whole), expression=number(1_000))
    new = cast(call("MAKE_TIMESTAMP", micros), "TIMESTAMP")
    new.type = exp.DataType.build("TIMESTAMP", dialect="duckdb")
    return new


def _submicro_nanos(fine: exp.Expr) -> exp.Expr:
    """The nanoseconds after the last whole microsecond, 0 to 999."""
    return remainder(call("EPOCH_NS", fine.copy()), 1_000)


def stepped(node: exp.Add | exp.Sub) -> exp.Expr:
    """Keep the nanoseconds when an interval is added to a TIMESTAMP_NS; DuckDB drops them."""
    for name, step in (("this", node.right), ("expression", node.left)):
        fine = node.args[name]
        if intervals.units(step) and fine.is_type(exp.DType.TIMESTAMP_NS):
            moved = node.copy()
            moved.set(name, in_micros(fine))
            nanos = exp.Add(
                this=call("EPOCH_NS", cast(exp.Paren(this=moved), "TIMESTAMP_NS")),
                expression=_submicro_nanos(fine),
            )
            new = cast(call("MAKE_TIMESTAMP_NS", nanos), "TIMESTAMP_NS")
            new.type = exp.DataType.build("TIMESTAMP_NS", dialect="duckdb")
            mark(new, 9)
            return new
    return node


def _text(timestamp: exp.Expr, whole: str, fraction: str, most: int, count: int) -> exp.Expr:
    pattern = exp.Literal.string(whole + (fraction if count else ""))
    full = call("STRFTIME", timestamp, pattern)
    if count in (0, most):
        return full
    return call(
        "LEFT", full, exp.Sub(this=call("LENGTH", full.copy()),
                              expression=number(most - count)),
    )  # fmt: skip


def _call_precision(node: exp.Expr, column_digits: Digits) -> int | None:
    """The precision of a time function, or of timestamp ± interval: that of its timestamp.

    It is at least 3 for an interval with fractions of a second. None for other nodes.
    """
    timestamp = times.argument(node)
    if timestamp is None and isinstance(node, exp.Add | exp.Sub):
        sides = [(node.left, node.right), (node.right, node.left)]
        for side, step in sides:
            if intervals.units(step) and not intervals.units(side):
                side_precision = _timestamp_precision(side, column_digits)
                return (
                    None
                    if side_precision is None
                    else max(side_precision, 3 * intervals.has_fraction(step))
                )
    return None if timestamp is None else _timestamp_precision(timestamp, column_digits)


def _timestamp_precision(node: exp.Expr, column_digits: Digits) -> int | None:
    declared = declared_precision(node, column_digits)
    kind = node.type.this if isinstance(node.type, exp.DataType) else None
    return _UNITS[kind][0] if declared is None and kind in _UNITS else declared


def declared_precision(node: exp.Expr, column_digits: Digits) -> int | None:
    """The declared precision of a timestamp; None if nothing declares one.

    It comes from a CAST, a column (also through subqueries), the branches of CASE or COALESCE, or
    the argument of a time function.
    """
    inner = node.unnest()
    if _MARK in inner.meta:
        marked: int = inner.meta[_MARK]
        return marked
    if isinstance(inner, exp.Cast) and not inner.meta.get("plain"):
        if inner.to.is_type(exp.DType.TIME):
            return precision(inner.to, 0)
        timestamp = inner.to.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
        return precision(inner.to) if timestamp else None
    if isinstance(inner, exp.Case | exp.Coalesce):
        return common(_results(inner), column_digits)
    clock = times.clock_of(inner)
    if clock is not None:
        return declared_precision(clock, column_digits)
    derived = _call_precision(inner, column_digits)
    if derived is None and isinstance(inner, exp.Cast):
        derived = _call_precision(inner.this, column_digits)
    if derived is not None:
        return derived
    select = inner.find_ancestor(exp.Select) if isinstance(inner, exp.Column) else None
    clause = select.args.get("from_") if select is not None else None
    if select is None or clause is None:
        return None
    for part in (clause.this, *(join.this for join in select.args.get("joins") or [])):
        if part.alias_or_name == inner.text("table"):
            return _column_precision(part, inner.name, column_digits)
    return None


def _results(node: exp.Case | exp.Coalesce) -> list[exp.Expr]:
    """The possible results of a CASE or COALESCE."""
    if isinstance(node, exp.Coalesce):
        return [node.this, *node.expressions]
    values = [one.args["true"] for one in node.args["ifs"]]
    return values + [one for one in (node.args.get("default"),) if one is not None]


def common(values: Sequence[exp.Expr], column_digits: Digits) -> int | None:
    """The greatest precision of the values that are not NULL; None if one is unknown."""
    non_null = [
        one for one in values if not (isinstance(one, exp.Null) or one.is_type(exp.DType.NULL))
    ]
    precisions = [_timestamp_precision(one, column_digits) for one in non_null]
    declared = [one for one in precisions if one is not None]
    return max(declared) if declared and len(declared) == len(precisions) else None


def _column_precision(source: exp.Expr, name: str, column_digits: Digits) -> int | None:
    """The precision of a column of a table or subquery in FROM."""
    if isinstance(source, exp.Table):
        return column_digits.get(source.name, {}).get(name)
    query = source.unnest() if isinstance(source, exp.Subquery) else None
    for item in query.expressions if isinstance(query, exp.Select) else ():
        if item.alias_or_name == name:
            return declared_precision(item.unalias(), column_digits)
    return None
