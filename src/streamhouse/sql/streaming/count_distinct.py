"""COUNT(DISTINCT …) of a continuous GROUP BY: a second query counts the rows of each value.

In the rows for the target this count is 0. The second query returns, for each group, column and
value, how many rows with that value were added, minus those that were retracted. The runtime keeps
these numbers in an auxiliary table. It adds 1 to the target's count when a value's number leaves 0,
and subtracts 1 when the number returns to 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.expressions.binder import generate, quote
from streamhouse.sql.functions import call
from streamhouse.sql.functions.expression_builders import GENERATED
from streamhouse.sql.plan import Column, DistinctCounts, TableInfo
from streamhouse.sql.resolution import insert_target as targets
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.streaming.generated_sql import Stream, bound
from streamhouse.sql.streaming.query_blocks import QueryBlock
from streamhouse.sql.streaming.retraction import retracts
from streamhouse.sql.text import Script, span
from streamhouse.sql.types import base

COLUMN, VALUE, COUNT = "_column", "_value", "_count"
_SIGN = "_sign"
_NESTED = ("ARRAY", "MAP", "ROW", "MULTISET")


@dataclass(frozen=True)
class Counted:
    """A COUNT(DISTINCT value) and the target's column that it fills."""

    column: str
    value: exp.Expr
    node: exp.Expr


def replace_counts(
    script: Script, block: QueryBlock, mappings: list[ColumnMapping]
) -> list[Counted]:
    """Replace each COUNT(DISTINCT …) in a block's projections by SUM(0), and return the counts.

    Raises `NotStreamedError` for a count of several expressions.
    """
    counts = []
    for mapping in mappings:
        if mapping.index is None:
            continue
        item = targets.unwrapped(block.items[mapping.index])
        count = item.this if isinstance(item, exp.Filter) else item
        if not isinstance(count, exp.Count) or not isinstance(count.this, exp.Distinct):
            continue
        values = count.this.expressions
        if len(values) != 1:
            raise node_errors.not_streamed(script, item, "COUNT(DISTINCT …) of several expressions")
        value = values[0].copy()
        if isinstance(item, exp.Filter):
            value = exp.Case().when(item.expression.this.copy(), value)
        counts.append(Counted(mapping.column.name, value, item))
        block.items[mapping.index] = _zero_sum(item)
    return counts


def _zero_sum(item: exp.Expr) -> exp.Expr:
    """SUM(0), with the position in the script of the projection that it replaces."""
    zero = exp.Literal.number(0)
    offsets = span(item)
    if offsets is not None:
        zero.meta.update(start=offsets[0], end=offsets[1] - 1)
    return exp.Sum(this=zero)


def plan(
    stream: Stream, target: TableInfo, mappings: list[ColumnMapping], counted: list[Counted]
) -> tuple[DistinctCounts, list[exp.Expr]]:
    """The query that counts the rows of each value, and its trees, to find the columns it reads.

    Raises `NotStreamedError` for values of nested types (ARRAY, MAP, ROW, MULTISET).
    """
    flat = replace(stream, top=replace(stream.top, group=[]))
    key_mappings = [
        mapping for key in target.primary_key for mapping in mappings if mapping.column.name == key
    ]
    groups = [
        stream.top.items[mapping.index] for mapping in key_mappings if mapping.index is not None
    ]
    items = [*groups, *(counted_column.value for counted_column in counted)]
    names = [f"c{index}" for index in range(len(items))]
    kinds = [kind for _, kind in bound(flat, flat.rows(items, names, False, signed=True))]
    keys = [
        targets.converted(stream.script, group, group, kind, mapping.column)
        for group, kind, mapping in zip(groups, kinds, key_mappings, strict=False)
    ]
    key_names = [mapping.column.name for mapping in key_mappings]
    trees: list[exp.Expr] = []
    parts = []
    listed = ", ".join(quote(name) for name in key_names)
    for counted_column, kind in zip(counted, kinds[len(groups) :], strict=True):
        text = _text(stream.script, counted_column, kind)
        projections = [*keys, text, _sign(stream)]
        tree = flat.rows(projections, [*key_names, VALUE, _SIGN], False, signed=True)
        trees.append(tree)
        name = generate(exp.Literal.string(counted_column.column))
        parts.append(
            f"SELECT {listed}, {name} AS {COLUMN}, {VALUE}, {_SIGN} FROM ({generate(tree)})"
        )
    sql = (
        f"SELECT {listed}, {COLUMN}, {VALUE}, CAST(SUM({_SIGN}) AS BIGINT) AS {COUNT} "
        f"FROM ({' UNION ALL '.join(parts)}) WHERE {VALUE} IS NOT NULL GROUP BY ALL"
    )
    columns = tuple(Column(s.column.name, s.column.type, False) for s in key_mappings)
    return DistinctCounts(
        columns, tuple(counted_column.column for counted_column in counted), sql
    ), trees


def _sign(stream: Stream) -> exp.Expr:
    """1 for an added row, -1 for a retracted one."""
    one = exp.Literal.number(1)
    if not stream.changelog:
        return one
    return exp.Case().when(retracts(stream.top.alias), exp.Neg(this=one.copy())).else_(one)


def _text(script: Script, one: Counted, kind: str) -> exp.Expr:
    """A value as text, such that two values are equal exactly if their texts are."""
    word = base(kind)
    if word in _NESTED:
        raise node_errors.not_streamed(script, one.node, f"COUNT(DISTINCT …) of {kind}")
    value: exp.Expr = exp.Paren(this=one.value.copy())
    if word in ("BYTES", "BINARY", "VARBINARY"):
        return call("HEX", value)
    if word in ("FLOAT", "DOUBLE"):
        # -0.0 and 0.0 are the same value.
        value = exp.Paren(this=exp.Add(this=value, expression=exp.Literal.number("0.0")))
    text = exp.Cast(this=value, to=exp.DataType.build("VARCHAR", dialect="duckdb"))
    text.meta[GENERATED] = True
    return text
