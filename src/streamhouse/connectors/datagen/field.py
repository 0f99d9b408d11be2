"""Generates the values of a column."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from streamhouse.connectors.datagen.random_streams import (
    Bits,
    Numbers,
    RowNumbers,
    random_bits,
    unit_interval,
    zipf_ranks,
)

INTEGER_RANGE = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
}
REALS = ("FLOAT", "DOUBLE")
DECIMALS = ("DECIMAL", "NUMERIC")
TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Field:
    """A generated column: its base type (`BIGINT`, `TIMESTAMP`, …), and how to generate its values.

    `kind`: `random` or `sequence`. `low` and `high` are inclusive; None for types without numbers.
    `length`: characters or bytes; with `varies` from one to that many. `unit_ms`: what times are
    multiples of. `zipf`: the exponent of Zipf's law, by
    which `low` is the most frequent integer; None: all are equally frequent.
    """

    name: str
    base: str
    type: pa.DataType
    kind: str = "random"
    low: float | int | None = None
    high: float | int | None = None
    length: int = 0
    varies: bool = False
    unit_ms: int = 1
    max_past_ms: int = 0
    zipf: float | None = None

    def values(self, rows: RowNumbers) -> pa.Array:
        """One value for each row."""
        if self.kind == "sequence":
            return self._cast(rows.numbers + int(self.low or 0))
        return self._random(rows.bits(self.name), rows.due_ms)

    def _random(self, bits: Bits, due_ms: Numbers) -> pa.Array:
        if self.base in INTEGER_RANGE:
            low, high = int(self.low or 0), int(self.high or 0)
            span = high - low + 1
            if self.zipf is not None:
                return self._cast(zipf_ranks(bits, span, self.zipf) + low)
            offsets = bits if span >= 2**64 else bits % np.uint64(span)
            return self._cast((offsets + np.uint64(low % 2**64)).astype(np.int64))
        if self.base in REALS or self.base in DECIMALS:
            return self._number(bits)
        if self.base in TIMESTAMPS:
            past = (unit_interval(bits) * self.max_past_ms).astype(np.int64)
            timestamps = (due_ms - past) // self.unit_ms * self.unit_ms
            return pa.array(timestamps).cast(pa.timestamp("ms")).cast(self.type)
        if self.base == "DATE":
            return pa.array((due_ms // _DAY_MS).astype(np.int32)).cast(self.type)
        if self.base == "TIME":
            times = due_ms % _DAY_MS // self.unit_ms * self.unit_ms
            return pa.array(times.astype(np.int32)).cast(self.type)
        if self.base == "BOOLEAN":
            return pa.array((bits & np.uint64(1)).astype(bool))
        return self._text(bits)

    def _number(self, bits: Bits) -> pa.Array:
        low, high = float(self.low or 0), float(self.high or 0)
        reals = low + unit_interval(bits) * (high - low)
        if self.base in REALS:
            return pa.array(reals).cast(self.type)
        # Rounding may exceed the type's greatest value by a digit.
        most = _rounded_down(greatest_decimal(self.type))
        return pa.array(np.clip(np.round(reals, self.type.scale), -most, most)).cast(self.type)

    def _text(self, bits: Bits) -> pa.Array:
        words = -(-self.length // 16) or 1
        rows = np.stack([random_bits(bits.view(np.int64), word) for word in range(words)], axis=1)
        if self.varies:
            lengths = random_bits(bits.view(np.int64), words) % np.uint64(max(1, self.length))
            ends = (lengths + np.uint64(1)).tolist()
        else:
            ends = [self.length] * len(bits)
        digits = [row.tobytes().hex()[:end] for row, end in zip(rows, ends, strict=True)]
        return pa.array(digits).cast(self.type)

    def _cast(self, numbers: Numbers) -> pa.Array:
        if self.base in DECIMALS:
            return pa.array(numbers).cast(pa.decimal128(38, self.type.scale)).cast(self.type)
        return pa.array(numbers).cast(self.type)


def greatest_decimal(kind: pa.Decimal128Type) -> Fraction:
    """The greatest value of a DECIMAL type."""
    return Fraction(10**kind.precision - 1, 10**kind.scale)


def _rounded_down(value: Fraction) -> float:
    """The greatest DOUBLE that is not greater than a positive value."""
    nearest = float(value)
    return nearest if nearest <= value else float(np.nextafter(nearest, 0))
