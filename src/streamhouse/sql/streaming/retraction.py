"""Retractions as signed values: how aggregations over a changelog are written.

Row kinds could be written to an aggregation table. But a `-U` removes the value of a
`last_non_null_value` column for all rows of the key, and other merge functions refuse retractions.
So the sign is part of the values: a retracted value is negated and written as an insert. The result
does not depend on the order of the rows, and they may be summed before they are written.
"""

from dataclasses import replace

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql.functions.expression_builders import SUMMAND, call, column_of
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.options.merge_functions import MERGING_ENGINES, removes_records
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import cast_to
from streamhouse.sql.streaming.stream_select import OutputColumn, StreamSelect
from streamhouse.sql.types import base

# Merge functions that ignore nulls; a retraction writes a null for them.
_IGNORE_NULLS = (
    "last_non_null_value", "first_non_null_value", "min", "max", "product", "listagg", "bool_and",
    "bool_or", "collect", "merge_map", "nested_update", "rbm32", "rbm64", "hll_sketch",
    "theta_sketch",
)  # fmt: skip
# Merge functions for which Paimon supports retractions by row kind.
_RETRACT = ("sum", "product", "last_value", "last_non_null_value", "collect", "merge_map",
              "nested_update", "count")  # fmt: skip


def retracts(alias: str) -> exp.Expr:
    """A condition: the row of the source under `alias` is a retraction (`-U` or `-D`)."""
    kind = column_of(alias, "rowkind")
    kinds = [exp.Literal.string(text) for text in ("-U", "-D")]
    return exp.In(this=kind, expressions=kinds)


def sign_aggregates(top: StreamSelect) -> tuple[OutputColumn, ...]:
    """The outputs with SUM and COUNT subtracting retracted rows.

    LAST_VALUE stays as it is; its order is added later. Raises `NotStreamedError` for an aggregate
    that cannot subtract: it would need the rows that remain.
    """
    return tuple(
        each if each.in_key or each.item is None else replace(each, item=_signed(each, top.alias))
        for each in top.outputs
    )


def _signed(output: OutputColumn, alias: str) -> exp.Expr:
    assert output.item is not None
    wrapped = exp.Paren(this=output.item.copy())
    for node in list(wrapped.find_all(exp.AggFunc)):
        if not (
            isinstance(node, exp.Sum | exp.Count)
            or (isinstance(node, exp.LastValue) and output.function == "last_non_null_value")
            or (isinstance(node, exp.Min | exp.Max) and output.ignores)
        ):
            word = type(node).__name__.upper().replace("VALUE", "_VALUE")
            raise NotStreamedError(f"{word} over a table whose rows change")
        _sign(node, alias)
    signed: exp.Expr = wrapped.this
    return signed


def _sign(node: exp.Expr, alias: str) -> None:
    if isinstance(node, exp.Sum):
        node.set("this", _negated_if_retracted(node.this, alias))
    if isinstance(node, exp.Min | exp.Max):
        node.set("this", exp.Case().when(retracts(alias), exp.Null()).else_(node.this.copy()))
    if not isinstance(node, exp.Count):
        return
    null = "" if isinstance(node.this, exp.Star) else "WHEN counted IS NULL THEN 0 "
    parts = {"counted": node.this.copy(), "retracts": retracts(alias)}
    total = exp.Sum(this=filled(f"CASE {null}WHEN retracts THEN -1 ELSE 1 END", **parts))
    parent = node.parent
    node.replace(total)
    if isinstance(parent, exp.Filter):
        # Over no rows SUM gives NULL, but COUNT gives 0.
        zero = exp.Literal.number(0)
        parent.replace(exp.Coalesce(this=parent.copy(), expressions=[zero]))


def _negated_if_retracted(value: exp.Expr, alias: str) -> exp.Expr:
    """The value, negated if the row is a retraction; an error for one that cannot be subtracted."""
    summand = call(SUMMAND, value.copy())
    parts = {"summand": summand, "retracts": retracts(alias)}
    return filled("CASE WHEN retracts THEN -summand ELSE summand END", **parts)


def can_sign(top: StreamSelect) -> bool:
    """Whether a changelog is written into an aggregation table as signed values.

    It is if a column merges by `sum`, the other merge functions ignore nulls, and a deleted row is
    not to remove the record (`aggregation.remove-record-on-delete`). Otherwise the row kinds are
    written. Raises `UnsupportedSqlError` for a merge function that supports no retractions.
    """
    target = top.target
    if target is None or target.options.get("merge-engine") != "aggregation":
        return False
    if target.options.get("ignore-delete", "").lower() == "true":
        return False
    merged = [(each, item) for each, item in top.given if not each.in_key]
    for each, item in merged:
        if each.function not in _RETRACT and not each.ignores:
            raise top.script.unsupported(
                item,
                f"column '{each.name}' merges by {each.function}, which cannot retract a row "
                "that is changed or deleted; aggregate in the query, by GROUP BY, and keep its "
                "result in a table with another merge-engine. With "
                f"'fields.{each.name}.ignore-retract' = 'true' the column keeps the values of "
                "such rows",
            )
    if removes_records(target.options) or all(each.function != "sum" for each, _ in merged):
        return False
    return all(
        each.in_key
        or each.function in ("sum", "last_non_null_value")
        or (each.ignores and each.function in _IGNORE_NULLS)
        for each in top.outputs
    )


def sign_columns(items: list[exp.Expr], top: StreamSelect) -> list[exp.Expr]:
    """The target's columns (`items`, in its order) as signed values.

    A retraction negates sums and gives NULL for the other columns; keys and sequence fields stay.
    """
    signed: list[exp.Expr] = []
    for item, each in zip(items, top.outputs, strict=True):
        if each.in_key or each.orders or each.item is None:
            signed.append(item)
        elif each.function == "sum" and not each.ignores:
            kind = each.column.type
            signed.append(cast_to(_negated_if_retracted(item, top.alias), kind, kind))
        else:
            signed.append(exp.Case().when(retracts(top.alias), exp.Null()).else_(item))
    return signed


def finite_sums(items: list[exp.Expr], top: StreamSelect, target: TableInfo) -> list[exp.Expr]:
    """The target's columns, with an error for Infinity and NaN in sums that row kinds retract."""
    if target.options.get("merge-engine") not in MERGING_ENGINES:
        return items
    return [
        cast_to(call(SUMMAND, item), each.column.type, each.column.type)
        if base(each.column.type) in ("FLOAT", "DOUBLE")
        and not each.in_key
        and each.function == "sum"
        and not each.ignores
        else item
        for item, each in zip(items, top.outputs, strict=True)
    ]
