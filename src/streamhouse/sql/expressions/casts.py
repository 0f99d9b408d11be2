"""CAST in DuckDB's terms, and the texts and JSON of values.

Flink converts between texts and bytes as UTF-8; DuckDB reads and writes escapes such as `\\x41`. A
value longer than its type is truncated; CHAR(n) is padded with spaces, BINARY(n) with zero bytes.
"""

from functools import partial

from sqlglot import exp

from streamhouse.sql.expressions import intervals, nested_values, timestamp_digits, zones
from streamhouse.sql.functions import times
from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import (
    GENERATED,
    LOCAL,
    call,
    cast,
    number,
    tried,
    try_cast,
    zone_marked,
)
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.types import base, digits

_BLOBS = (exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB)
_FIXED = (exp.DType.CHAR, exp.DType.NCHAR)
_INTS = exp.DataType.INTEGER_TYPES
_TIME = exp.DType.TIME
_REALS = (exp.DType.FLOAT, exp.DType.DOUBLE)
_NESTED = (exp.DType.ARRAY, exp.DType.MAP, exp.DType.STRUCT)


_WORDS = {
    **dict.fromkeys((exp.DType.BINARY, exp.DType.VARBINARY), "BLOB"),
    **dict.fromkeys(exp.DataType.TEXT_TYPES, "VARCHAR"),
    exp.DType.TIME: "TIME",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMPTZ",
}
"""The names of types in DuckDB that have other ones in Flink, whatever their parameters."""


def _duck(kind: exp.DataType) -> exp.DataType:
    """DuckDB's type for a CAST; the precision of a TIMESTAMP decides its unit."""
    word = _WORDS.get(kind.this)
    if kind.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ):
        size = timestamp_digits.precision(kind)
        word = "TIMESTAMP_MS" if size <= 3 else "TIMESTAMP" if size <= 6 else "TIMESTAMP_NS"
    if word is not None:
        return exp.DataType.build(word, dialect="duckdb")
    if kind.is_type(*_NESTED):
        kind = kind.copy()
        for part in list(kind.expressions):
            inner = part.args["kind"] if isinstance(part, exp.ColumnDef) else part
            inner.replace(_duck(inner))
    return kind


def is_allowed(source: exp.DataType, to: exp.DataType) -> bool:
    """Whether Flink casts between two types; always true for types that are not listed here."""
    families = (
        (exp.DType.BOOLEAN, *_INTS, *_REALS, exp.DType.DECIMAL),
        (exp.DType.DATE, exp.DType.TIME, *times.TIMESTAMPS),
        (*_BLOBS,),
    )
    of_source = [family for family in families if source.is_type(*family)]
    of_target = [family for family in families if to.is_type(*family)]
    if of_source and of_target and of_source == of_target:
        both = (source.this, to.this)
        return both not in ((exp.DType.DATE, exp.DType.TIME), (exp.DType.TIME, exp.DType.DATE))
    return not (of_source and of_target)


def converted(node: exp.Cast) -> exp.Expr:
    """A CAST or TRY_CAST to a Flink type in DuckDB's terms; its operand must be typed."""
    kind = node.args["to"]
    to = _duck(kind)
    is_try = isinstance(node, exp.TryCast)
    into = try_cast if is_try else cast
    if kind.is_type(exp.DType.BINARY, exp.DType.VARBINARY):
        new = as_bytes(node.this, kind, is_try)
    elif to.is_type(*exp.DataType.TEXT_TYPES):
        value = readable(node.this, is_try) or _text_of(node.this)
        new = sized(into(value, to), kind)
    else:
        new = into(_value_of(node, to), to)
        zones.mark(new, node.this.type)
        if kind.is_type(_TIME):
            new = truncated_time(times.on_epoch_day(new), timestamp_digits.precision(kind, 0))
    if kind.is_type(exp.DType.TIMESTAMPLTZ) and timestamp_digits.precision(kind) <= 3:
        unit = "milliseconds" if timestamp_digits.precision(kind) else "second"
        new = filled(f"DATE_TRUNC('{unit}', time)::TIMESTAMPTZ", time=new)
    if kind.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ):
        if timestamp_digits.precision(kind) == 0:
            new = filled("DATE_TRUNC('second', time)::TIMESTAMP_MS", time=new)
        timestamp_digits.mark(new, timestamp_digits.precision(kind))
    if kind.is_type(exp.DType.TIMESTAMPLTZ):
        timestamp_digits.mark(new, timestamp_digits.precision(kind))
    new.meta[GENERATED] = True
    new.type = timestamp_digits.with_precisions(to, kind)
    return new


def _value_of(node: exp.Cast, to: exp.DataType) -> exp.Expr:
    """The operand of a cast, truncated where Flink truncates and DuckDB would round.

    A TIME that is cast to a TIMESTAMP gets the date 1970-01-01.
    """
    source: exp.Expr = node.this
    if to.is_type(*_NESTED):
        if not isinstance(node, exp.TryCast):
            return _cast_elements(source, node.to)

        def cast_all(part: exp.Expr) -> exp.Expr:
            part.type = source.type
            return _cast_elements(part, node.to)

        # One element that cannot be cast makes the whole value null.
        return tried(cast_all, source)
    if source.is_type(_TIME) and to.is_type(*times.TIMESTAMPS):
        return times.on_epoch_day(source)
    if source.is_type(exp.DType.TIMESTAMP_NS) and not to.is_type(exp.DType.TIMESTAMP_NS):
        source = timestamp_digits.in_micros(source)
    if source.is_type(*exp.DataType.TEXT_TYPES):
        if to.is_type(*_INTS, *_REALS, exp.DType.DECIMAL):
            return number_text(source, to)
        return times.strict_text(source, to)
    if to.is_type(*_INTS) and source.is_type(*_REALS, exp.DType.DECIMAL):
        return call("TRUNC", source)
    if to.is_type(exp.DType.DECIMAL) and source.is_type(exp.DType.DOUBLE):
        # DuckDB would round the binary value; its text is rounded as Flink does.
        return cast(source, "VARCHAR")
    timestamp = source.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
    if to.is_type(exp.DType.TIMESTAMP_MS) and timestamp:
        return call("DATE_TRUNC", exp.Literal.string("milliseconds"), source)
    return source


def _cast_elements(source: exp.Expr, kind: exp.DataType) -> exp.Expr:
    return nested_values.cast_elements(
        source, kind, lambda part, to: converted(exp.Cast(this=part, to=to.copy()))
    )


def to_timestamp(node: exp.Cast) -> exp.Cast:
    """Adapt a plain cast to TIMESTAMP of a value that DuckDB could not cast, or would round."""
    if not node.to.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ):
        return node
    if node.this.is_type(_TIME):
        node.set("this", times.on_epoch_day(node.this))
    elif node.this.is_type(exp.DType.TIMESTAMP_NS):
        node.set("this", timestamp_digits.in_micros(node.this))
    elif intervals.units(node.this):
        node.set("to", exp.DataType.build("INTERVAL"))
    return node


def truncated_time(timestamp: exp.Expr, digits: int) -> exp.Expr:
    """The TIME of a TIMESTAMP, truncated to seconds (0 digits) or else to milliseconds."""
    unit = "milliseconds" if digits else "second"
    new = filled(f"DATE_TRUNC('{unit}', time)::TIME", time=timestamp)
    timestamp_digits.mark(new, digits)
    return new


def _text_of(source: exp.Expr) -> exp.Expr:
    if source.is_type(exp.DType.BOOLEAN):
        return exp.Upper(this=cast(source, "VARCHAR"))
    if source.is_type(*_REALS):
        return _real_text(source)
    interval = intervals.text(source)
    if interval is not None:
        return interval
    if nested_values.is_row(source):
        return nested_values.of_row(source, _text_of)
    if source.is_type(exp.DType.ARRAY, exp.DType.LIST, exp.DType.MAP, exp.DType.STRUCT):
        return nested_values.written(source, nested_values.TEXT, _element_text) or source
    return source if source.type is None else _time_text(source)


def _element_text(element: exp.Expr) -> exp.Expr:
    """The text of an element of an array, map or row."""
    return cast(_text_of(element), "VARCHAR")


def _real_text(source: exp.Expr) -> exp.Expr:
    """The text of a FLOAT or DOUBLE as Java writes it.

    For a DOUBLE from 0.001 to 9,999,999 DuckDB's own text is the same.
    """
    if source.is_type(exp.DType.FLOAT):
        return arrow_call("float_text", source)
    return filled(
        "CASE WHEN ABS(x) BETWEEN 0.001 AND 9999999 THEN x::VARCHAR ELSE other END",
        x=source.copy(), other=arrow_call("double_text", source),
    )  # fmt: skip


def _time_text(source: exp.Expr) -> exp.Expr:
    """The text of a timestamp with all digits of its fraction; DuckDB drops trailing zeros."""
    if source.is_type(*zones.INSTANTS) and timestamp_digits.declared_precision(source) is None:
        return _zoned_text(zone_marked(cast(source, "TIMESTAMP"), LOCAL))
    return timestamp_digits.text(source) or source


OTHER_JSON = (
    *_REALS, exp.DType.DECIMAL, *times.TIMESTAMPS,
    exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB,
)  # fmt: skip
"""Types of which DuckDB writes another JSON than Flink."""


def json_scalar(value: exp.Expr) -> exp.Expr:
    """A value as JSON: numbers as Java writes them, ISO 8601 timestamps, bytes as Base64."""
    if value.is_type(*_REALS):
        return filled(
            "CASE WHEN ISFINITE(x::DOUBLE) THEN text ELSE '\"' || text || '\"' END",
            x=value.copy(), text=cast(_real_text(value), "VARCHAR"),
        )  # fmt: skip
    if value.is_type(exp.DType.DECIMAL):
        return filled(
            "CASE WHEN CONTAINS(x::VARCHAR, '.') THEN RTRIM(RTRIM(x::VARCHAR, '0'), '.')"
            " ELSE x::VARCHAR END",
            x=value,
        )
    if value.is_type(exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB):
        return filled("'\"' || BASE64(x) || '\"'", x=value)
    if value.is_type(*times.TIMESTAMPS):
        return filled("'\"' || x || '\"'", x=timestamp_digits.iso_text(value))
    return filled("TO_JSON(x)::VARCHAR", x=value)


def _zoned_text(timestamp: exp.Expr) -> exp.Expr:
    """The text of a TIMESTAMP_LTZ: milliseconds, or microseconds if it has any.

    It is for values whose precision is unknown.
    """
    whole, form = "DATE_TRUNC('milliseconds', time)", "%Y-%m-%d %H:%M:%S."
    return filled(
        f"CASE WHEN {whole} = time THEN STRFTIME(time, '{form}%g')"
        f" ELSE STRFTIME(time, '{form}%f') END",
        time=timestamp,
    )


def readable(source: exp.Expr, is_try: bool) -> exp.Expr | None:
    """Bytes decoded to a text; None if `source` is not bytes.

    Bytes that are not UTF-8 end the query, as in Flink 2 (1.20 replaces them by U+FFFD); with
    `is_try` (TRY_CAST) they give null.
    """
    if not source.is_type(*_BLOBS):
        return None
    decode = partial(call, "DECODE")
    return tried(decode, source) if is_try else decode(source)


def sized(text: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """A text truncated or padded to the length of its type, if it has one."""
    size = _size(kind, exp.DType.CHAR)
    if size is None:
        return text
    return cast(_text(text, size, kind.is_type(*_FIXED)), "VARCHAR")


_WHOLE = " *([+-]?)(?:([0-9]+)(?:[.][0-9]*)?|[.][0-9]+) *"
_NUMBER = " *([+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:NaN|Infinity)) *"


def number_text(text: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """The text of a number for a cast that fails for texts that only DuckDB reads: `1_000`, `inf`.

    For an integer type it is without its fraction, which DuckDB would round.
    """
    if kind.is_type(*_INTS):
        return times.in_form(text, _WHOLE, "\\10\\2", "'")
    return times.in_form(text, _NUMBER, "\\1", "'")


def as_bytes(source: exp.Expr, kind: exp.DataType, is_try: bool) -> exp.Expr:
    """A text or bytes as bytes, truncated or padded to the length of the type."""
    if source.is_type(*exp.DataType.TEXT_TYPES):
        value: exp.Expr = call("ENCODE", source)
    elif source.is_type(*_BLOBS, exp.DType.NULL):
        value = cast(source, "BLOB")
    else:
        # The type is unknown, so the generated SQL tests it.
        test = "CASE WHEN TYPEOF(x) = 'BLOB' THEN x::BLOB ELSE ENCODE(x::VARCHAR) END"
        value = filled(test, x=source.copy())
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


def _size(kind: exp.DataType, fixed: exp.DType) -> int | None:
    """The length in parentheses; without one 1 for CHAR and BINARY, None for other types."""
    if kind.expressions:
        return int(kind.expressions[0].name)
    return 1 if kind.is_type(fixed) else None
