"""The text of an array, a map or a row as Flink writes it: `[1, NULL]`, `{a=1}`, `(1, TRUE)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from streamhouse.sql.functions.calls import call, cast, concat, lambda_of, when

Text = Callable[[exp.Expr], exp.Expr]
"""The text of an element whose `type` is set."""
_NULL = "NULL"


def of(source: exp.Expr, text: Text, depth: int = 0) -> exp.Expr | None:
    """The text of a typed node; None where the types that it holds are not known."""
    kind = source.type
    if not isinstance(kind, exp.DataType) or not kind.expressions:
        return None
    parts = kind.expressions
    if kind.is_type(exp.DType.ARRAY, exp.DType.LIST):
        body = _each(source, parts[:1], ("{}",), text, depth)
        return None if body is None else _between(source, "[", body, "]")
    if kind.is_type(exp.DType.MAP):
        entries = call("MAP_ENTRIES", source)
        body = _each(entries, parts[:2], ("{}.key", "{}.value"), text, depth)
        return None if body is None else _between(source, "{", body, "}")
    return _row(source, parts, text, depth)


def _each(
    array: exp.Expr, kinds: Sequence[exp.Expr], places: Sequence[str], text: Text, depth: int
) -> exp.Expr | None:
    """The texts of an array's elements, or of their parts with `=` between, and commas."""
    name = f"e{depth}"
    found = []
    for kind, place in zip(kinds, places, strict=True):
        element: exp.Expr = exp.Var(this=place.format(f'"{name}"'))
        part = _part(element, kind, text, depth)
        if part is None:
            return None
        found.append(part)
    body = found[0]
    for part in found[1:]:
        body = concat(body, exp.Literal.string("="), part)
    texts = call("LIST_TRANSFORM", array.copy(), lambda_of(name, body))
    return call("ARRAY_TO_STRING", texts, exp.Literal.string(", "))


def _row(source: exp.Expr, fields: Sequence[exp.Expr], text: Text, depth: int) -> exp.Expr | None:
    found = []
    for field in fields:
        if not isinstance(field, exp.ColumnDef):
            return None
        place = exp.Literal.string(field.name)
        part = _part(call("STRUCT_EXTRACT", source.copy(), place), field.args["kind"], text, depth)
        if part is None:
            return None
        found.append(part)
    return _between(source, "(", call("CONCAT_WS", exp.Literal.string(", "), *found), ")")


def _part(element: exp.Expr, kind: exp.Expr, text: Text, depth: int) -> exp.Expr | None:
    """The text of an element of a type; a null is `NULL`."""
    if not isinstance(kind, exp.DataType):
        return None
    element.type = kind
    nested = kind.is_type(exp.DType.ARRAY, exp.DType.LIST, exp.DType.MAP, exp.DType.STRUCT)
    found = of(element, text, depth + 1) if nested else text(element)
    if found is None:
        return None
    return exp.Coalesce(this=cast(found, "VARCHAR"), expressions=[exp.Literal.string(_NULL)])


def _between(source: exp.Expr, start: str, body: exp.Expr, end: str) -> exp.Expr:
    whole = concat(exp.Literal.string(start), body, exp.Literal.string(end))
    null = exp.Is(this=source.copy(), expression=exp.Null())
    return when(null, exp.Null(), exp.Paren(this=whole))
