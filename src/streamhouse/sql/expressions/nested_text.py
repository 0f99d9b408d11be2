"""The text of an array, a map or a row as Flink writes it: `[1, NULL]`, `{a=1}`, `(1, TRUE)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from streamhouse.sql.expressions import timestamp_digits
from streamhouse.sql.functions.expression_builders import call, cast, concat, lambda_of, when

Text = Callable[[exp.Expr], exp.Expr]
"""Makes the text of an element whose `type` is set."""
Digits = Callable[[Sequence[exp.Expr]], int | None]
"""Returns the precision of timestamps from which an array, or a map's keys or values, is made."""
_MICROS = 6
_TIMESTAMPS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
_NULL = "NULL"


def is_row(source: exp.Expr) -> bool:
    """Whether a node is ROW(…), or (…, …)."""
    called = isinstance(source, exp.Anonymous) and source.name.upper() == "ROW"
    return called or isinstance(source, exp.Tuple)


def of_row(source: exp.Expr, text: Text) -> exp.Expr:
    """The text of ROW(…), made of the texts of its expressions."""
    parts: list[exp.Expr] = []
    for value in source.expressions:
        parts += [exp.Literal.string(", "), _or_null(text(value))]
    whole = concat(exp.Literal.string("("), *parts[1:], exp.Literal.string(")"))
    return exp.Paren(this=whole)


def of(source: exp.Expr, text: Text, digits: Digits, depth: int = 0) -> exp.Expr | None:
    """The text of a typed array, map or row; None if its element types are unknown."""
    kind = source.type
    if not isinstance(kind, exp.DataType) or not kind.expressions:
        return None
    parts = kind.expressions
    if kind.is_type(exp.DType.ARRAY, exp.DType.LIST):
        body = _joined_texts(source, _elements(source, parts[:1], digits), ("{}",), text, depth)
        return None if body is None else _null_or_bracketed(source, "[", body, "]")
    if kind.is_type(exp.DType.MAP):
        entries = call("MAP_ENTRIES", source)
        kinds = _elements(source, parts[:2], digits)
        body = _joined_texts(entries, kinds, ("{}.key", "{}.value"), text, depth)
        return None if body is None else _null_or_bracketed(source, "{", body, "}")
    return _row(source, parts, text, depth)


@dataclass(frozen=True)
class _Element:
    """The element type of an array or of one side of a map, with the precision of timestamps."""

    kind: exp.Expr
    precision: int | None = None

    def set_type(self, element: exp.Expr) -> exp.DataType | None:
        """Set the type on an element and return it; None if it is unknown."""
        if not isinstance(self.kind, exp.DataType):
            return None
        kind = self.kind
        if self.precision is not None:
            timestamp_digits.mark(element, self.precision)
            if self.precision > _MICROS and kind.is_type(*_TIMESTAMPS):
                kind = exp.DataType.build("TIMESTAMP_NS", dialect="duckdb")
        element.type = kind
        return kind


def _elements(source: exp.Expr, kinds: Sequence[exp.Expr], digits: Digits) -> list[_Element]:
    inner = source.unnest()
    parts: list[Sequence[exp.Expr]] = []
    if isinstance(inner, exp.Array):
        parts = [inner.expressions]
    elif isinstance(inner, exp.Map):
        parts = [inner.args[side].expressions for side in ("keys", "values")]
    if len(parts) != len(kinds):
        return [_Element(kind) for kind in kinds]
    return [_Element(kind, digits(part)) for kind, part in zip(kinds, parts, strict=True)]


def _joined_texts(
    array: exp.Expr, kinds: Sequence[_Element], patterns: Sequence[str], text: Text, depth: int
) -> exp.Expr | None:
    """The texts of an array's elements (map entries as `key=value`), joined by commas."""
    name = f"e{depth}"
    texts = []
    for kind, pattern in zip(kinds, patterns, strict=True):
        element: exp.Expr = exp.Var(this=pattern.format(f'"{name}"'))
        part = _text_or_null(element, kind, text, depth)
        if part is None:
            return None
        texts.append(part)
    body = texts[0]
    for part in texts[1:]:
        body = concat(body, exp.Literal.string("="), part)
    mapped = call("LIST_TRANSFORM", array.copy(), lambda_of(name, body))
    return call("ARRAY_TO_STRING", mapped, exp.Literal.string(", "))


def _row(source: exp.Expr, fields: Sequence[exp.Expr], text: Text, depth: int) -> exp.Expr | None:
    texts = []
    for field in fields:
        if not isinstance(field, exp.ColumnDef):
            return None
        name = exp.Literal.string(field.name)
        value = call("STRUCT_EXTRACT", source.copy(), name)
        part = _text_or_null(value, _Element(field.args["kind"]), text, depth)
        if part is None:
            return None
        texts.append(part)
    return _null_or_bracketed(source, "(", call("CONCAT_WS", exp.Literal.string(", "), *texts), ")")


def _text_or_null(
    element: exp.Expr, element_type: _Element, text: Text, depth: int
) -> exp.Expr | None:
    """The text of an element; a null is `NULL`. None if its type is unknown."""
    kind = element_type.set_type(element)
    if kind is None:
        return None
    nested = kind.is_type(exp.DType.ARRAY, exp.DType.LIST, exp.DType.MAP, exp.DType.STRUCT)
    element_text = of(element, text, lambda _: None, depth + 1) if nested else text(element)
    return None if element_text is None else _or_null(element_text)


def _or_null(text: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=cast(text, "VARCHAR"), expressions=[exp.Literal.string(_NULL)])


def _null_or_bracketed(source: exp.Expr, start: str, body: exp.Expr, end: str) -> exp.Expr:
    whole = concat(exp.Literal.string(start), body, exp.Literal.string(end))
    null = exp.Is(this=source.copy(), expression=exp.Null())
    return when(null, exp.Null(), exp.Paren(this=whole))
