"""Output columns that have the values of a source column, unconverted."""

from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one

from streamhouse.sql.plan import Column, StreamQuery
from streamhouse.sql.streaming.stream_select import StreamSelect


def passthrough_columns(
    top: StreamSelect, items: Sequence[exp.Expr], output: Sequence[Column]
) -> Mapping[str, str]:
    """The source columns by the names of output columns, which are cast to their types in `items`.

    Those for which this is certain: each row is one of the source.
    """
    if top.lookups or top.group:
        return {}
    kinds = {column.name: _plain(column.type) for column in top.source.columns}
    sources = (top.source_column(i.this if isinstance(i, exp.Cast) else i) for i in items)
    pairs = zip(sources, output, strict=True)
    return {c.name: name for name, c in pairs if name and kinds[name] == _plain(c.type)}


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
