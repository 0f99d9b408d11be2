"""Names Arrow types as Flink does, for messages."""

from __future__ import annotations

import pyarrow as pa

from streamhouse.types import NAMES

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def type_name(kind: pa.DataType) -> str:
    """Flink's name of the type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        name = "TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ"
        return f"{name}({_DIGITS[kind.unit]})"
    if pa.types.is_time(kind):
        return "TIME"
    if pa.types.is_map(kind):
        return f"MAP<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{field.name} {type_name(field.type)}" for field in kind)
        return f"ROW<{fields}>"
    return NAMES.get(kind, str(kind))
