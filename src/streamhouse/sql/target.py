"""What an INSERT's target asks of the query's columns: number, types, merge functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from streamhouse.options import nearest
from streamhouse.sql import lowering
from streamhouse.sql.plan import Column, Name, TableInfo
from streamhouse.sql.text import Script
from streamhouse.sql.types import base, duck_type, fits

if TYPE_CHECKING:
    from streamhouse.sql.levels import Level

# Which merge functions of an aggregation table carry on with the partial results of a function.
_MERGES: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Sum: ("sum",),
    exp.Count: ("sum",),
    exp.Min: ("min",),
    exp.Max: ("max",),
    exp.LastValue: ("last_value", "last_non_null_value"),
    exp.FirstValue: ("first_value",),
}


_ANY_ORDER = ("sum", "count", "product", "min", "max", "bool_and", "bool_or")


def needs_order(target: TableInfo | None) -> bool:
    """Whether the order of the rows written decides what the target holds."""
    if target is None or not target.primary_key:
        return False
    if target.options.get("merge-engine") != "aggregation":
        return True
    return any(
        merge_function(target, column.name) not in _ANY_ORDER
        for column in target.columns
        if column.name not in target.primary_key
    )


@dataclass(frozen=True)
class Slot:
    """A column of the target and which projection fills it; None for a NULL."""

    column: Column
    index: int | None


def slots(
    script: Script, node: exp.Expr, target: TableInfo, given: tuple[str, ...], count: int
) -> list[Slot]:
    """The target's columns in order, each with the projection that fills it.

    Raises `SqlError` for an unknown column and for a number of columns that does not fit.
    """
    names = [column.name for column in target.columns]
    computed = {column.name for column in target.computed}
    for name in given:
        if name not in names:
            reason = "is computed, it cannot be written" if name in computed else "does not exist"
            hint = "" if name in computed else f"; {nearest(name, names)}"
            raise lowering.error(script, node, f"{_dotted(target)}: '{name}' {reason}{hint}")
    wanted = list(given) or names
    if len(wanted) != count:
        raise lowering.error(
            script,
            node,
            f"the query gives {count} column(s), {_dotted(target)} takes {len(wanted)}: "
            f"{', '.join(wanted)}",
        )
    filled = {name: place for place, name in enumerate(wanted)}
    return [Slot(column, filled.get(column.name)) for column in target.columns]


def converted(
    script: Script, node: exp.Expr, item: exp.Expr, source: str, column: Column
) -> exp.Expr:
    """A projection of Flink type `source` cast to the column's type; `SqlError` if it cannot be."""
    if isinstance(item.unnest(), exp.Null) or fits(source, column.type):
        return cast_to(item, source, column.type)
    raise lowering.error(
        script,
        node,
        f"column '{column.name}' is {column.type}, the query gives {source}; "
        f"write CAST(… AS {column.type})",
    )


def cast_to(item: exp.Expr, source: str, flink: str) -> exp.Expr:
    """A cast to a column's type; fractions of a second are cut off, not rounded."""
    kind = duck_type(flink)
    value = item
    if kind == "TIMESTAMP_MS" and base(source) in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        if "(3)" not in source and "(0)" not in source:
            unit = exp.Literal.string("milliseconds")
            value = exp.Anonymous(this="DATE_TRUNC", expressions=[unit, item])
    tree = exp.Cast(this=value, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta["plain"] = True
    return tree


def check_grouping(
    script: Script, level: Level, target: TableInfo | None, filled: list[Slot]
) -> bool:
    """Whether the query aggregates, in a way that the target's merge functions carry on.

    Raises `UnsupportedSqlError` saying which table declaration would do.
    """
    aggregates = [node for item in level.items for node in item.find_all(exp.AggFunc)]
    if not aggregates and not level.group:
        return False
    node = aggregates[0] if aggregates else level.group[0]
    if target is None:
        raise lowering.unsupported(
            script,
            node,
            "an aggregation that runs for ever needs a table to keep its results: INSERT INTO a "
            "table with 'merge-engine' = 'aggregation', or SET 'execution.runtime-mode' = 'batch'",
        )
    if not target.primary_key or target.options.get("merge-engine") != "aggregation":
        raise lowering.unsupported(script, node, _declaration(script, level, target, filled))
    keys = {target.columns[i].name: slot for i, slot in enumerate(filled)}
    groups = [one.unnest().sql() for one in level.group if not _is_constant(one)]
    found = []
    for key in target.primary_key:
        slot = keys[key]
        item = level.items[slot.index].unnest() if slot.index is not None else None
        if item is None or not _is_constant(item):
            found.append(None if item is None else item.sql())
    if sorted(groups) != sorted(item for item in found if item) or None in found:
        raise lowering.unsupported(
            script,
            level.group[0] if level.group else node,
            f"GROUP BY must be exactly the primary key of {_dotted(target)}: "
            f"{', '.join(target.primary_key)}; declare another key, or group otherwise",
        )
    for slot in filled:
        if slot.column.name not in target.primary_key:
            _check_merge(script, level, target, slot)
    return True


def _is_constant(item: exp.Expr) -> bool:
    """Whether a value is the same in all rows of all batches."""
    return item.find(exp.Column, exp.AggFunc, exp.Anonymous, exp.Null) is None


def _check_merge(script: Script, level: Level, target: TableInfo, slot: Slot) -> None:
    if slot.index is None:
        return
    item = level.items[slot.index].unnest()
    inner = aggregate(item)
    known = _MERGES.get(type(inner), ())
    if isinstance(inner, exp.AggFunc) and inner.find(exp.Distinct):
        known = ()
    if not known:
        raise lowering.unsupported(
            script,
            item,
            f"column '{slot.column.name}': a continuous GROUP BY takes only SUM, COUNT, MIN, MAX, "
            "FIRST_VALUE and LAST_VALUE, each as a column of its own; keep SUM and COUNT for an "
            "average and divide when reading",
        )
    key = f"fields.{slot.column.name}.aggregate-function"
    given = merge_function(target, slot.column.name)
    if given not in known:
        raise lowering.unsupported(
            script,
            item,
            f"column '{slot.column.name}' of {_dotted(target)} merges by {given}; "
            f"for this aggregate declare '{key}' = '{known[0]}'",
        )


def unwrapped(item: exp.Expr) -> exp.Expr:
    """A projection without what does as well with parts of the rows around its aggregate."""
    inner = item.unnest()
    if isinstance(inner, exp.Coalesce) and len(inner.expressions) == 1:
        if _is_zero(inner.expressions[0]):
            return unwrapped(inner.this)
    if type(inner) is exp.Cast:
        exact = inner.to.is_type(*exp.DataType.INTEGER_TYPES) and _is_whole(inner.this)
        if exact or inner.to.is_type("decimal", "double", "float"):
            return unwrapped(inner.this)
    return inner


def aggregate(item: exp.Expr) -> exp.Expr:
    """The aggregate of a projection, if it is one: without what `unwrapped` takes, and FILTER."""
    inner = unwrapped(item)
    return inner.this if isinstance(inner, exp.Filter) else inner


def _is_zero(node: exp.Expr) -> bool:
    inner = node.unnest()
    while type(inner) is exp.Cast:
        inner = inner.this.unnest()
    if not isinstance(inner, exp.Literal) or inner.is_string:
        return False
    return float(inner.name) == 0


def _is_whole(node: exp.Expr) -> bool:
    """Whether an aggregate adds up whole numbers, as far as that can be seen without types."""
    inner = aggregate(node)
    if not isinstance(inner, exp.Sum):
        return isinstance(inner, exp.Count)
    value = inner.this.unnest()
    values = [value]
    if isinstance(value, exp.Case):
        values = [one.args["true"] for one in value.args["ifs"]]
        values += [value.args["default"]] if value.args.get("default") is not None else []
    return all(isinstance(one.unnest(), exp.Literal) and one.unnest().is_int for one in values)


def merge_function(target: TableInfo, name: str) -> str:
    """The function by which a column of an aggregation table is merged."""
    default = target.options.get("fields.default-aggregate-function", "last_non_null_value")
    return target.options.get(f"fields.{name}.aggregate-function", default)


def _declaration(script: Script, level: Level, target: TableInfo, filled: list[Slot]) -> str:
    options = ["'merge-engine' = 'aggregation'"]
    for slot in filled:
        item = level.items[slot.index].unnest() if slot.index is not None else None
        known = _MERGES.get(type(aggregate(item))) if item is not None else None
        if known:
            options.append(f"'fields.{slot.column.name}.aggregate-function' = '{known[0]}'")
    return (
        f"GROUP BY on a stream needs a target that keeps the sums: declare {_dotted(target)} with "
        f"a PRIMARY KEY of the grouping columns and WITH ({', '.join(options)})"
    )


def _dotted(target: TableInfo) -> str:
    name: Name = target.name
    return "table " + ".".join(name)
