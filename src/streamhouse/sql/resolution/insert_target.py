"""Fits a query's columns to the target of an INSERT: names, number, types, merge functions."""

from sqlglot import exp

from streamhouse.close_matches import nearest
from streamhouse.errors import SqlError
from streamhouse.sql.expressions import aggregates, binder, casts, nested_values, zones
from streamhouse.sql.functions.expression_builders import GENERATED, call, cast
from streamhouse.sql.options.merge_functions import merge_function
from streamhouse.sql.plan import Column, TableInfo
from streamhouse.sql.syntax import Insert
from streamhouse.sql.text import Script
from streamhouse.sql.types import base, digits, duck_type, fits

_MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "STRING", "VARCHAR", "CHAR")
_ANY_ORDER = ("sum", "count", "product", "min", "max", "bool_and", "bool_or")


def needs_order(target: TableInfo | None) -> bool:
    """Whether the contents of the target depend on the order in which rows are written."""
    if target is None or not target.primary_key:
        return False
    if target.options.get("merge-engine") != "aggregation":
        return True
    return any(
        merge_function(target.options, column.name) not in _ANY_ORDER
        for column in target.columns
        if column.name not in target.primary_key
    )


def given_columns(target: TableInfo, statement: Insert) -> tuple[str, ...]:
    """The target columns in the order of the query's columns, without those of PARTITION (…).

    Empty means all columns. Raises `SqlError` for a PARTITION (…) with a column that is not a
    partition column, or that is in the column list too.
    """
    if not statement.partition:
        return statement.columns
    position = statement.position
    where = f"PARTITION of {'.'.join(target.name)}"
    for name in statement.partition:
        if name not in target.partitioned_by:
            if not target.partitioned_by:
                reason = "the table is not partitioned; leave out PARTITION (…)"
            else:
                reason = (
                    f"'{name}' is not a partition column; {nearest(name, target.partitioned_by)}"
                )
            raise SqlError.at(position, f"{where}: {reason}")
        if name in statement.columns:
            raise SqlError.at(
                position,
                f"{where}: '{name}' is also in the column list; leave it out of one of the two",
            )
    names = [column.name for column in target.columns if column.name not in statement.partition]
    return statement.columns or tuple(names)


def column_mappings(
    script: Script, node: exp.Expr, target: TableInfo, listed: tuple[str, ...], count: int
) -> list[tuple[Column, int | None]]:
    """The target's columns in order, each with the index of the projection that fills it, if any.

    Raises `SqlError` for an unknown column and for a wrong number of columns.
    """
    written = [column for column in target.columns if not column.virtual]
    names = [column.name for column in written]
    for name in listed:
        if name not in names:
            raise script.error_at(node, not_written(target, name))
    columns_to_fill = list(listed) or names
    if len(columns_to_fill) != count:
        raise script.error_at(
            node,
            f"the query returns {count} column(s), {dotted(target)} takes {len(columns_to_fill)}: "
            f"{', '.join(columns_to_fill)}",
        )
    indexes = {name: index for index, name in enumerate(columns_to_fill)}
    return [(column, indexes.get(column.name)) for column in written]


def not_written(target: TableInfo, name: str) -> str:
    """Why no statement can give a column of this name a value."""
    if any(column.name == name for column in target.computed):
        return f"{dotted(target)}: '{name}' is computed and cannot be written"
    names = [column.name for column in target.columns if not column.virtual]
    return f"{dotted(target)} has no column '{name}'; {nearest(name, names)}"


def converted(
    script: Script, node: exp.Expr, item: exp.Expr | None, source: str, column: Column
) -> exp.Expr:
    """A projection of Flink type `source` cast to the column's type; `SqlError` if not `fits`.

    None is a NULL.
    """
    if item is None:
        return cast_to(exp.Null(), "STRING", column.type)
    if isinstance(item.unnest(), exp.Null) or fits(source, column.type):
        item = item.copy()
        aggregates.widen(aggregate(item))
        return cast_to(item, source, column.type)
    raise script.error_at(
        node,
        f"column '{column.name}' is {column.type}, but the query returns {source}; "
        f"write CAST(… AS {column.type})",
    )


def constant(script: Script, node: exp.Expr, text: str, column: Column) -> exp.Expr:
    """A literal cast to a column's type; `SqlError` at `node` if that is impossible."""
    value = cast_to(exp.Literal.string(text), "STRING", column.type)
    if not binder.computes(binder.generate(value)):
        message = f"'{text}' is not a valid value of column '{column.name}', which is {column.type}"
        raise script.error_at(node, message)
    return value


def cast_to(item: exp.Expr, source: str, flink: str) -> exp.Expr:
    """A cast to a column's type and length; it truncates fractions of a second."""
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
    elif base(flink) == "DECIMAL" and base(source) == "DOUBLE":
        value = cast(item, "VARCHAR")  # as a CAST, by its text
    elif "ROW<" in source and "ROW<" in flink:
        value = nested_values.fields_by_place(item, duck_type(source), kind)
    value = casts.fitted(value, flink)
    tree = exp.Cast(this=value, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta[GENERATED] = True
    if base(source) in _MOMENTS:
        zones.mark(tree, exp.DataType.build(duck_type(source), dialect="duckdb"))
    return tree


def unwrapped(item: exp.Expr) -> exp.Expr:
    """A projection without the wrappers that keep partial aggregates mergeable.

    These are COALESCE(…, 0), casts to DECIMAL, DOUBLE or FLOAT, casts of whole numbers to an
    integer type, and any cast of FIRST_VALUE or LAST_VALUE.
    """
    inner = item.unnest()
    if isinstance(inner, exp.Coalesce) and len(inner.expressions) == 1:
        if _is_zero(inner.expressions[0]):
            return unwrapped(inner.this)
    if type(inner) is exp.Cast:
        exact = inner.to.is_type(*exp.DataType.INTEGER_TYPES) and _is_whole(inner.this)
        # These aggregates return one row's value, so a cast gives the same before and after them.
        exact = exact or isinstance(aggregate(inner.this), exp.FirstValue | exp.LastValue)
        if exact or inner.to.is_type("decimal", "double", "float"):
            return unwrapped(inner.this)
    return inner


def aggregate(item: exp.Expr) -> exp.Expr:
    """A projection without FILTER and the wrappers of `unwrapped`: its aggregate, if it is one."""
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
    """Whether an aggregate is a COUNT, or a SUM of integer literals or of a CASE of them.

    Only these surely give integers, since types are not known here.
    """
    inner = aggregate(node)
    if not isinstance(inner, exp.Sum):
        return isinstance(inner, exp.Count)
    value = inner.this.unnest()
    values = [value]
    if isinstance(value, exp.Case):
        values = [branch.args["true"] for branch in value.args["ifs"]]
        values += [value.args["default"]] if value.args.get("default") is not None else []
    return all(
        isinstance(result.unnest(), exp.Literal) and result.unnest().is_int for result in values
    )


def dotted(target: TableInfo) -> str:
    """A table with its full name, for errors."""
    return "table " + ".".join(target.name)
