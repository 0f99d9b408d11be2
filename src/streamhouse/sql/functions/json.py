"""Builds DuckDB expressions for Flink's JSON functions."""

from collections.abc import Sequence
from typing import TypeAlias

from sqlglot import exp

from streamhouse.sql.functions import json_path
from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import (
    Args,
    ArgumentError,
    Table,
    aggregate,
    any_null,
    call,
    cast,
    concat,
)
from streamhouse.sql.functions.macros import filled

_IS_JSON = "json"
Handler: TypeAlias = exp.Expr | None
"""The value of ON EMPTY or ON ERROR; None raises an error at run time."""


def _path(node: exp.Expr) -> exp.Expr:
    """A path; `ArgumentError` for a literal one that is not valid or not supported."""
    if isinstance(node, exp.Literal) and node.is_string:
        try:
            json_path.compiled(node.name)
        except json_path.PathError as error:
            raise ArgumentError(str(error), unsupported=True) from None
    return node


def _default(handler: Handler) -> exp.Expr:
    """A handler for `json_path.value`: `D` and a default, `E` for an error, or null."""
    if handler is None:
        return exp.Literal.string("E")
    if isinstance(handler, exp.Null):
        return handler
    return concat(exp.Literal.string("D"), cast(handler, "VARCHAR"))


def _constant(handler: Handler) -> str:
    """A handler of JSON_QUERY and JSON_EXISTS as text: `E` for an error, or empty for null."""
    if handler is None:
        return "E"
    return "" if isinstance(handler, exp.Null) else handler.sql().strip("'")


def value_or(args: Args, empty: Handler, error: Handler) -> exp.Expr:
    """JSON_VALUE: the scalar at a path, or the values of ON EMPTY and ON ERROR.

    Invalid JSON, no match and an object or array count as ERROR in strict mode, and as EMPTY in lax
    mode.
    """
    return arrow_call("json_value", args[0], _path(args[1]), _default(empty), _default(error))


def query_or(args: Args, wrapper: str, empty: Handler, error: Handler) -> exp.Expr:
    """JSON_QUERY: the object or array at a path as JSON text, or those of ON EMPTY and ON ERROR.

    `wrapper`: UNCONDITIONAL wraps the result in an array, CONDITIONAL does so unless it is one, and
    the empty text never does. A scalar without a wrapper counts as in JSON_VALUE.
    """
    clauses = ",".join([wrapper[:1], _constant(empty), _constant(error)])
    return arrow_call("json_query", args[0], _path(args[1]), exp.Literal.string(clauses))


def exists_or(args: Args, error: Handler) -> exp.Expr:
    """JSON_EXISTS with the value of ON ERROR, which counts in strict mode only."""
    handler = exp.Literal.string(_constant(error))
    return cast(arrow_call("json_exists", args[0], _path(args[1]), handler), "BOOLEAN")


def is_json(text: exp.Expr, kind: str) -> exp.Expr:
    """text IS JSON [VALUE | SCALAR | ARRAY | OBJECT]; false for a null."""
    known = kind in ("ARRAY", "OBJECT", "SCALAR")
    test = f"found = '{kind}'" if known else "NOT found IS NULL"
    return filled(f"COALESCE(({test})::BOOLEAN, FALSE)", found=arrow_call("json_kind", text))


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
    not_null = "CASE WHEN NOT value IS NULL THEN member END"
    return filled(not_null, value=value.copy(), member=text) if absent else text


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


def _json_length(args: Args) -> exp.Expr:
    """JSON_LENGTH: the size of an object or array, 1 for a scalar, null if there is no JSON."""
    path = args[1] if len(args) > 1 else exp.Literal.string("$")
    return arrow_call("json_length", args[0], _path(path))


TABLE: Table = {
    "JSON_LENGTH": (1, 2, _json_length),
    "JSON_STRING": (1, 1, lambda args: made(any_null(args, _json(args[0])))),
}
