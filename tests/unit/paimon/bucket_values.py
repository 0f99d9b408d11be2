"""Values of every type that a bucket key may have."""

from __future__ import annotations

import decimal
import random
from typing import Any

import pyarrow as pa

KINDS = [
    "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIME(3)", "BOOLEAN", "STRING", "CHAR(3)",
    "BYTES", "BINARY(2)", "DECIMAL(5, 2)", "DECIMAL(18, 3)", "DECIMAL(19, 3)", "DECIMAL(38, 0)",
    "FLOAT", "DOUBLE", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "TIMESTAMP(6)",
    "TIMESTAMP_LTZ(6)", "TIMESTAMP(9)",
]  # fmt: skip


def value(kind: pa.DataType, draw: random.Random) -> Any:
    """A value as it may stand in a bucket key: often short, of either sign."""
    if pa.types.is_boolean(kind):
        return draw.random() < 0.5
    if pa.types.is_string(kind):
        return "".join(draw.choices("aä€𝄞 z", k=draw.choice([0, 1, 2, 3, 7, 8, 9, 40, 300])))
    if pa.types.is_binary(kind):
        return draw.randbytes(draw.choice([0, 1, 3, 4, 7, 8, 9, 100]))
    if pa.types.is_floating(kind):
        return draw.choice([0.0, -0.0, 1.5, -1e30, float("inf"), draw.random()])
    if pa.types.is_decimal(kind):
        digits = draw.randint(1, kind.precision)
        number = draw.choice([0, -1, 127, -128, 255, draw.randint(-(10**digits), 10**digits)])
        return decimal.Decimal(number % 10**kind.precision if number > 0 else number).scaleb(
            -kind.scale, decimal.Context(prec=50)
        )
    whole = draw.randint(-128, 127) if kind.bit_width < 32 else draw.randint(-(2**26), 2**26)
    if pa.types.is_time(kind):
        whole = abs(whole)
    if pa.types.is_timestamp(kind):
        whole *= draw.choice([1, 1000])
    plain = pa.scalar(whole, {8: pa.int8(), 16: pa.int16(), 32: pa.int32()}.get(kind.bit_width))
    return plain.cast(kind)
