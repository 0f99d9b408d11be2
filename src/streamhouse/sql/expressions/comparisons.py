"""Which values can be compared, and comparisons with NaN and of maps.

Flink compares values of one family of types, and a text with a time. It compares a text with a
number only by `<` and the like, as whole numbers; such a comparison is refused here. Two maps with
the same entries are equal in any order of these. For DuckDB a map is a list of entries. So `=` and
IN sort the entries, and what groups or sorts by maps is refused, as Flink does in batch mode.
"""

from collections.abc import Sequence

from sqlglot import exp

from streamhouse.sql.expressions import zones
from streamhouse.sql.functions import times
from streamhouse.sql.functions.expression_builders import call, cast, lambda_of, parameter
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.select_parts import branches
from streamhouse.sql.text import Script

OPERATORS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)
_REALS = (exp.DType.FLOAT, exp.DType.DOUBLE)
_NUMBERS = (*exp.DataType.INTEGER_TYPES, *_REALS, exp.DType.DECIMAL)
_TIMES = (exp.DType.DATE, exp.DType.TIME, *times.TIMESTAMPS)
_FAMILIES = (
    (exp.DType.BOOLEAN,), _NUMBERS, (exp.DType.TIME,), (exp.DType.DATE, *times.TIMESTAMPS),
    (exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB), (exp.DType.ARRAY, exp.DType.LIST),
    (exp.DType.MAP,), (exp.DType.STRUCT,),
)  # fmt: skip


_GROUPING: dict[type[exp.Expr], str] = {
    exp.Group: "GROUP BY", exp.Window: "PARTITION BY", exp.Ordered: "ORDER BY",
    exp.Select: "DISTINCT",
}  # fmt: skip
_IS_NAN = "ISNAN(value::DOUBLE)::BOOLEAN"


def operands(node: exp.In | exp.Between | exp.Binary) -> list[exp.Expr]:
    """The values that IN, BETWEEN or IS DISTINCT FROM compares."""
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    return [node.this, *(node.expressions if isinstance(node, exp.In) else [node.expression])]


def check(script: Script, values: Sequence[exp.Expr]) -> None:
    """Raise `SqlError` for values that are not comparable, and cast texts to the type of times."""
    values = [value for value in values if not isinstance(value, exp.Any | exp.All)]
    kinds = [value.type for value in values if value.type is not None]
    families = {family for family in _FAMILIES for kind in kinds if kind.is_type(*family)}
    if len(families) > 1:
        names = " and ".join(dict.fromkeys(kind.sql("duckdb") for kind in kinds))
        message = f"{names} are not comparable; CAST one of them"
        raise script.error_at(values[0], message)
    texts = [value for value in values if _is_text(value)]
    for other in kinds if texts else ():
        if other.is_type(exp.DType.BOOLEAN, *_NUMBERS):
            message = "a string is not compared with a number or BOOLEAN; CAST one of them"
            raise script.error_at(texts[0], message)
        if other.is_type(*_TIMES):
            for text in texts:
                kind = exp.DataType(this=other.this)
                new = cast(times.strict_text(text.copy(), kind), kind)
                new.type = new.to
                zones.mark(new, text.type)
                text.replace(new)
            return


def _is_text(value: exp.Expr) -> bool:
    """Whether a value is a text, but no literal, which DuckDB converts to any type."""
    literal = isinstance(value.unnest(), exp.Literal)
    return not literal and value.is_type(*exp.DataType.TEXT_TYPES)


def without_nan(node: exp.Binary | exp.In) -> exp.Expr:
    """Make comparisons with NaN false, except `<>`; for DuckDB NaN is the greatest number."""
    if isinstance(node, exp.In):
        return _unless_nan(node, node.this) if node.this.is_type(*_REALS) else node
    if not (node.left.is_type(*_REALS) or node.right.is_type(*_REALS)):
        return node
    side = node.right if isinstance(node, exp.LT | exp.LTE) else node.left
    if isinstance(side.unnest(), exp.Literal):
        side = node.left if side is node.right else node.right
        if not isinstance(node, exp.EQ | exp.NEQ):
            return node
    if isinstance(node, exp.NEQ):
        return filled(f"(test OR {_IS_NAN})", test=node.copy(), value=side.copy())
    return _unless_nan(node, side)


def _unless_nan(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    return filled(f"(test AND NOT {_IS_NAN})", test=node.copy(), value=value.copy())


def with_sorted_maps(script: Script, node: exp.In | exp.Binary) -> None:
    """Sort the entries of the maps that a comparison for equality compares."""
    for value in operands(node):
        _sort(script, value)
    query = node.args.get("query") if isinstance(node, exp.In) else None
    if query is not None and _has_map(node.this):
        for select in branches(query):
            _sort(script, select.selects[0].unalias())


def _sort(script: Script, value: exp.Expr) -> None:
    if _has_map(value):
        assert value.type is not None
        made = _sorted(script, value.copy(), value.type)
        made.type = value.type
        value.replace(made)


def _sorted(script: Script, value: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """A map with sorted entries; an array with such elements."""
    if kind.is_type(exp.DType.MAP) and not any(map(_is_map, kind.expressions)):
        return filled("MAP_FROM_ENTRIES(LIST_SORT(MAP_ENTRIES(value)))", value=value)
    if kind.is_type(exp.DType.ARRAY, exp.DType.LIST):
        element = _sorted(script, parameter("m"), kind.expressions[0])
        return call("LIST_TRANSFORM", value, lambda_of("m", element))
    message = "a MAP inside a MAP or ROW cannot be compared; compare its entries"
    raise script.unsupported(value, message)


def check_grouped(script: Script, node: exp.Expr) -> None:
    """Raise `UnsupportedSqlError` if a clause or an aggregate function groups or sorts maps."""
    values: list[exp.Expr] = []
    word = _GROUPING.get(type(node), node.key.upper())
    if isinstance(node, exp.Group | exp.Distinct):
        values = node.expressions
    elif isinstance(node, exp.Window):
        values = node.args.get("partition_by") or []
    elif isinstance(node, exp.Ordered | exp.Max | exp.Min):
        values = [node.this]
    elif isinstance(node, exp.Intersect | exp.Except) or (
        isinstance(node, exp.Query) and node.args.get("distinct")
    ):
        values = [item for select in branches(node) for item in select.selects]
    for value in values:
        if _has_map(value):
            message = f"{word} does not take a MAP, whose entries have no order; = and IN do"
            raise script.unsupported(value, message)


def _has_map(value: exp.Expr) -> bool:
    kind = value.type
    return kind is not None and _is_map(kind)


def _is_map(kind: exp.Expr) -> bool:
    return any(part.is_type(exp.DType.MAP) for part in kind.find_all(exp.DataType))
