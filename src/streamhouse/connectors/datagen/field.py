"""Generates the values of a column."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from streamhouse.errors import OptionError
from streamhouse.options import choice, duration_ms, integer
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

Numbers = npt.NDArray[np.int64]
_INTEGER_RANGE = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
}
_TEXT = ("STRING", "VARCHAR", "CHAR", "BYTES", "BINARY", "VARBINARY")
_REAL = ("FLOAT", "DOUBLE")
_DECIMAL = ("DECIMAL", "NUMERIC")
_TIME = ("TIMESTAMP", "TIMESTAMP_LTZ")
_DEFAULT_MAX = 1_000_000
"""The default `max` of other numbers than integers, if their type can hold it."""
_SUPPORTED = (*_INTEGER_RANGE, *_TEXT, *_REAL, *_DECIMAL, *_TIME, "BOOLEAN")


def random_bits(numbers: Numbers, seed: int) -> npt.NDArray[np.uint64]:
    """64 random bits for each row number: SplitMix64 (Steele, Lea, Flood 2014) as a counter."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64(seed)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def unit_interval(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Uniform values in [0, 1) of 53 random bits each."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Field:
    """A generated column: its base type (`BIGINT`, `TIMESTAMP`, …), and how to generate its values.

    `kind`: `random` or `sequence`. `low` and `high` are inclusive; None for types without numbers.
    `length`: characters or bytes. `null_rate`: the share of nulls, 0 to 1.
    """

    name: str
    base: str
    type: pa.DataType
    kind: str
    low: float | int | None
    high: float | int | None
    length: int
    max_past_ms: int
    null_rate: float

    def values(self, numbers: Numbers, due_ms: Numbers) -> pa.Array:
        """The values of the rows `numbers`, which were due at `due_ms` (epoch milliseconds)."""
        seed = zlib.crc32(self.name.encode()) << 20
        if self.kind == "sequence":
            values = self._cast(numbers + int(self.low or 0))
        else:
            values = self._random(random_bits(numbers, seed), due_ms)
        if self.null_rate > 0:
            present = unit_interval(random_bits(numbers, seed + 7)) >= self.null_rate
            values = pa.compute.if_else(pa.array(present), values, pa.scalar(None, values.type))
        return values

    def _random(self, bits: npt.NDArray[np.uint64], due_ms: Numbers) -> pa.Array:
        if self.base in _INTEGER_RANGE:
            low, high = int(self.low or 0), int(self.high or 0)
            span = high - low + 1
            offsets = bits if span >= 2**64 else bits % np.uint64(span)
            return self._cast((offsets + np.uint64(low % 2**64)).astype(np.int64))
        if self.base in _REAL or self.base in _DECIMAL:
            low_f, high_f = float(self.low or 0), float(self.high or 0)
            reals = low_f + unit_interval(bits) * (high_f - low_f)
            if self.base in _REAL:
                return pa.array(reals).cast(self.type)
            # Rounding may exceed the type's greatest value by a digit.
            most = _rounded_down(_greatest_decimal(self.type))
            return pa.array(np.clip(np.round(reals, self.type.scale), -most, most)).cast(self.type)
        if self.base in _TIME:
            past = (unit_interval(bits) * self.max_past_ms).astype(np.int64)
            return pa.array(due_ms - past).cast(pa.timestamp("ms")).cast(self.type)
        if self.base == "BOOLEAN":
            return pa.array((bits & np.uint64(1)).astype(bool))
        return self._text(bits)

    def _text(self, bits: npt.NDArray[np.uint64]) -> pa.Array:
        words = -(-self.length // 16) or 1
        rows = np.stack([random_bits(bits.view(np.int64), word) for word in range(words)], axis=1)
        digits = [row.tobytes().hex()[: self.length] for row in rows]
        return pa.array(digits).cast(self.type)

    def _cast(self, numbers: Numbers) -> pa.Array:
        return pa.array(numbers).cast(self.type)


def fields_of(columns: Sequence[Column], options: Mapping[str, str]) -> list[Field]:
    """The fields of a table, from `fields.<name>.kind|min|max|start|end|length|max-past|null-rate`.

    Raises `OptionError` for a type that cannot be generated and for values out of range.
    """
    return [_field(column, options) for column in columns]


def total_rows(fields: Sequence[Field], number_of_rows: int | None) -> int | None:
    """The total number of rows: the shortest sequence or `number-of-rows`; None: unbounded."""
    ends = [int(f.high or 0) - int(f.low or 0) + 1 for f in fields if f.kind == "sequence"]
    if number_of_rows is not None:
        ends.append(number_of_rows)
    return min(ends) if ends else None


def _field(column: Column, options: Mapping[str, str]) -> Field:
    base = column.type.split("(")[0].strip().upper()
    if base not in _SUPPORTED:
        raise OptionError(
            f"datagen: column '{column.name}' of type {column.type} cannot be generated; "
            f"supported types: {', '.join(_SUPPORTED)}"
        )

    def option(key: str) -> str | None:
        return options.get(f"fields.{column.name}.{key}")

    kind = choice(f"fields.{column.name}.kind", option("kind") or "random", ("random", "sequence"))
    low_key, high_key = ("start", "end") if kind == "sequence" else ("min", "max")
    low, high = _bounds(column, base, kind, option(low_key), option(high_key))
    null_rate = _number(f"fields.{column.name}.null-rate", option("null-rate") or "0", float)
    if not 0 <= null_rate <= 1:
        raise OptionError(f"option 'fields.{column.name}.null-rate': {null_rate} is not in 0 to 1")
    return Field(
        name=column.name,
        base=base,
        type=arrow_type(column.type),
        kind=kind,
        low=low,
        high=high,
        length=integer(f"fields.{column.name}.length", option("length") or "100", 0),
        max_past_ms=duration_ms(f"fields.{column.name}.max-past", option("max-past") or "0 ms"),
        null_rate=null_rate,
    )


def _greatest_decimal(kind: pa.Decimal128Type) -> Fraction:
    """The greatest value of a DECIMAL type."""
    return Fraction(10**kind.precision - 1, 10**kind.scale)


def _rounded_down(value: Fraction) -> float:
    """The greatest DOUBLE that is not greater than a positive value."""
    nearest = float(value)
    return nearest if nearest <= value else float(np.nextafter(nearest, 0))


def _bounds(
    column: Column, base: str, kind: str, low: str | None, high: str | None
) -> tuple[float | int | None, float | int | None]:
    prefix = f"fields.{column.name}"
    if kind == "sequence":
        if base not in _INTEGER_RANGE:
            raise OptionError(
                f"option '{prefix}.kind': a sequence needs an integer column, not {column.type}"
            )
        if low is None or high is None:
            raise OptionError(f"datagen: a sequence needs '{prefix}.start' and '{prefix}.end'")
    convert: Any = int if base in _INTEGER_RANGE else float
    least: float
    most: float
    if base in _INTEGER_RANGE:
        least, most = _INTEGER_RANGE[base]
    elif base in _REAL:
        least, most = 0, _DEFAULT_MAX
    elif base in _DECIMAL:
        greatest = float(_greatest_decimal(arrow_type(column.type)))
        least, most = 0, min(_DEFAULT_MAX, greatest)
    else:
        return None, None
    names = ("start", "end") if kind == "sequence" else ("min", "max")
    bounds = (
        least if low is None else _number(f"{prefix}.{names[0]}", low, convert),
        most if high is None else _number(f"{prefix}.{names[1]}", high, convert),
    )
    if bounds[0] > bounds[1]:
        default = " (the default)"
        start = f"{bounds[0]}{default}" if low is None else low
        end = f"{bounds[1]}{default}" if high is None else high
        raise OptionError(
            f"option '{prefix}.{names[0]}': {start} is greater than '{prefix}.{names[1]}', {end}"
        )
    if base in _INTEGER_RANGE:
        fits = least <= bounds[0] and bounds[1] <= most
    else:
        fits = base in _REAL or max(-bounds[0], bounds[1]) <= greatest
    if not fits:
        raise OptionError(f"option '{prefix}': {bounds[0]} to {bounds[1]} do not fit {column.type}")
    return bounds


def _number(key: str, value: str, convert: Any) -> Any:
    try:
        return convert(value)
    except ValueError:
        raise OptionError(f"option '{key}': '{value}' is not a number") from None
