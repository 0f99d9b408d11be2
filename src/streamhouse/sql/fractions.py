"""How many digits the text of a TIMESTAMP has behind the second: as many as its type says.

The engine has one type for 0 to 3 digits, one up to 6 and one up to 9, so what a column or a CAST
says is looked up where it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import exp

from streamhouse.sql.duck_calls import call, cast
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.types import base, digits

Digits = Mapping[str, Mapping[str, int]]
"""Relation name to its TIMESTAMP columns and their precisions."""

NONE: Digits = MappingProxyType({})
_MARK = "digits"
_TO_SECOND = "%Y-%m-%d %H:%M:%S"
_UNITS = {
    exp.DType.TIMESTAMP_MS: (3, ".%g"),
    exp.DType.TIMESTAMP: (6, ".%f"),
    exp.DType.TIMESTAMPNTZ: (6, ".%f"),
    exp.DType.TIMESTAMP_NS: (9, ".%n"),
}
"""The engine's types with their digits, and how it writes them."""


def of_table(info: TableInfo) -> dict[str, int]:
    """The precisions of a table's TIMESTAMP columns."""
    moments = [column for column in info.columns if base(column.type) == "TIMESTAMP"]
    return {column.name: digits(column.type) for column in moments}


def mark(node: exp.Expr, precision: int) -> None:
    """Note the precision of a CAST whose type says it no more."""
    node.meta[_MARK] = precision


def precision(kind: exp.DataType) -> int:
    """The digits of a TIMESTAMP(p) as it is written."""
    return int(kind.expressions[0].name) if kind.expressions else 6


def text(source: exp.Expr, known: Digits) -> exp.Expr | None:
    """The text of a moment; None if the node is none of a type with digits."""
    kind = source.type.this if isinstance(source.type, exp.DataType) else None
    if kind not in _UNITS:
        return None
    most, pattern = _UNITS[kind]
    written = _written(source, known)
    shown = most if written is None else min(written, most)
    whole = call(
        "STRFTIME",
        source if most == 9 else cast(source, "TIMESTAMP"),
        exp.Literal.string(_TO_SECOND + (pattern if shown else "")),
    )
    if shown in (0, most):
        return whole
    length = len("2026-01-01 00:00:00.") + shown
    return call("LEFT", whole, exp.Literal.number(length))


def _written(node: exp.Expr, known: Digits) -> int | None:
    """The precision of a column or a CAST, also of one in a subquery; None of anything else."""
    inner = node.unnest()
    if _MARK in inner.meta:
        found: int = inner.meta[_MARK]
        return found
    if isinstance(inner, exp.Cast) and not inner.meta.get("plain"):
        moment = inner.to.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
        return precision(inner.to) if moment else None
    select = inner.find_ancestor(exp.Select) if isinstance(inner, exp.Column) else None
    clause = select.args.get("from_") if select is not None else None
    if select is None or clause is None:
        return None
    for part in (clause.this, *(join.this for join in select.args.get("joins") or [])):
        if part.alias_or_name == inner.text("table"):
            return _of_source(part, inner.name, known)
    return None


def _of_source(source: exp.Expr, name: str, known: Digits) -> int | None:
    """The precision of a column of something in FROM."""
    if isinstance(source, exp.Table):
        return known.get(source.name, {}).get(name)
    query = source.unnest() if isinstance(source, exp.Subquery) else None
    for item in query.expressions if isinstance(query, exp.Select) else ():
        if item.alias_or_name == name:
            return _written(item.unalias(), known)
    return None
