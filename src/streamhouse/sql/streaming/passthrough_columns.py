"""Output columns that have the values of a source column, unconverted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

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


def _plain(kind: str) -> str:
    """A type without NOT NULL, which does not change values."""
    words = kind.upper().split()
    return " ".join(words[:-2] if words[-2:] == ["NOT", "NULL"] else words)
