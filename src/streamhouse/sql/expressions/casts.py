"""CAST between texts and bytes, and to types with a length.

Flink converts between texts and bytes as UTF-8; DuckDB reads and writes escapes such as `\\x41`. A
value longer than its type is truncated; CHAR(n) is padded with spaces, BINARY(n) with zero bytes.
"""

from __future__ import annotations

from functools import partial

from sqlglot import exp

from streamhouse.sql.expressions import double_rounding
from streamhouse.sql.functions import expression_builders
from streamhouse.sql.functions.expression_builders import call, cast, number, when
from streamhouse.sql.types import base, digits

_BLOBS = (exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB)
_FIXED = (exp.DType.CHAR, exp.DType.NCHAR)


def readable(source: exp.Expr, tried: bool) -> exp.Expr | None:
    """Bytes decoded to a text; None if `source` is not bytes.

    Bytes that are not UTF-8 end the query, as in Flink 2 (1.20 replaces them by U+FFFD); with
    `tried` (TRY_CAST) they give null.
    """
    if not source.is_type(*_BLOBS):
        return None
    decode = partial(call, "DECODE")
    return expression_builders.tried(decode, source) if tried else decode(source)


def sized(text: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """A text truncated or padded to the length of its type, if it has one."""
    size = _size(kind, exp.DType.CHAR)
    if size is None:
        return text
    return cast(_text(text, size, kind.is_type(*_FIXED)), "VARCHAR")


_WHOLE = " *[+-]?[0-9]+ *"
_WITH_FRACTION = "^( *[+-]?)([0-9]*)[.][0-9]* *$"
_OTHER_NUMBER = "^(.*[0-9].*[a-zA-Z_].*)$"


def whole_text(text: exp.Expr) -> exp.Expr:
    """The text of a number for a cast to an integer type, without its fraction.

    DuckDB would round it. Texts that only DuckDB reads (`1e3`, `0x1F`, `1_000`) get quotes, so that
    the cast fails as in Flink.
    """
    string = exp.Literal.string
    cut = call("REGEXP_REPLACE", text.copy(), string(_WITH_FRACTION), string("\\10\\2"))
    quoted = call("REGEXP_REPLACE", cut, string(_OTHER_NUMBER), string('"\\1"'))
    if not double_rounding.is_repeatable(text):
        return quoted
    is_whole = call("REGEXP_FULL_MATCH", text.copy(), string(_WHOLE))
    return when(is_whole, text.copy(), quoted)


def clock_text(text: exp.Expr) -> exp.Expr:
    """A text for a cast to TIME: `12` is an hour; a date gets quotes, so that the cast fails."""
    string = exp.Literal.string
    hour = call("REGEXP_REPLACE", text, string("^ *([0-9]{1,2}) *$"), string("\\1:00"))
    return call("REGEXP_REPLACE", hour, string("^(.*[0-9]-[0-9].*)$"), string('"\\1"'))


def as_bytes(source: exp.Expr, kind: exp.DataType, tried: bool) -> exp.Expr:
    """A text or bytes as bytes, truncated or padded to the length of the type."""
    if source.is_type(*exp.DataType.TEXT_TYPES):
        value: exp.Expr = call("ENCODE", source)
    elif source.is_type(*_BLOBS, exp.DType.NULL):
        value = cast(source, "BLOB")
    else:
        value = _of_unknown(source)
    size = _size(kind, exp.DType.BINARY)
    if size is not None:
        value = _bytes(value, size, kind.is_type(exp.DType.BINARY))
    return cast(value, "BLOB")


def fitted(value: exp.Expr, flink: str) -> exp.Expr:
    """A value for a column of a Flink type, truncated or padded to the type's length if it has one.

    Flink's planner inserts the same cast, whatever `table.exec.sink.type-length-enforcer` is.
    """
    word = base(flink)
    if word in ("CHAR", "VARCHAR") and "(" in flink:
        return _text(value, digits(flink), word == "CHAR")
    if word in ("BINARY", "VARBINARY") and "(" in flink:
        return _bytes(cast(value, "BLOB"), digits(flink), word == "BINARY")
    return value


def _text(value: exp.Expr, size: int, filled: bool) -> exp.Expr:
    if filled:
        return call("RPAD", value, number(size), exp.Literal.string(" "))
    return call("LEFT", value, number(size))


def _bytes(value: exp.Expr, size: int, filled: bool) -> exp.Expr:
    if filled:
        zeros = cast(exp.Literal.string("\\x00" * size), "BLOB")
        value = exp.Paren(this=exp.DPipe(this=value, expression=zeros))
    return call("ARRAY_SLICE", value, number(1), number(size))


def _of_unknown(source: exp.Expr) -> exp.Expr:
    """Bytes of a value of unknown type; the generated SQL tests the type."""
    is_blob = exp.EQ(this=call("TYPEOF", source.copy()), expression=exp.Literal.string("BLOB"))
    text = call("ENCODE", cast(source.copy(), "VARCHAR"))
    return when(is_blob, cast(source.copy(), "BLOB"), text)


def _size(kind: exp.DataType, fixed: exp.DType) -> int | None:
    """The length in parentheses; without one 1 for CHAR and BINARY, None for other types."""
    if kind.expressions:
        return int(kind.expressions[0].name)
    return 1 if kind.is_type(fixed) else None
