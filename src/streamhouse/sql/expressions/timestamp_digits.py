"""Declared precisions of TIMESTAMP and TIME: how many fractional digits their texts have.

DuckDB has only three types, for up to 3, 6 and 9 digits. So the types of expressions have the
precision of the column or CAST that declares it as a parameter, which DuckDB does not see.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlglot import exp

from streamhouse.sql.expressions import intervals, zones
from streamhouse.sql.functions import times
from streamhouse.sql.functions.expression_builders import DIGITS, GENERATED, cast, number
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.types import base, data_type, digits, duck_type

Declared = Mapping[str, Mapping[str, exp.DataType]]
"""Relation name to its columns with times or timestamps, and their types with precisions."""

NONE: Declared = MappingProxyType({})
_DEFAULTS = {"TIMESTAMP": 6, "TIMESTAMP_LTZ": 6, "TIME": 0}
_CLOCK_DIGITS = 3
"""A TIME has milliseconds at most."""
_TO_SECOND = "%Y-%m-%d %H:%M:%S"
_UNITS = {
    **dict.fromkeys((exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, *zones.INSTANTS), (6, ".%f")),
    exp.DType.TIMESTAMP_MS: (3, ".%g"),
    exp.DType.TIMESTAMP_NS: (9, ".%n"),
}
_TIMES = {*_UNITS, exp.DType.TIME}
"""DuckDB's types with their fractional digits and the `strftime` pattern of these."""


def of_table(info: TableInfo) -> dict[str, exp.DataType]:
    """The types, with precisions, of a table's columns that have times or timestamps."""
    timed = (column for column in info.columns if "TIME" in column.type)
    return {column.name: data_type(column.type, _type) for column in timed}


def _type(flink: str) -> exp.DataType:
    """A Flink type as DuckDB's, with the precisions of times and timestamps."""
    kind = exp.DataType.build(duck_type(flink), dialect="duckdb")
    return with_precision(kind, digits(flink, _DEFAULTS.get(base(flink), 0)))


def with_precision(kind: exp.DataType, count: int | None) -> exp.DataType:
    """The type with a declared precision, if it is a time or timestamp."""
    if count is None or kind.this not in _TIMES:
        return kind
    return exp.DataType(this=kind.this, expressions=[exp.DataTypeParam(this=number(count))])


def with_precisions(duck: exp.DataType, flink: exp.DataType) -> exp.DataType:
    """DuckDB's type of a CAST with the precisions that its Flink type declares or implies."""
    kind = duck.copy()
    pairs = zip(kind.find_all(exp.DataType), flink.find_all(exp.DataType), strict=False)
    for part, declared in list(pairs):
        if part.this in _TIMES:
            default = 0 if part.is_type(exp.DType.TIME) else _DEFAULTS["TIMESTAMP"]
            count = precision(declared, default)
            part.set("expressions", [exp.DataTypeParam(this=number(count))])
    return kind


def common_type(kinds: Sequence[exp.DataType]) -> exp.DataType:
    """A type without parameters; that of times has the greatest precision if all have one."""
    count = max(map(precision, kinds)) if all(kind.expressions for kind in kinds) else None
    return with_precision(exp.DataType(this=kinds[0].this), count)


def note_precision(node: exp.Expr) -> None:
    """Give the type of a node its declared precision, if it is a time or timestamp."""
    kind = node.type
    if kind is not None and kind.this in _TIMES and not kind.expressions:
        node.type = with_precision(kind, declared_precision(node))


def mark(node: exp.Expr, precision: int) -> None:
    """Note the declared precision of a CAST to a DuckDB type, which does not keep it."""
    node.meta[DIGITS] = precision


def precision(kind: exp.DataType, default: int = 6) -> int:
    """The `p` of TIMESTAMP(p) or TIME(p), or the default."""
    return int(kind.expressions[0].name) if kind.expressions else default


def text(source: exp.Expr) -> exp.Expr | None:
    """The text of a TIME or TIMESTAMP; None for other types."""
    kind = source.type.this if isinstance(source.type, exp.DataType) else None
    if kind == exp.DType.TIME:
        declared = declared_precision(source)
        count = _CLOCK_DIGITS if declared is None else min(declared, _CLOCK_DIGITS)
        return _text(times.on_epoch_day(source), "%H:%M:%S", ".%g", _CLOCK_DIGITS, count)
    if kind not in _UNITS:
        return None
    most, pattern = _UNITS[kind]
    declared = declared_precision(source)
    count = most if declared is None else min(declared, most)
    timestamp = source if most == 9 else cast(source, "TIMESTAMP")
    if isinstance(timestamp, exp.Cast):
        zones.mark(timestamp, source.type)
    return _text(timestamp, _TO_SECOND, pattern, most, count)


def iso_text(timestamp: exp.Expr) -> exp.Expr:
    """A timestamp as ISO 8601, without trailing zeros; a TIMESTAMP_LTZ ends in `Z`."""
    zoned = timestamp.is_type(*zones.INSTANTS)
    nanos = timestamp.is_type(exp.DType.TIMESTAMP_NS)
    plain = timestamp if nanos else cast(timestamp, "TIMESTAMP")
    fraction = ".%n" if nanos else ".%f"
    formatted = f"STRFTIME(plain, '%Y-%m-%dT%H:%M:%S{fraction}')"
    end = "Z" if zoned else ""
    return filled(f"REGEXP_REPLACE({formatted}, '[.]?0*$', '{end}')", plain=plain)


def in_micros(fine: exp.Expr) -> exp.Expr:
    """A TIMESTAMP_NS truncated to a TIMESTAMP; DuckDB's own cast would round."""
    whole = "EPOCH_NS(fine) - _REMAINDER(EPOCH_NS(fine), 1000)"
    new = filled(f"MAKE_TIMESTAMP(({whole}) // 1000)::TIMESTAMP", fine=fine.copy())
    new.type = exp.DataType.build("TIMESTAMP", dialect="duckdb")
    return new


def _text(timestamp: exp.Expr, whole: str, fraction: str, most: int, count: int) -> exp.Expr:
    full = f"STRFTIME(time, '{whole}{fraction if count else ''}')"
    cut = full if count in (0, most) else f"LEFT({full}, LENGTH({full}) - {most - count})"
    return filled(cut, time=timestamp)


def _call_precision(node: exp.Expr) -> int | None:
    """The precision of a time function, or of timestamp ± interval: that of its timestamp.

    It is at least 3 for an interval with fractions of a second. None for other nodes.
    """
    timestamp, least = times.argument(node), 0
    if timestamp is None and isinstance(node, exp.Add | exp.Sub):
        for side, step in ((node.left, node.right), (node.right, node.left)):
            if timestamp is None and intervals.units(step) and not intervals.units(side):
                timestamp, least = side, 3 * intervals.has_fraction(step)
    known = None if timestamp is None else _timestamp_precision(timestamp)
    return None if known is None else max(known, least)


def _timestamp_precision(node: exp.Expr) -> int | None:
    declared = declared_precision(node)
    kind = node.type.this if isinstance(node.type, exp.DataType) else None
    zoned = kind in zones.INSTANTS
    return _UNITS[kind][0] if declared is None and kind in _UNITS and not zoned else declared


def declared_precision(node: exp.Expr) -> int | None:
    """The declared precision of a time or timestamp; None if nothing declares one.

    It comes from a CAST, the type, the branches of CASE or COALESCE, or the argument of a time
    function.
    """
    kind = node.type
    if kind is not None and kind.this in _TIMES and kind.expressions:
        return precision(kind)
    inner = node.unnest()
    if DIGITS in inner.meta:
        marked: int = inner.meta[DIGITS]
        return marked
    if isinstance(inner, exp.Cast) and not inner.meta.get(GENERATED):
        if inner.to.is_type(exp.DType.TIME):
            return precision(inner.to, 0)
        return precision(inner.to) if inner.to.this in _UNITS else None
    if isinstance(inner, exp.Case | exp.Coalesce | exp.Greatest | exp.Least):
        return common(results(inner))
    clock = times.clock_of(inner)
    if clock is not None:
        return declared_precision(clock)
    derived = _call_precision(inner)
    if derived is None and isinstance(inner, exp.Cast):
        derived = _call_precision(inner.this)
    return derived


def results(node: exp.Expr) -> list[exp.Expr]:
    """The possible results of a CASE, COALESCE, GREATEST or LEAST."""
    if not isinstance(node, exp.Case):
        return [node.this, *node.expressions]
    values = [branch.args["true"] for branch in node.args["ifs"]]
    return values + [value for value in (node.args.get("default"),) if value is not None]


def common(values: Sequence[exp.Expr]) -> int | None:
    """The greatest precision of the values that are not NULL; None if one is unknown."""
    precisions = [
        _timestamp_precision(value)
        for value in values
        if not (isinstance(value, exp.Null) or value.is_type(exp.DType.NULL))
    ]
    declared = [known for known in precisions if known is not None]
    return max(declared) if declared and len(declared) == len(precisions) else None
