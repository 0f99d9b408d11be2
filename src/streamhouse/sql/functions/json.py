"""Builds DuckDB expressions for Flink's JSON functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from sqlglot import exp

from streamhouse.sql.functions.expression_builders import (
    Args,
    Table,
    aggregate,
    any_null,
    call,
    cast,
    concat,
    tried,
    when,
)

_IS_JSON = "json"


def _nested() -> list[exp.Expr]:
    return [exp.Literal.string(kind) for kind in ("OBJECT", "ARRAY")]


_MODE = re.compile(r"^\s*(lax|strict)\s+", re.IGNORECASE)
"""The mode before a path, `lax` or `strict`, as Calcite's `JsonFunctions` parses it."""


def _path(node: exp.Expr) -> exp.Expr:
    """A JSON path without its mode (`lax` or `strict`), which DuckDB does not support."""
    if isinstance(node, exp.Literal) and node.is_string:
        return exp.Literal.string(_MODE.sub("", node.name))
    return node


def _finds_several(path: exp.Expr) -> bool:
    """Whether a path has wildcards: its result is an array, even if nothing matches."""
    return isinstance(path, exp.Literal) and ("*" in path.name or ".." in path.name)


def _kind(text: exp.Expr, *path: exp.Expr) -> exp.Expr:
    """The JSON type (OBJECT, ARRAY, NULL, …) of a text or at its path; null if there is no JSON."""
    if any(map(_finds_several, path)):
        return when(call("JSON_VALID", text.copy()), exp.Literal.string("ARRAY"))
    return tried(partial(call, "JSON_TYPE"), text, *path)


def _json_value(args: Args) -> exp.Expr:
    """JSON_VALUE without ON EMPTY and ON ERROR: the scalar at a path; null if there is none."""
    text, path = args[0], _path(args[1])
    kind = _kind(text, path)
    extracted = tried(partial(call, "JSON_EXTRACT_STRING"), text, path)
    scalar = exp.Not(this=exp.In(this=kind, expressions=_nested()))
    return when(scalar, cast(extracted, "VARCHAR"))


def value_or(
    args: Args, extracted: exp.Expr, empty: exp.Expr | None, error: exp.Expr | None
) -> exp.Expr:
    """JSON_VALUE with the values of ON EMPTY and ON ERROR; None raises an error at runtime.

    `extracted` is the scalar. Invalid JSON, no match, a JSON null and an object or array count as
    ERROR in strict mode, and as EMPTY in lax mode.
    """
    text = args[0]
    kind = _kind(text, _path(args[1]))
    scalar = exp.Not(this=exp.In(this=kind, expressions=[*_nested(), exp.Literal.string("NULL")]))
    failed = call(
        "ERROR", exp.Literal.string("JSON_VALUE: not valid JSON, or no scalar at the path")
    )
    instead = error if _is_strict(args[1]) else empty
    null = exp.Is(this=text.copy(), expression=exp.Null())
    return exp.Case(
        ifs=[exp.If(this=null, true=exp.Null()), exp.If(this=scalar, true=extracted)],
        default=instead or failed,
    )


def _json_query(args: Args) -> exp.Expr:
    """JSON_QUERY without further clauses: the object or array at a path, as JSON text."""
    return query_or(args, "", exp.Null(), exp.Null())


def query_or(args: Args, wrapper: str, empty: exp.Expr | None, error: exp.Expr | None) -> exp.Expr:
    """JSON_QUERY with the values of ON EMPTY and ON ERROR; None raises an error at runtime.

    `wrapper`: UNCONDITIONAL wraps the result in an array, CONDITIONAL does so unless it is one, and
    the empty text never does. Invalid JSON, no match, a JSON null and, without a wrapper, a scalar
    count as ERROR in strict mode, and as EMPTY in lax mode.
    """
    text, path, strict = args[0], _path(args[1]), _is_strict(args[1])
    failed = call("ERROR", exp.Literal.string("JSON_QUERY: not valid JSON, or nothing at the path"))
    empty, error = empty or failed, error or failed.copy()
    kind = _kind(text, path)
    extracted = tried(partial(call, "JSON_EXTRACT"), text, path)
    extracted_text = cast(call("TO_JSON", extracted), "VARCHAR")
    wrapped = concat(exp.Literal.string("["), extracted_text, exp.Literal.string("]"))
    missing = exp.Is(this=kind, expression=exp.Null())
    is_null = exp.EQ(this=kind.copy(), expression=exp.Literal.string("NULL"))
    scalar = exp.Not(this=exp.In(this=kind.copy(), expressions=_nested()))
    array = exp.EQ(this=kind.copy(), expression=exp.Literal.string("ARRAY"))
    cases: list[tuple[exp.Expr, exp.Expr]] = [
        (exp.Is(this=text.copy(), expression=exp.Null()), exp.Null()),
        (missing, error if strict else empty),
        # Flink 1.20 treats a JSON null as an error in strict mode.
        (is_null, error if strict else empty),
    ]
    if not wrapper:
        cases.append((scalar, error if strict else empty))
    elif wrapper == "CONDITIONAL":
        cases.append((array, extracted_text.copy()))
    ifs = [exp.If(this=condition, true=then.copy()) for condition, then in cases]
    return cast(exp.Case(ifs=ifs, default=wrapped if wrapper else extracted_text), "VARCHAR")


def _is_strict(path: exp.Expr) -> bool:
    """Whether a path is in strict mode, the default in Flink: it does not start with `lax`."""
    mode = _MODE.match(path.name) if isinstance(path, exp.Literal) else None
    return mode is None or mode[1].lower() != "lax"


def _json_exists(args: Args) -> exp.Expr:
    return exists_or(args, exp.false())


def exists_or(args: Args, error: exp.Expr | None) -> exp.Expr:
    """JSON_EXISTS with the value of ON ERROR; None raises an error at runtime.

    Invalid JSON, no match and a JSON null are errors in strict mode only; in lax mode they give
    FALSE.
    """
    text, path = args[0], _path(args[1])
    matches = exp.NEQ(this=_kind(text, path), expression=exp.Literal.string("NULL"))
    exists: exp.Expr = exp.Coalesce(this=cast(exp.Paren(this=matches), "BOOLEAN"),
                                   expressions=[exp.false()])  # fmt: skip
    if _is_strict(args[1]):
        failed = call(
            "ERROR", exp.Literal.string("JSON_EXISTS: not valid JSON, or nothing at the path")
        )
        exists = when(exists, exp.true(), error or failed)
    return when(exp.Is(this=text.copy(), expression=exp.Null()), exp.Null(), exists)


def is_json(text: exp.Expr, kind: str) -> exp.Expr:
    """text IS JSON [VALUE | SCALAR | ARRAY | OBJECT]; false for a null."""
    json_type = _kind(text)
    if kind in ("ARRAY", "OBJECT"):
        condition: exp.Expr = exp.EQ(this=json_type, expression=exp.Literal.string(kind))
    elif kind == "SCALAR":
        condition = exp.Not(this=exp.In(this=json_type, expressions=_nested()))
    else:
        condition = exp.Not(this=exp.Is(this=json_type, expression=exp.Null()))
    return exp.Coalesce(this=cast(exp.Paren(this=condition), "BOOLEAN"), expressions=[exp.false()])


def json_object(pairs: Sequence[tuple[exp.Expr, exp.Expr]], absent: bool) -> exp.Expr:
    """JSON_OBJECT(KEY k VALUE v, …); `absent` omits members whose value is null."""
    if not pairs:
        return exp.Literal.string("{}")
    members = [
        (concat(_json(key), exp.Literal.string(":"), _value(value)), value) for key, value in pairs
    ]
    return _between("{", members, "}", absent)


def json_array(values: Sequence[exp.Expr], absent: bool) -> exp.Expr:
    """JSON_ARRAY(v, …); `absent` omits nulls."""
    if not values:
        return exp.Literal.string("[]")
    return _between("[", [(_value(value), value) for value in values], "]", absent)


def array_of_rows(value: exp.Expr, absent: bool) -> exp.Expr:
    """JSON_ARRAYAGG(value); `absent` omits nulls."""
    return made(aggregate("JSON_ARRAYAGG", _member(_value(value), value, absent)))


def object_of_rows(key: exp.Expr, value: exp.Expr, absent: bool) -> exp.Expr:
    """JSON_OBJECTAGG(key VALUE value); `absent` omits members whose value is null."""
    pair = concat(_json(key), exp.Literal.string(":"), _value(value))
    return made(aggregate("JSON_OBJECTAGG", _member(pair, value, absent), key))


def _member(text: exp.Expr, value: exp.Expr, absent: bool) -> exp.Expr:
    """The text of a member; null if `absent` omits it."""
    not_null = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
    return when(not_null, text) if absent else text


def _between(
    start: str, members: Sequence[tuple[exp.Expr, exp.Expr]], end: str, absent: bool
) -> exp.Expr:
    parts = [_member(text, value, absent) for text, value in members]
    joined = call("CONCAT_WS", exp.Literal.string(","), *parts)
    whole = concat(exp.Literal.string(start), joined, exp.Literal.string(end))
    return cast(exp.Paren(this=whole), "VARCHAR")


def _json(node: exp.Expr) -> exp.Expr:
    return cast(call("TO_JSON", node.copy()), "VARCHAR")


def _value(node: exp.Expr) -> exp.Expr:
    """A value as JSON text; the result of a JSON function is not encoded again."""
    text = node.copy() if node.meta.get(_IS_JSON) else _json(node)
    return exp.Coalesce(this=text, expressions=[exp.Literal.string("null")])


def made(node: exp.Expr) -> exp.Expr:
    """Mark a node as JSON text that a JSON function has made."""
    node.meta[_IS_JSON] = True
    return node


def _json_string(args: Args) -> exp.Expr:
    text = cast(call("TO_JSON", args[0]), "VARCHAR")
    return any_null([args[0]], text)


def _json_quote(args: Args) -> exp.Expr:
    return any_null([args[0]], cast(call("TO_JSON", cast(args[0], "VARCHAR")), "VARCHAR"))


def _json_unquote(args: Args) -> exp.Expr:
    """JSON_UNQUOTE: the text of a JSON string; any other text as it is."""
    text = args[0]
    is_string = exp.EQ(this=_kind(text), expression=exp.Literal.string("VARCHAR"))
    inner = call("JSON_EXTRACT_STRING", text.copy(), exp.Literal.string("$"))
    return cast(when(is_string, inner, text), "VARCHAR")


def _json_length(args: Args) -> exp.Expr:
    """JSON_LENGTH: the size of an object or array, 1 for a scalar, null if there is no JSON."""
    document = args[0]
    if len(args) > 1:
        document = cast(tried(partial(call, "JSON_EXTRACT"), args[0], _path(args[1])), "VARCHAR")
    kind = _kind(document)
    keys = call("LEN", call("JSON_KEYS", document.copy()))
    items = call("JSON_ARRAY_LENGTH", document.copy())
    not_null = exp.Not(this=exp.Is(this=kind.copy(), expression=exp.Null()))
    cases = [
        exp.If(this=exp.EQ(this=kind, expression=exp.Literal.string("OBJECT")), true=keys),
        exp.If(this=exp.EQ(this=kind.copy(), expression=exp.Literal.string("ARRAY")), true=items),
        exp.If(this=not_null, true=exp.Literal.number(1)),
    ]
    return cast(exp.Case(ifs=cases), "INT")


TABLE: Table = {
    "JSON_VALUE": (2, 2, _json_value),
    "JSON_QUERY": (2, 2, _json_query),
    "JSON_EXISTS": (2, 2, _json_exists),
    "JSON_LENGTH": (1, 2, _json_length),
    "JSON_QUOTE": (1, 1, _json_quote),
    "JSON_STRING": (1, 1, lambda args: made(_json_string(args))),
    "JSON_UNQUOTE": (1, 1, _json_unquote),
}
