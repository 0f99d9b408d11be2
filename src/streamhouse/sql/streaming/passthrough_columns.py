"""Output columns that have the values of a source column, unconverted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one

from streamhouse.sql.plan import Column, StreamQuery, TableInfo


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


def copied_columns(query: StreamQuery) -> tuple[str, ...] | None:
    """The columns of `src` that a query copies unconverted, in its order; None if it does more.

    It does more if it has an expression, a filter, a join or an order.
    """
    if len(query.rows.passed) < len(query.rows.columns):
        return None
    rows = parse_one(query.rows.sql, dialect="duckdb")
    clauses = {key: value for key, value in rows.args.items() if value}
    if not isinstance(rows, exp.Select) or clauses.keys() != {"expressions", "from_"}:
        return None
    table = clauses["from_"].this
    if not isinstance(table, exp.Table) or table.name != "src":
        return None
    if any(value for key, value in table.args.items() if key not in ("this", "alias")):
        return None
    names = tuple(query.rows.passed[column.name] for column in query.rows.columns)
    return (*names, "rowkind") if query.row_kinds else names


def _plain(kind: str) -> str:
    """A type without NOT NULL, which does not change values."""
    words = kind.upper().split()
    return " ".join(words[:-2] if words[-2:] == ["NOT", "NULL"] else words)
