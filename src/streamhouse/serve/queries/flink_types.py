"""Maps Arrow types to Flink SQL types."""

from __future__ import annotations

import pyarrow as pa

_PLAIN = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INT",
    pa.uint32(): "BIGINT",
    pa.uint64(): "DECIMAL(20, 0)",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.string_view(): "STRING",
    pa.binary(): "BYTES",
    pa.large_binary(): "BYTES",
    pa.binary_view(): "BYTES",
    pa.date32(): "DATE",
    pa.null(): "STRING",
}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def sql_type(kind: pa.DataType) -> str:
    """The type in Flink's spelling, such as `DECIMAL(10, 2)` or `ARRAY<STRING>`."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        word = "TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ"
        return f"{word}({_DIGITS[kind.unit]})"
    if pa.types.is_time(kind):
        return f"TIME({_DIGITS[kind.unit]})"
    if pa.types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"ROW<{', '.join(f'`{field.name}` {sql_type(field.type)}' for field in kind)}>"
    if pa.types.is_fixed_size_binary(kind):
        return f"BINARY({kind.byte_width})"
    return str(kind).upper()
