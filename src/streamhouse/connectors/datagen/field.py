"""Generates the values of a column, by its options `fields.<column>.*`."""

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import pyarrow as pa

from streamhouse.connectors.datagen.random_streams import (
    MOST_KEYS,
    Bits,
    Numbers,
    RowNumbers,
    random_bits,
    unit_interval,
    zipf_ranks,
)
from streamhouse.errors import OptionError
from streamhouse.options import boolean, choice, duration_ms, integer, number
from streamhouse.sql.types import base
from streamhouse.types import arrow_type

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


_INTEGERS = tuple(INTEGER_RANGE)
_NUMBERS = (*_INTEGERS, *REALS, *DECIMALS)
_CHARACTERS = ("STRING", "VARCHAR", "CHAR")
_VARYING = ("STRING", "VARCHAR", "BYTES", "VARBINARY")
_TIMES = (*TIMESTAMPS, "DATE", "TIME")
TYPES = (*_NUMBERS, *_VARYING, "CHAR", "BINARY", *_TIMES, "BOOLEAN")
"""The types of columns that can be generated."""
FIELD_OPTIONS: dict[str, tuple[str, ...] | None] = {
    "kind": None,
    "min": _NUMBERS,
    "max": _NUMBERS,
    "start": (*_NUMBERS, *_CHARACTERS),
    "end": (*_NUMBERS, *_CHARACTERS),
    "length": _VARYING,
    "var-len": _VARYING,
    "max-past": TIMESTAMPS,
    "null-rate": None,
    "zipf-exponent": _INTEGERS,
}
"""The options of a column, and the types of columns that take them (None: all)."""
_SEQUENCE_ONLY = ("start", "end")
_RANDOM_ONLY = ("min", "max", "length", "var-len", "max-past", "null-rate", "zipf-exponent")
_DEFAULT_MAX = 1_000_000
"""The default `max` of other numbers than integers, if their type can hold it."""
_DEFAULT_LENGTH = 100
_DEFAULT_FRACTION = {"TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}
_SIZE = re.compile(r"\(\s*(\d+)")
_INT64 = INTEGER_RANGE["BIGINT"]


class Field:
    """A generated column, or a part of one, by its path, its type and the options of the table.

    `kind`: `random` or `sequence`. `low` and `high` are inclusive; None for types without numbers.
    Raises `OptionError` for a type that cannot be generated, an option that does not apply to its
    type, and values out of range.
    """

    def __init__(self, path: str, kind: str, options: Mapping[str, str]) -> None:
        self._name, self._declared = path, kind
        self._base = base(kind)
        self._prefix = f"fields.{path}."
        self._own = {
            key.removeprefix(self._prefix): value
            for key, value in options.items()
            if key.startswith(self._prefix) and key.rpartition(".")[0] + "." == self._prefix
        }
        if self._base not in TYPES:
            raise OptionError(
                f"column '{path}' of type {kind} cannot be generated; "
                f"supported types: {', '.join(TYPES)}, ROW, ARRAY, MAP"
            )
        size = _SIZE.search(kind)
        self._size = None if size is None else int(size[1])
        kinds = ("random", "sequence")
        self.kind = choice(self._prefix + "kind", self._own.get("kind", "random"), kinds)
        self._check_applicable()
        self._type = arrow_type(kind)
        self.low, self.high = self._sequence() if self.kind == "sequence" else self._range()
        self._exponent = self._zipf(self.low, self.high)
        self._length = self._text_length()
        self._varies = boolean(self._prefix + "var-len", self._own.get("var-len", "false"))
        digits = _DEFAULT_FRACTION.get(self._base, 3) if self._size is None else self._size
        self._unit_ms = 10 ** max(0, 3 - digits) if self._base in _TIMES else 1
        """What times are multiples of."""
        self._max_past_ms = duration_ms(
            self._prefix + "max-past", self._own.get("max-past", "0 ms")
        )

    def values(self, rows: RowNumbers) -> pa.Array:
        """One value for each row."""
        if self.kind == "sequence":
            return self._cast(rows.numbers + int(self.low or 0))
        return self._random(rows.bits(self._name), rows.due_ms)

    def _random(self, bits: Bits, due_ms: Numbers) -> pa.Array:
        if self._base in INTEGER_RANGE:
            low, high = int(self.low or 0), int(self.high or 0)
            span = high - low + 1
            if self._exponent is not None:
                return self._cast(zipf_ranks(bits, span, self._exponent) + low)
            offsets = bits if span >= 2**64 else bits % np.uint64(span)
            return self._cast((offsets + np.uint64(low % 2**64)).astype(np.int64))
        if self._base in REALS or self._base in DECIMALS:
            return self._number(bits)
        if self._base in TIMESTAMPS:
            past = (unit_interval(bits) * self._max_past_ms).astype(np.int64)
            timestamps = (due_ms - past) // self._unit_ms * self._unit_ms
            return pa.array(timestamps).cast(pa.timestamp("ms")).cast(self._type)
        if self._base == "DATE":
            return pa.array((due_ms // _DAY_MS).astype(np.int32)).cast(self._type)
        if self._base == "TIME":
            times = due_ms % _DAY_MS // self._unit_ms * self._unit_ms
            return pa.array(times.astype(np.int32)).cast(self._type)
        if self._base == "BOOLEAN":
            return pa.array((bits & np.uint64(1)).astype(bool))
        return self._text(bits)

    def _number(self, bits: Bits) -> pa.Array:
        low, high = float(self.low or 0), float(self.high or 0)
        reals = low + unit_interval(bits) * (high - low)
        if self._base in REALS:
            return pa.array(reals).cast(self._type)
        # Rounding may exceed the type's greatest value by a digit.
        most = _rounded_down(greatest_decimal(self._type))
        return pa.array(np.clip(np.round(reals, self._type.scale), -most, most)).cast(self._type)

    def _text(self, bits: Bits) -> pa.Array:
        words = -(-self._length // 16) or 1
        rows = np.stack([random_bits(bits.view(np.int64), word) for word in range(words)], axis=1)
        if self._varies:
            lengths = random_bits(bits.view(np.int64), words) % np.uint64(max(1, self._length))
            ends = (lengths + np.uint64(1)).tolist()
        else:
            ends = [self._length] * len(bits)
        digits = [row.tobytes().hex()[:end] for row, end in zip(rows, ends, strict=True)]
        return pa.array(digits).cast(self._type)

    def _cast(self, numbers: Numbers) -> pa.Array:
        if self._base in DECIMALS:
            return pa.array(numbers).cast(pa.decimal128(38, self._type.scale)).cast(self._type)
        return pa.array(numbers).cast(self._type)

    def _zipf(self, low: float | None, high: float | None) -> float | None:
        """The exponent of Zipf's law, by which `low` is the most frequent integer, if given."""
        key = self._prefix + "zipf-exponent"
        if "zipf-exponent" not in self._own or low is None or high is None:
            return None
        exponent = _finite(key, self._own["zipf-exponent"])
        if exponent < 0:
            raise OptionError(f"option '{key}': {exponent} is too small; the least is 0")
        if high - low + 1 > MOST_KEYS:
            raise OptionError(
                f"option '{key}' needs at most {MOST_KEYS:,} different numbers; set "
                f"'{self._prefix}min' and '{self._prefix}max'"
            )
        return exponent

    def _check_applicable(self) -> None:
        for option in self._own:
            types, key = FIELD_OPTIONS.get(option), self._prefix + option
            if types is not None and self._base not in types:
                raise OptionError(
                    f"option '{key}' does not apply to {self._declared}; it applies to "
                    + ", ".join(types)
                )
            if option in (_RANDOM_ONLY if self.kind == "sequence" else _SEQUENCE_ONLY):
                other = "random" if self.kind == "sequence" else "sequence"
                raise OptionError(f"option '{key}' needs '{self._prefix}kind' = '{other}'")

    def _sequence(self) -> tuple[int, int]:
        if self._base not in (*_NUMBERS, *_CHARACTERS):
            raise OptionError(
                f"option '{self._prefix}kind': a sequence needs a column of numbers or text, not "
                f"{self._declared}"
            )
        for option in _SEQUENCE_ONLY:
            if option not in self._own:
                raise OptionError(f"a sequence needs '{self._prefix}{option}'")
        low, high = (integer(self._prefix + key, self._own[key]) for key in _SEQUENCE_ONLY)
        self._check_order("start", low, "end", high)
        self._check_fits(low, high)
        return low, high

    def _range(self) -> tuple[float | int | None, float | int | None]:
        if self._base not in _NUMBERS:
            return None, None
        if self._base in INTEGER_RANGE:
            least, most = INTEGER_RANGE[self._base]
            low, high = self._bound("min", least, integer), self._bound("max", most, integer)
        else:
            default: float = _DEFAULT_MAX
            if self._base in DECIMALS:
                default = min(default, float(greatest_decimal(self._type)))
            low, high = self._bound("min", 0, _finite), self._bound("max", default, _finite)
        self._check_order("min", low, "max", high)
        self._check_fits(low, high)
        return low, high

    def _bound(
        self, option: str, default: float, convert: Callable[[str, str], float | int]
    ) -> float | int:
        key = self._prefix + option
        return convert(key, self._own[option]) if option in self._own else default

    def _check_order(self, first: str, low: float, last: str, high: float) -> None:
        if low <= high:
            return
        begin, end = (
            self._own.get(option, f"{value} (the default)")
            for option, value in ((first, low), (last, high))
        )
        raise OptionError(
            f"option '{self._prefix}{first}': {begin} is greater than '{self._prefix}{last}', {end}"
        )

    def _check_fits(self, low: float, high: float) -> None:
        fits = True
        if self._base in INTEGER_RANGE:
            least, most = INTEGER_RANGE[self._base]
            fits = least <= low and high <= most
        elif self._base in DECIMALS:
            greatest = greatest_decimal(self._type)
            # A bound such as 99.99 is no DOUBLE, but the nearest one to it.
            furthest = max(-low, high)
            fits = furthest <= greatest or furthest <= float(greatest)
        elif self._base in _CHARACTERS:
            fits = self._size is None or max(len(str(low)), len(str(high))) <= self._size
        if self.kind == "sequence":
            fits = fits and _INT64[0] <= low and high <= _INT64[1]
        if not fits:
            raise OptionError(
                f"option '{self._prefix[:-1]}': {low} to {high} do not fit {self._declared}; "
                "set bounds within its range"
            )

    def _text_length(self) -> int:
        if self._base in ("CHAR", "BINARY"):
            return self._size or 1
        default = _DEFAULT_LENGTH if self._size is None else min(self._size, _DEFAULT_LENGTH)
        key = self._prefix + "length"
        length = integer(key, self._own.get("length", str(default)), 0)
        if self._size is not None and length > self._size:
            raise OptionError(
                f"option '{key}': {length} is more than {self._declared} holds; the most is "
                f"{self._size}"
            )
        return length


def greatest_decimal(kind: pa.Decimal128Type) -> Fraction:
    """The greatest value of a DECIMAL type."""
    return Fraction(10**kind.precision - 1, 10**kind.scale)


def _rounded_down(value: Fraction) -> float:
    """The greatest DOUBLE that is not greater than a positive value."""
    nearest = float(value)
    return nearest if nearest <= value else float(np.nextafter(nearest, 0))


def _finite(key: str, value: str) -> float:
    found = number(key, value)
    if not math.isfinite(found):
        raise OptionError(f"option '{key}': '{value}' is not a finite number")
    return found
