"""Converts between Flink's column types and Arrow's."""

import re
from collections.abc import Callable

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError

ATOMIC: tuple[tuple[str, str, pa.DataType], ...] = (
    ("BOOLEAN", "BOOLEAN", pa.bool_()),
    ("TINYINT", "TINYINT", pa.int8()),
    ("SMALLINT", "SMALLINT", pa.int16()),
    ("INT", "INTEGER", pa.int32()),
    ("BIGINT", "BIGINT", pa.int64()),
    ("FLOAT", "FLOAT", pa.float32()),
    ("DOUBLE", "DOUBLE", pa.float64()),
    ("STRING", "VARCHAR", pa.string()),
    ("BYTES", "BLOB", pa.binary()),
    ("DATE", "DATE", pa.date32()),
)
"""The types without parameters, as those of Flink, DuckDB and Arrow."""
STORED_AS = {
    "INTEGER": "INT",
    **dict.fromkeys(("CHAR", "VARCHAR"), "STRING"),
    **dict.fromkeys(("BINARY", "VARBINARY"), "BYTES"),
}
"""Flink's types whose values are those of another one."""
NAMES = {arrow: flink for flink, _, arrow in ATOMIC}
"""The names of Arrow types that need no parameters."""
_WIDER_NAMES: dict[pa.DataType, str] = {
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INT",
    pa.uint32(): "BIGINT",
    pa.uint64(): "DECIMAL(20, 0)",
    pa.large_string(): "STRING",
    pa.string_view(): "STRING",
    pa.large_binary(): "BYTES",
    pa.binary_view(): "BYTES",
    pa.null(): "STRING",
}
"""Types of query results that no column has, and the types that hold their values."""
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The digits after the seconds of the units of times."""
PLAIN = {flink: arrow for flink, _, arrow in ATOMIC} | {"TIME": pa.time32("ms")}
PLAIN |= {flink: PLAIN[other] for flink, other in STORED_AS.items()}
"""The Arrow types of Flink's types that have the same one whatever their parameters."""
_SHAPE = re.compile(r"^([A-Z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?$")


def arrow_type(flink_type: str) -> pa.DataType:
    """The Arrow type of an atomic Flink type such as `DECIMAL(10,2)` or `TIMESTAMP(3)`.

    Timestamps are zoneless, of milliseconds up to precision 3, else microseconds; `TIMESTAMP_LTZ`
    has the zone UTC. Raises `OptionError` for types that are not atomic.
    """
    match = _SHAPE.match(flink_type.strip().upper().removesuffix(" NOT NULL"))
    name = match.group(1) if match else flink_type
    if match is not None:
        if name in PLAIN:
            return PLAIN[name]
        precision = None if match.group(2) is None else int(match.group(2))
        if name in ("DECIMAL", "NUMERIC"):
            return pa.decimal128(precision or 10, int(match.group(3) or 0))
        if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            unit = "us" if precision is None or precision > 3 else "ms"
            return pa.timestamp(unit, tz="UTC" if name == "TIMESTAMP_LTZ" else None)
    known = [*PLAIN, "DECIMAL", "TIMESTAMP", "TIMESTAMP_LTZ"]
    raise OptionError(f"type {flink_type} is not supported here; {nearest(name, known)}")


def flink_type(kind: pa.DataType) -> str:
    """The type in Flink's spelling, such as `DECIMAL(10, 2)` or `ARRAY<STRING>`."""
    if (name := NAMES.get(kind) or _WIDER_NAMES.get(kind)) is not None:
        return name
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        word = "TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ"
        return f"{word}({DIGITS[kind.unit]})"
    if pa.types.is_time(kind):
        return f"TIME({DIGITS[kind.unit]})"
    if pa.types.is_map(kind):
        return f"MAP<{flink_type(kind.key_type)}, {flink_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{flink_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"ROW<{', '.join(f'`{field.name}` {flink_type(field.type)}' for field in kind)}>"
    if pa.types.is_fixed_size_binary(kind):
        return f"BINARY({kind.byte_width})"
    return str(kind).upper()


def mapped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with `leaf` of each type in it that is not nested."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(mapped(field.type, leaf)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(*(part.with_type(mapped(part.type, leaf)) for part in (key, item)))
    for is_kind, make in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_kind(kind):
            return make(kind.value_field.with_type(mapped(kind.value_type, leaf)))
    return leaf(kind)


def parts(array: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """The elements of a nested array, its keys and values, or its fields; empty for others."""
    kind = array.type
    if pa.types.is_map(kind):
        return [(kind.key_field, array.keys), (kind.item_field, array.items)]
    if pa.types.is_struct(kind):
        return list(zip(kind, array.flatten(), strict=True))
    return [(kind.value_field, array.flatten())] if pa.types.is_nested(kind) else []
