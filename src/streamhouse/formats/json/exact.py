"""The options of JSON, and exact conversion of single values to what Arrow stores.

Numbers are read by orjson, whose floats have lost the text of the number. Where the text matters
(DECIMAL, STRING, large integers), a converter raises `NeedsText`, and the record is read again with
`parse_exactly`, in which each number is a `Number`.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.formats import times
from streamhouse.formats.base import ValueMismatch
from streamhouse.formats.times import SQL
from streamhouse.options import DeclaredOptions, OptionValues, of_option
from streamhouse.types import flink_type

OPTIONS = DeclaredOptions.of(__package__).options


Convert: TypeAlias = Callable[[Any], Any]
_CONTEXT = Context(prec=80, rounding=ROUND_HALF_UP)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_FLOATING = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|NaN|Infinity)[dDfF]?", re.ASCII
)
_MOST_DIGITS = 4_000
_SHOWN = 60


@dataclass(frozen=True)
class JsonOptions:
    """The options of a table's JSON, checked."""

    # Formats of changes do not have this option.
    fail_on_missing_field: bool = of_option("fail-on-missing-field", False)
    ignore_parse_errors: bool = of_option("ignore-parse-errors", False)
    standard: str = of_option("timestamp-format.standard", SQL)
    ignore_null_fields: bool = of_option("encode.ignore-null-fields", False)

    @classmethod
    def parse(cls, values: OptionValues) -> Self:
        """Raises `OptionError`."""
        parsed = values.record(cls)
        if parsed.fail_on_missing_field and parsed.ignore_parse_errors:
            raise OptionError(
                f"options '{values.before}fail-on-missing-field' and "
                f"'{values.before}ignore-parse-errors' exclude each other; leave one of them out"
            )
        return parsed


Leaf: TypeAlias = Callable[[pa.DataType, JsonOptions], Convert]


class Number(str):
    """A number of JSON as its text."""

    __slots__ = ()


class NeedsText(Exception):
    """The value depends on the text of a number."""


def parse_exactly(record: bytes) -> Any:
    """The JSON value of a record that orjson has accepted, with numbers as text."""
    return json.loads(record, parse_int=Number, parse_float=Number)


def converter(kind: pa.DataType, options: JsonOptions, leaf: Leaf | None = None) -> Convert:
    """A function from a JSON value, or null, to what `pa.array` takes for the Arrow type.

    It raises `ValueMismatch` for a value that does not fit, unless these are to be null. `leaf`
    makes the functions for types that are not nested, which raise `ValueError`.
    """
    plain = _plain(kind, options, leaf or json_leaf)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return plain(value)
        except (ValueError, InvalidOperation, OverflowError):
            if options.ignore_parse_errors:
                return None
            raise ValueMismatch(f"{_displayed(value)} is not of type {flink_type(kind)}") from None

    return convert


def _displayed(value: Any) -> str:
    try:
        text = value if isinstance(value, Number) else dumped(value)
    except TypeError:
        text = repr(str(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _plain(kind: pa.DataType, options: JsonOptions, leaf: Leaf) -> Convert:
    if pa.types.is_list(kind):
        return _list(kind, options, leaf)
    if pa.types.is_map(kind):
        return _map(kind, options, leaf)
    if pa.types.is_struct(kind):
        return _row(kind, options, leaf)
    return leaf(kind, options)


def json_leaf(kind: pa.DataType, options: JsonOptions) -> Convert:
    """The converter of a type that is not nested; raises `ValueError` for what does not fit."""
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_float32(kind):
        return _float32
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_timestamp(kind):
        return lambda value: times.parse_timestamp(_text(value), kind, options.standard)
    if pa.types.is_time(kind):
        return lambda value: times.parse_time(_text(value), kind.unit)
    return _BY_TYPE[kind]


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(value)
    return value


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    word = _text(value).strip().lower()
    if word not in ("true", "false"):
        raise ValueError(value)
    return word == "true"


def _integer(bits: int) -> Convert:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(value: Any) -> int:
        number = _whole(value)
        if not least <= number <= most:
            raise ValueError(value)
        return number

    return convert


def _whole(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float:
        raise NeedsText
    if type(value) is Number:
        exact = _CONTEXT.create_decimal(_short(value))
        if exact.adjusted() > 40 or exact != exact.to_integral_value(context=_CONTEXT):
            raise ValueError(value)
        return int(exact)
    text = _text(value).strip()
    if not _INTEGER.fullmatch(text):
        raise ValueError(value)
    return int(text)


def _short(text: str) -> str:
    if len(text) > _MOST_DIGITS:
        raise ValueError(text)
    return text


def _double(value: Any) -> float:
    if type(value) in (int, float, Number):
        number = float(value)
        if math.isinf(number):
            raise ValueError(value)
        return number
    text = _text(value).strip()
    if not _FLOATING.fullmatch(text):
        raise ValueError(value)
    number = float(text.rstrip("dDfF"))
    if math.isinf(number) and text.strip("+-")[0] != "I":
        raise ValueError(value)
    return number


def _float32(value: Any) -> float:
    number = _double(value)
    with np.errstate(over="ignore"):
        narrow = float(np.float32(number))
    if math.isinf(narrow) and not math.isinf(number):
        raise ValueError(value)
    return narrow


def _decimal(kind: pa.DataType) -> Convert:
    unit = Decimal(1).scaleb(-kind.scale)
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> Decimal:
        if type(value) is float:
            raise NeedsText
        if type(value) in (int, Decimal):
            exact = Decimal(value)
        else:
            text = value if type(value) is Number else _text(value).strip()
            exact = Decimal(_short(text))
        if not exact.is_finite() or exact.adjusted() > 40:
            raise ValueError(value)
        rounded = exact.quantize(unit, context=_CONTEXT)
        # abs() would round to 28 digits.
        if rounded.copy_abs() >= limit:
            raise ValueError(value)
        return rounded

    return convert


def _string(value: Any) -> str:
    if type(value) is str or type(value) is Number:
        return str(value)
    if type(value) is float or isinstance(value, dict | list):
        return dumped(value, exact=True)
    return dumped(value)


def dumped(value: Any, exact: bool = False) -> str:
    """A JSON value as compact text; `exact`: raises `NeedsText` for numbers without their text."""
    if type(value) is Number:
        return value
    if exact and type(value) is float:
        raise NeedsText
    if isinstance(value, dict):
        pairs = ((json.dumps(key, ensure_ascii=False), item) for key, item in value.items())
        return f"{{{','.join(f'{key}:{dumped(item, exact)}' for key, item in pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(dumped(item, exact) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError(value) from error


_BY_TYPE: dict[pa.DataType, Convert] = {
    pa.bool_(): _boolean,
    pa.float64(): _double,
    pa.string(): _string,
    pa.binary(): _bytes,
    pa.date32(): lambda value: times.parse_date(_text(value)),
}


def _required(kind: pa.Field, options: JsonOptions, leaf: Leaf) -> Convert:
    """The converter of an element or field, which may be NOT NULL."""
    convert = converter(kind.type, options, leaf)
    if kind.nullable:
        return convert

    def checked(value: Any) -> Any:
        converted = convert(value)
        if converted is None:
            raise ValueMismatch(
                f"{_displayed(value)} where {flink_type(kind.type)} NOT NULL is expected"
            )
        return converted

    return checked


def _list(kind: pa.DataType, options: JsonOptions, leaf: Leaf) -> Convert:
    item = _required(kind.value_field, options, leaf)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(value)
        return [item(element) for element in value]

    return convert


def _map(kind: pa.DataType, options: JsonOptions, leaf: Leaf) -> Convert:
    key = converter(kind.key_type, options, leaf)
    item = _required(kind.item_field, options, leaf)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise ValueError(value)
        entries = {key(one): item(other) for one, other in value.items()}
        return [(item, other) for item, other in entries.items() if item is not None]

    return convert


def _row(kind: pa.DataType, options: JsonOptions, leaf: Leaf) -> Convert:
    fields = [(field.name, _required(field, options, leaf)) for field in kind]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(value)
        converted = {}
        for name, inner in fields:
            if options.fail_on_missing_field and name not in value:
                raise ValueMismatch(f"field '{name}' is missing in {_displayed(value)}")
            try:
                converted[name] = inner(value.get(name))
            except ValueMismatch as error:
                raise ValueMismatch(f"field '{name}': {error}") from None
        return converted

    return convert
