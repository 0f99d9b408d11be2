"""Texts, casts and JSON of arrays, maps and rows, made of those of their elements.

Flink writes texts such as `[1, NULL]`, `{a=1}` and `(1, TRUE)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from streamhouse.sql.expressions import timestamp_digits
from streamhouse.sql.functions.expression_builders import (
    call,
    cast,
    concat,
    lambda_of,
    number,
    parameter,
    when,
)

Cast = Callable[[exp.Expr, exp.DataType], exp.Expr]
"""Casts an element whose `type` is set."""
Text = Callable[[exp.Expr], exp.Expr]
"""Makes the text of an element whose `type` is set."""
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


def of(source: exp.Expr, text: Text, depth: int = 0) -> exp.Expr | None:
    """The text of a typed array, map or row; None if its element types are unknown."""
    kind = source.type
    if not isinstance(kind, exp.DataType) or not kind.expressions:
        return None
    parts = kind.expressions
    if kind.is_type(exp.DType.ARRAY, exp.DType.LIST):
        body = _joined_texts(source, _elements(source, parts[:1]), ("{}",), text, depth)
        return None if body is None else _null_or_bracketed(source, "[", body, "]")
    if kind.is_type(exp.DType.MAP):
        entries = call("MAP_ENTRIES", source)
        kinds = _elements(source, parts[:2])
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


def _elements(source: exp.Expr, kinds: Sequence[exp.Expr]) -> list[_Element]:
    inner = source.unnest()
    parts: list[Sequence[exp.Expr]] = []
    if isinstance(inner, exp.Array):
        parts = [inner.expressions]
    elif isinstance(inner, exp.Map):
        parts = [inner.args[side].expressions for side in ("keys", "values")]
    if len(parts) != len(kinds):
        return [_Element(kind) for kind in kinds]
    return [
        _Element(kind, timestamp_digits.common(part))
        for kind, part in zip(kinds, parts, strict=True)
    ]


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
    element_text = of(element, text, depth + 1) if nested else text(element)
    return None if element_text is None else _or_null(element_text)


def _or_null(text: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=cast(text, "VARCHAR"), expressions=[exp.Literal.string(_NULL)])


def _null_or_bracketed(source: exp.Expr, start: str, body: exp.Expr, end: str) -> exp.Expr:
    whole = concat(exp.Literal.string(start), body, exp.Literal.string(end))
    null = exp.Is(this=source.copy(), expression=exp.Null())
    return when(null, exp.Null(), exp.Paren(this=whole))


def cast_elements(source: exp.Expr, kind: exp.DataType, cast_one: Cast) -> exp.Expr:
    """An array, map or row with each element cast to that of the Flink type `kind`.

    The source itself if the types of its elements are unknown, or need no cast.
    """
    if is_row(source) and kind.is_type(exp.DType.STRUCT):
        return _fields(source, list(source.expressions), kind, cast_one)
    have = source.type
    if not isinstance(have, exp.DataType) or not _differs(have, kind):
        return source
    if kind.is_type(exp.DType.ARRAY):
        return _cast_list(source, have.expressions[0], kind.expressions[0], cast_one)
    if kind.is_type(exp.DType.MAP):
        keys, values = (
            _cast_list(call(f"MAP_{side}", source.copy()), one, other, cast_one)
            for side, one, other in zip(
                ("KEYS", "VALUES"), have.expressions, kind.expressions, strict=True
            )
        )
        null = exp.Is(this=source.copy(), expression=exp.Null())
        return when(null, exp.Null(), call("MAP", keys, values))
    fields = [_field_of(source, field, place) for place, field in enumerate(have.expressions, 1)]
    null = exp.Is(this=source.copy(), expression=exp.Null())
    return when(null, exp.Null(), _fields(source, fields, kind, cast_one))


def fields_by_place(value: exp.Expr, have: str, want: str) -> exp.Expr:
    """A value whose rows get the names of fields of another DuckDB type, by their places.

    DuckDB casts the fields of a row to those of the same name.
    """
    kinds = [exp.DataType.build(kind, dialect="duckdb") for kind in (have, want)]
    names = [[field.name for field in kind.find_all(exp.ColumnDef)] for kind in kinds]
    if not all(names) or names[0] == names[1]:
        return value

    def placed(part: exp.Expr, kind: exp.DataType) -> exp.Expr:
        return cast_elements(part, kind, placed)

    typed = value.copy()
    typed.type = kinds[0]
    return placed(typed, kinds[1])


def _field_of(source: exp.Expr, field: exp.Expr, place: int) -> exp.Expr:
    """A field of a row by its place from 1; `field` is its type, perhaps with a name."""
    value = call("STRUCT_EXTRACT_AT", source.copy(), number(place))
    kind = field.args.get("kind") if isinstance(field, exp.ColumnDef) else field
    value.type = kind if isinstance(kind, exp.DataType) else None
    return value


def _differs(have: exp.DataType, want: exp.DataType) -> bool:
    """Whether two types are of the same kind, and their elements, which are known, differ.

    Also if fields of rows have other names: DuckDB casts fields by name, Flink by place.
    """
    two = _kinds(have), _kinds(want)
    if have.this != want.this or not two[0] or len(two[0]) != len(two[1]):
        return False
    pairs = zip(have.expressions, want.expressions, strict=True)
    if any(isinstance(one, exp.ColumnDef) and one.name != other.name for one, other in pairs):
        return True
    return any(
        _differs(one, other) if _kinds(one) and one.this == other.this else one != other
        for one, other in zip(*two, strict=True)
    )


def _kinds(kind: exp.DataType) -> list[exp.DataType]:
    """The types of the elements of a nested type."""
    fields = (
        expression.kind if isinstance(expression, exp.ColumnDef) else expression
        for expression in kind.expressions
    )
    return [field for field in fields if isinstance(field, exp.DataType)]


def _cast_list(array: exp.Expr, have: exp.DataType, want: exp.DataType, cast_one: Cast) -> exp.Expr:
    element = parameter("c")
    element.type = have
    return call("LIST_TRANSFORM", array.copy(), lambda_of("c", cast_one(element, want)))


def _fields(
    source: exp.Expr, values: Sequence[exp.Expr], kind: exp.DataType, cast_one: Cast
) -> exp.Expr:
    """A row of cast values; the source itself if their number is another one."""
    wanted = [
        expression for expression in kind.expressions if isinstance(expression, exp.ColumnDef)
    ]
    if len(wanted) != len(values):
        return source
    pairs = zip(wanted, values, strict=True)
    return exp.Struct(expressions=[
        exp.PropertyEQ(this=one.this.copy(), expression=cast_one(value.copy(), one.args["kind"]))
        for one, value in pairs
    ])  # fmt: skip


def differs_in_json(kind: exp.DataType, leaves: Sequence[exp.DType]) -> bool:
    """Whether a type is one of `leaves` or contains one, or is a row without names of fields."""
    if kind.this in leaves:
        return True
    parts = _kinds(kind) if kind.args.get("nested") else []
    unnamed = kind.is_type(exp.DType.STRUCT) and isinstance(kind.expressions[0], exp.DataType)
    return unnamed or any(differs_in_json(part, leaves) for part in parts)


def json_text(value: exp.Expr, text: Text, depth: int = 0) -> exp.Expr:
    """A value of known type as JSON; null for a null. `text` writes what is not nested."""
    kind, name, string = value.type, f"j{depth}", exp.Literal.string
    if kind is None or not kind.args.get("nested") or not _kinds(kind):
        return text(value)
    kinds = _kinds(kind)

    def part(element: exp.Expr, of_kind: exp.DataType) -> exp.Expr:
        element.type = of_kind
        written = cast(json_text(element, text, depth + 1), "VARCHAR")
        return exp.Coalesce(this=written, expressions=[string("null")])

    if kind.is_type(exp.DType.STRUCT):
        members: list[exp.Expr] = []
        for place, (field, of_kind) in enumerate(zip(kind.expressions, kinds, strict=True)):
            named = isinstance(field, exp.ColumnDef)
            label = json.dumps(field.name if named else f"EXPR${place}", ensure_ascii=False)
            written = part(_field_of(value, field, place + 1), of_kind)
            members += [string(f"{',' if place else ''}{label}:"), written]
        return _null_or_bracketed(value, "{", concat(*members), "}")
    if kind.is_type(exp.DType.MAP):
        entry = exp.Var(this=f'"{name}".key')
        key = cast(call("TO_JSON", cast(entry, "VARCHAR")), "VARCHAR")
        pair = concat(key, string(":"), part(exp.Var(this=f'"{name}".value'), kinds[-1]))
        return _json_list(value, call("MAP_ENTRIES", value.copy()), name, pair, "{}")
    body = part(parameter(name), kinds[0])
    return _json_list(value, value.copy(), name, body, "[]")


def _json_list(
    source: exp.Expr, array: exp.Expr, name: str, body: exp.Expr, brackets: str
) -> exp.Expr:
    mapped = call("LIST_TRANSFORM", array, lambda_of(name, body))
    joined = call("ARRAY_TO_STRING", mapped, exp.Literal.string(","))
    return _null_or_bracketed(source, brackets[0], joined, brackets[1])


_ENTRY = (exp.to_identifier("key"), exp.to_identifier("value"))
"""The names of the fields of a map's entry."""


UNNAMED = "unnamed"
"""Key in the `meta` of an UNNEST whose column has no name in the query."""


def unnested(node: exp.Unnest, kind: exp.DataType) -> exp.Expr | None:
    """UNNEST of a map, or of an array of rows, whose alias names a column for each field.

    Any other UNNEST stays; None if the fields have no names. `kind` is the type of the argument.
    """
    alias, values = node.args.get("alias"), node.expressions[0].copy()
    element = kind.expressions[0] if kind.is_type(exp.DType.ARRAY, exp.DType.LIST) else None
    fields: list[exp.Expr] = []
    if kind.is_type(exp.DType.MAP):
        fields, values = (
            [exp.ColumnDef(this=name.copy()) for name in _ENTRY],
            call("MAP_ENTRIES", values),
        )
    elif isinstance(element, exp.DataType) and element.is_type(exp.DType.STRUCT):
        fields = element.expressions
    if fields and node.meta.get(UNNAMED):
        return None
    if not fields or not isinstance(alias, exp.TableAlias) or len(alias.columns) != len(fields):
        return node
    row, table = (exp.to_identifier(name, quoted=True) for name in ("_element", "_elements"))
    inner = exp.Unnest(expressions=[values], alias=exp.TableAlias(this=table, columns=[row]))
    source = exp.column(row.copy(), table.copy())
    named = enumerate(zip(fields, alias.columns, strict=True), 1)
    items: list[exp.Expr] = [
        exp.alias_(_field_of(source, field, place), column.copy())
        for place, (field, column) in named
    ]
    place = node.args.get("offset")
    if isinstance(place, exp.Identifier):
        inner.set("offset", place.copy())
        items.append(exp.column(place.copy(), table.copy()))
    select = exp.Select(expressions=items)
    select.set("from_", exp.From(this=inner))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=alias.this.copy()))
