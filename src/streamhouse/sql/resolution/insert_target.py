"""What an INSERT's target asks of the query's columns: number, types, merge functions."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from streamhouse.merge_functions import merge_function
from streamhouse.options import nearest
from streamhouse.sql.expressions import aggregates, binder, casts, lowering
from streamhouse.sql.functions.calls import call
from streamhouse.sql.plan import Column, Name, TableInfo
from streamhouse.sql.text import Script
from streamhouse.sql.types import base, digits, duck_type, fits

_ANY_ORDER = ("sum", "count", "product", "min", "max", "bool_and", "bool_or")


def needs_order(target: TableInfo | None) -> bool:
    """Whether the order of the rows written decides what the target holds."""
    if target is None or not target.primary_key:
        return False
    if target.options.get("merge-engine") != "aggregation":
        return True
    return any(
        merge_function(target.options, column.name) not in _ANY_ORDER
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
        item = item.copy()
        aggregates.widen(aggregate(item))
        return cast_to(item, source, column.type)
    raise lowering.error(
        script,
        node,
        f"column '{column.name}' is {column.type}, the query gives {source}; "
        f"write CAST(… AS {column.type})",
    )


def constant(script: Script, node: exp.Expr, text: str, column: Column) -> exp.Expr:
    """A literal as a value of a column; `SqlError` at `node` if it is none."""
    made = cast_to(exp.Literal.string(text), "STRING", column.type)
    if not binder.computes(binder.generate(made)):
        message = f"'{text}' is no value of column '{column.name}', which is {column.type}"
        raise lowering.error(script, node, message)
    return made


def cast_to(item: exp.Expr, source: str, flink: str) -> exp.Expr:
    """A cast to a column's type, and its length; fractions of a second are cut off."""
    kind = duck_type(flink)
    value = item
    coarse = kind == "TIMESTAMP_MS" or (kind == "TIMESTAMPTZ" and digits(flink) <= 3)
    if coarse and base(source) in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        finer = "(0)" not in source
        unit = "second" if digits(flink) == 0 else "milliseconds"
        if finer and (unit == "second" or "(3)" not in source):
            value = exp.Anonymous(this="DATE_TRUNC", expressions=[exp.Literal.string(unit), item])
    elif kind == "BLOB" and base(source) in ("STRING", "VARCHAR", "CHAR"):
        value = call("ENCODE", item)
    value = casts.fitted(value, flink)
    tree = exp.Cast(this=value, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta["plain"] = True
    return tree


def unwrapped(item: exp.Expr) -> exp.Expr:
    """A projection without what does as well with parts of the rows around its aggregate."""
    inner = item.unnest()
    if isinstance(inner, exp.Coalesce) and len(inner.expressions) == 1:
        if _is_zero(inner.expressions[0]):
            return unwrapped(inner.this)
    if type(inner) is exp.Cast:
        exact = inner.to.is_type(*exp.DataType.INTEGER_TYPES) and _is_whole(inner.this)
        # A cast of one row's value is as well made of the last such value.
        exact = exact or isinstance(aggregate(inner.this), exp.FirstValue | exp.LastValue)
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


def _dotted(target: TableInfo) -> str:
    name: Name = target.name
    return "table " + ".".join(name)
