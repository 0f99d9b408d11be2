"""Retractions as signed values: how aggregations over a changelog are written.

Row kinds could be written to an aggregation table. But a `-U` removes the value of a
`last_non_null_value` column for all rows of the key, and other merge functions refuse retractions.
So the sign is part of the values: a retracted value is negated and written as an insert. The result
does not depend on the order of the rows, and they may be summed before they are written.
"""

from __future__ import annotations

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql import node_errors
from streamhouse.sql.functions.expression_builders import SUMMAND, call, column_of
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    ignores_retractions,
    merge_function,
    removes_records,
    sequence_fields,
)
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import ColumnMapping, cast_to
from streamhouse.sql.streaming.stream_select import StreamSelect
from streamhouse.sql.text import Script
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


def sign_aggregates(
    top: StreamSelect, target: TableInfo, mappings: list[ColumnMapping]
) -> list[exp.Expr]:
    """The projections with SUM and COUNT subtracting retracted rows.

    LAST_VALUE stays as it is; its order is added later. Raises `NotStreamedError` for an aggregate
    that cannot subtract: it would need the rows that remain.
    """
    items = [item.copy() for item in top.items]
    for mapping in mappings:
        if mapping.index is None or mapping.column.name in target.primary_key:
            continue
        wrapped = exp.Paren(this=items[mapping.index])
        for node in list(wrapped.find_all(exp.AggFunc)):
            _check(node, target, mapping)
            _sign(node, top.alias)
        items[mapping.index] = wrapped.this
    return items


def _check(node: exp.Expr, target: TableInfo, mapping: ColumnMapping) -> None:
    keeps_last = merge_function(target.options, mapping.column.name) == "last_non_null_value"
    if not (
        isinstance(node, exp.Sum | exp.Count)
        or (isinstance(node, exp.LastValue) and keeps_last)
        or (isinstance(node, exp.Min | exp.Max) and _ignores(target, mapping))
    ):
        word = type(node).__name__.upper().replace("VALUE", "_VALUE")
        raise NotStreamedError(f"{word} over a table whose rows change")


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
    if isinstance(parent, exp.Filter):
        # Over no rows SUM gives NULL, but COUNT gives 0.
        node.replace(total)
        zero = exp.Literal.number(0)
        parent.replace(exp.Coalesce(this=parent.copy(), expressions=[zero]))
    else:
        node.replace(total)


def _negated_if_retracted(value: exp.Expr, alias: str) -> exp.Expr:
    """The value, negated if the row is a retraction; an error for one that cannot be subtracted."""
    summand = call(SUMMAND, value.copy())
    parts = {"summand": summand, "retracts": retracts(alias)}
    return filled("CASE WHEN retracts THEN -summand ELSE summand END", **parts)


def can_sign(
    script: Script, top: StreamSelect, target: TableInfo | None, mappings: list[ColumnMapping]
) -> bool:
    """Whether a changelog is written into an aggregation table as signed values.

    It is if a column merges by `sum`, the other merge functions ignore nulls, and a deleted row is
    not to remove the record (`aggregation.remove-record-on-delete`). Otherwise the row kinds are
    written. Raises `UnsupportedSqlError` for a merge function that supports no retractions.
    """
    if target is None or target.options.get("merge-engine") != "aggregation":
        return False
    if target.options.get("ignore-delete", "").lower() == "true":
        return False
    columns = [mapping for mapping in mappings if mapping.column.name not in target.primary_key]
    for mapping in columns:
        function = merge_function(target.options, mapping.column.name)
        if mapping.index is not None and function not in _RETRACT and not _ignores(target, mapping):
            key = f"fields.{mapping.column.name}"
            raise node_errors.unsupported(
                script,
                top.items[mapping.index],
                f"column '{mapping.column.name}' merges by {function}, which cannot retract a row "
                "that is changed or deleted; aggregate in the query, by GROUP BY, and keep its "
                "result in a table with another merge-engine. With "
                f"'{key}.ignore-retract' = 'true' the column keeps the values of such rows",
            )
    if removes_records(target.options):
        return False
    sums = [
        mapping
        for mapping in columns
        if mapping.index is not None
        and merge_function(target.options, mapping.column.name) == "sum"
    ]
    return bool(sums) and all(_is_signable(target, mapping) for mapping in columns)


def _ignores(target: TableInfo, mapping: ColumnMapping) -> bool:
    return ignores_retractions(target.options, mapping.column.name)


def _is_signable(target: TableInfo, mapping: ColumnMapping) -> bool:
    function = merge_function(target.options, mapping.column.name)
    if function in ("sum", "last_non_null_value"):
        return True
    return _ignores(target, mapping) and function in _IGNORE_NULLS


def sign_columns(
    items: list[exp.Expr], top: StreamSelect, target: TableInfo, mappings: list[ColumnMapping]
) -> list[exp.Expr]:
    """The target's columns (`items`, in its order) as signed values.

    A retraction negates sums and gives NULL for the other columns; keys and sequence fields stay.
    """
    order = sequence_fields(target.options)
    signed: list[exp.Expr] = []
    for item, mapping in zip(items, mappings, strict=True):
        name = mapping.column.name
        if name in target.primary_key or name in order or mapping.index is None:
            signed.append(item)
        elif merge_function(target.options, name) == "sum" and not _ignores(target, mapping):
            kind = mapping.column.type
            signed.append(cast_to(_negated_if_retracted(item, top.alias), kind, kind))
        else:
            signed.append(exp.Case().when(retracts(top.alias), exp.Null()).else_(item))
    return signed


def finite_sums(
    items: list[exp.Expr], target: TableInfo, mappings: list[ColumnMapping]
) -> list[exp.Expr]:
    """The target's columns, with an error for Infinity and NaN in sums that row kinds retract."""
    if target.options.get("merge-engine") not in MERGING_ENGINES:
        return items
    return [
        cast_to(call(SUMMAND, item), mapping.column.type, mapping.column.type)
        if base(mapping.column.type) in ("FLOAT", "DOUBLE")
        and mapping.column.name not in target.primary_key
        and merge_function(target.options, mapping.column.name) == "sum"
        and not _ignores(target, mapping)
        else item
        for item, mapping in zip(items, mappings, strict=True)
    ]
