"""Derives the SQL types of a Python function from its annotations.

`Annotated[pa.Array, "DECIMAL(10, 2)"]` and `Annotated[pa.Array, pa.int64()]` make a function of
arrays; plain Python types, and `Annotated[Decimal, "DECIMAL(10, 2)"]`, one of a row's values.
"""

import datetime
import inspect
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, get_args, get_origin

import pyarrow as pa

from streamhouse.errors import SqlError
from streamhouse.sql.parser import query_parser
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.parser.types import parse_type
from streamhouse.sql.text import Script
from streamhouse.sql.types import base, digits
from streamhouse.sql.udf.function import Signature, ValueType
from streamhouse.types import NAMES, flink_type, mapped

_PLAIN: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BYTES",
    datetime.date: "DATE",
    datetime.time: "TIME(3)",
    datetime.datetime: "TIMESTAMP(6)",
}
_PRECISIONS = {"TIME": (0, 3), "TIMESTAMP": (0, 3, 6, 9), "TIMESTAMP_LTZ": (0, 3, 6)}
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class SignatureError(ValueError):
    """A function that SQL cannot call; the message says what to change."""


def signature_of(function: Callable[..., object]) -> Signature:
    """The types of a function; `SignatureError` if one is missing or is no SQL type."""
    if inspect.isclass(function) or not callable(function):
        raise SignatureError("it is not a function; name one that def defines")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise SignatureError("it is asynchronous, or a generator; write a plain def with return")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError, AttributeError) as error:
        raise SignatureError(f"its annotations cannot be read: {error}") from None
    types, kinds = [], []
    for parameter in parameters:
        if parameter.kind not in _POSITIONAL:
            raise SignatureError(
                f"parameter '{parameter.name}' cannot be passed by position; declare each "
                "argument as its own parameter"
            )
        if parameter.name not in hints:
            raise SignatureError(
                f"parameter '{parameter.name}' has no type; annotate it with {parameter.name}: int "
                f'or {parameter.name}: Annotated[pa.Array, "BIGINT"]'
            )
        value_type, arrays = _value_type(hints[parameter.name], f"parameter '{parameter.name}'")
        types.append(value_type)
        kinds.append(arrays)
    if not types:
        raise SignatureError("it has no parameters; write its value into the SQL instead")
    if "return" not in hints:
        raise SignatureError("its result has no type; annotate it, such as -> int")
    result, arrays = _value_type(hints["return"], "the result")
    if {*kinds, arrays} == {True, False}:
        raise SignatureError(
            "it mixes arrays and single values; annotate all parameters and the result with "
            "pa.Array, or none"
        )
    return Signature(tuple(types), result, arrays)


def _value_type(hint: Any, what: str) -> tuple[ValueType, bool]:
    """The type of one annotation, and whether the annotation is one of arrays."""
    hint, optional = _without_none(hint)
    types: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        types = [extra for extra in extras if isinstance(extra, str | pa.DataType)]
        hint, inner_optional = _without_none(hint)
        optional = optional or inner_optional
    arrays = inspect.isclass(hint) and issubclass(hint, pa.Array | pa.ChunkedArray)
    if len(types) > 1:
        raise SignatureError(f"{what} has two types; write one")
    if types:
        kind = _of_text(types[0], what) if isinstance(types[0], str) else _of_arrow(types[0], what)
    elif hint in _PLAIN:
        kind = _PLAIN[hint]
    else:
        raise SignatureError(f"{what} has no SQL type; {_suggestion(hint, arrays)}")
    if not arrays and kind == "TIMESTAMP(9)":
        raise SignatureError(
            f"{what} is TIMESTAMP(9), which Python's datetime cannot hold; use arrays, or "
            "TIMESTAMP(6)"
        )
    return ValueType(kind, True if arrays else optional), arrays


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`T` of `T | None`, and whether the annotation allows None."""
    if get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    parts = [part for part in get_args(hint) if part is not type(None)]
    if len(parts) != 1:
        return hint, False
    return parts[0], len(parts) < len(get_args(hint))


def _suggestion(hint: Any, arrays: bool) -> str:
    if arrays:
        return 'write Annotated[pa.Array, "BIGINT"], with its own type'
    if hint is Decimal:
        return 'write Annotated[Decimal, "DECIMAL(10, 2)"]'
    types = ", ".join(kind.__name__ for kind in _PLAIN)
    return f'annotate it with one of {types}, or with Annotated[…, "ARRAY<STRING>"]'


def _of_text(text: str, what: str) -> str:
    script = Script(text)
    try:
        cursor = Cursor(script, query_parser.lex(script))
        kind = parse_type(cursor)
        cursor.end("the end of the type")
    except SqlError as error:
        raise SignatureError(f"{what}: '{text}' is not a SQL type: {error.message}") from None
    word = base(kind)
    if word in ("CHAR", "VARCHAR", "BINARY", "VARBINARY"):
        plain = "STRING" if "CHAR" in word else "BYTES"
        raise SignatureError(f"{what} is {kind}; types of a function have no length, write {plain}")
    if word in _PRECISIONS and digits(kind) not in _PRECISIONS[word]:
        allowed = " or ".join(f"{word}({precision})" for precision in _PRECISIONS[word])
        raise SignatureError(f"{what} is {kind}; write {allowed}")
    return kind


def _of_arrow(kind: pa.DataType, what: str) -> str:
    def checked(part: pa.DataType) -> pa.DataType:
        moment = pa.types.is_timestamp(part) and part.tz in (None, "UTC")
        if not (
            part in NAMES or moment or pa.types.is_decimal128(part) or pa.types.is_time32(part)
        ):
            raise SignatureError(
                f"{what} is Arrow's {part}, which matches no SQL type; write the SQL type"
            )
        return part

    return _of_text(flink_type(mapped(kind, checked)), what)
