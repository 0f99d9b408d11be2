"""Texts, casts and JSON of arrays, maps and rows, made of those of their elements.

Flink writes texts such as `[1, NULL]`, `{a=1}` and `(1, TRUE)`.
"""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlglot import exp

from streamhouse.sql.functions.expression_builders import call, concat, lambda_of, number, parameter
from streamhouse.sql.functions.macros import filled

Cast = Callable[[exp.Expr, exp.DataType], exp.Expr]
"""Casts an element whose `type` is set."""
Text = Callable[[exp.Expr], exp.Expr]
"""Makes the text of an element whose `type` is set."""
_NESTED = (exp.DType.ARRAY, exp.DType.LIST, exp.DType.MAP, exp.DType.STRUCT)


_UNLESS_NULL = "CASE WHEN source IS NULL THEN NULL ELSE made END"


class Style(NamedTuple):
    """How values are written: the brackets of arrays, maps and rows, and what is between."""

    array: str
    map: str
    row: str
    separator: str
    equals: str
    null: str


TEXT = Style("[]", "{}", "()", ", ", "=", "NULL")
JSON = Style("[]", "{}", "{}", ",", ":", "null")


def is_row(source: exp.Expr) -> bool:
    """Whether a node is ROW(…), or (…, …)."""
    called = isinstance(source, exp.Anonymous) and source.name.upper() == "ROW"
    return called or isinstance(source, exp.Tuple)


def of_row(source: exp.Expr, text: Text) -> exp.Expr:
    """The text of ROW(…), made of the texts of its expressions."""
    parts: list[exp.Expr] = []
    for value in source.expressions:
        parts += [exp.Literal.string(", "), _or(text(value), TEXT.null)]
    whole = concat(exp.Literal.string("("), *parts[1:], exp.Literal.string(")"))
    return exp.Paren(this=whole)


def written(value: exp.Expr, style: Style, text: Text, depth: int = 0) -> exp.Expr | None:
    """A typed value as text, null for a null; None if the type of a part of it is unknown.

    `text` writes what is not nested.
    """
    kind = value.type
    if kind is None or not kind.is_type(*_NESTED):
        return text(value)

    def part(element: exp.Expr, of_kind: exp.Expr | None) -> exp.Expr | None:
        if not isinstance(of_kind, exp.DataType):
            return None
        element.type = of_kind
        inner = written(element, style, text, depth + 1)
        return None if inner is None else _or(inner, style.null)

    if kind.is_type(exp.DType.STRUCT):
        fields = [_field_of(value, field, n) for n, field in enumerate(kind.expressions, 1)]
        return _row(value, style, [part(field, field.type) for field in fields])
    is_map, name = kind.is_type(exp.DType.MAP), f"e{depth}"
    suffixes = (".key", ".value") if is_map else ("",)
    elements = [exp.Var(this=f'"{name}"{suffix}') for suffix in suffixes]
    texts = [part(*pair) for pair in zip(elements, kind.expressions, strict=False)]
    if is_map and style is JSON and texts:
        texts[0] = filled("TO_JSON(key_::VARCHAR)::VARCHAR", key_=elements[0])
    known = [each for each in texts if each is not None]
    if len(known) < len(elements):
        return None
    items = call("MAP_ENTRIES", value.copy()) if is_map else value.copy()
    body = concat(known[0], exp.Literal.string(style.equals), known[1]) if is_map else known[0]
    mapped = call("LIST_TRANSFORM", items, lambda_of(name, body))
    joined = call("ARRAY_TO_STRING", mapped, exp.Literal.string(style.separator))
    return _bracketed(value, style.map if is_map else style.array, joined)


def _row(value: exp.Expr, style: Style, texts: Sequence[exp.Expr | None]) -> exp.Expr | None:
    """A row of which the texts of the fields are given; None if one is unknown."""
    assert value.type is not None
    known = [each for each in texts if each is not None]
    if not texts or len(known) < len(texts):
        return None
    if style is JSON:
        fields = zip(value.type.expressions, known, strict=True)
        known = [concat(_label(field, n), each) for n, (field, each) in enumerate(fields)]
    joined = call("CONCAT_WS", exp.Literal.string(style.separator), *known)
    return _bracketed(value, style.row, joined)


def _label(field: exp.Expr, place: int) -> exp.Expr:
    """The name of a field in JSON."""
    name = field.name if isinstance(field, exp.ColumnDef) else f"EXPR${place}"
    return exp.Literal.string(f"{json.dumps(name, ensure_ascii=False)}:")


def _or(text: exp.Expr, null: str) -> exp.Expr:
    return filled(f"COALESCE(x::VARCHAR, '{null}')", x=text)


def _bracketed(source: exp.Expr, brackets: str, body: exp.Expr) -> exp.Expr:
    text = f"CASE WHEN x IS NULL THEN NULL ELSE ('{brackets[0]}' || body || '{brackets[1]}') END"
    return filled(text, x=source.copy(), body=body)


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
        return filled(_UNLESS_NULL, source=source.copy(), made=call("MAP", keys, values))
    fields = [_field_of(source, field, place) for place, field in enumerate(have.expressions, 1)]
    made = _fields(source, fields, kind, cast_one)
    return filled(_UNLESS_NULL, source=source.copy(), made=made)


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
    select = exp.Select(expressions=items, from_=exp.From(this=inner))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=alias.this.copy()))
