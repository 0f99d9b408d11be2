"""Output columns that have the values of a source column, unconverted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp, parse_one

from streamhouse.sql.plan import Column, TableInfo


def passthrough_columns(
    rows: exp.Expr, output: Sequence[Column], source: TableInfo
) -> Mapping[str, str]:
    """The source columns by the names of output columns; those for which this is certain.

    `rows`: the query for the output rows. It must read the source itself, and no subquery.
    """
    if not isinstance(rows, exp.Select):
        return {}
    tables = list(rows.find_all(exp.Table))
    if len(tables) != 1 or rows.args.get("group") or list(rows.find_all(exp.Subquery)):
        return {}
    kinds = {column.name: _plain(column.type) for column in source.columns}
    passed = {}
    for projection, column in zip(rows.expressions, output, strict=False):
        item = projection.unalias()
        if isinstance(item, exp.Cast):
            item = item.this
        if isinstance(item, exp.Column) and kinds.get(item.name) == _plain(column.type):
            passed[column.name] = item.name
    return passed


class CopiedColumn(NamedTuple):
    """A column of `src` in the output, and the DuckDB type that it is cast to, if it is cast."""

    name: str
    cast: exp.DataType | None


def copied_columns(rows_sql: str) -> tuple[CopiedColumn, ...] | None:
    """The columns of `src` that `StreamQuery.rows_sql` copies, in its order; None if it does more.

    It does more if it has an expression, a filter, a join or an order.
    """
    rows = parse_one(rows_sql, dialect="duckdb")
    if not isinstance(rows, exp.Select):
        return None
    table, more = None, []
    for key, value in rows.args.items():
        if isinstance(value, exp.From):
            table = value.this
        elif key != "expressions" and value:
            more.append(key)
    if more or not isinstance(table, exp.Table) or table.name != "src":
        return None
    if any(value for key, value in table.args.items() if key not in ("this", "alias")):
        return None
    copied = []
    for projection in rows.expressions:
        item, cast = projection.unalias(), None
        if isinstance(item, exp.Cast):
            item, cast = item.this, item.to
        if not isinstance(item, exp.Column) or isinstance(item.this, exp.Star):
            return None
        copied.append(CopiedColumn(item.name, cast))
    return tuple(copied)


def _plain(kind: str) -> str:
    """A type without NOT NULL, which does not change values."""
    words = kind.upper().split()
    return " ".join(words[:-2] if words[-2:] == ["NOT", "NULL"] else words)
