"""Values of every type, as the texts of the Java core's JSON format, and to and from Arrow."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from streamhouse.paimon.schema import types

_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def instants(digits: int, wide: bool) -> list[str]:
    """Timestamps of so many digits; those that are not `wide` are what ORC files keep."""
    first, last = ("0001-01-01", "9999-12-31") if wide else ("1678-01-01", "2261-12-31")
    fraction = f".{'123456789'[:digits]}" if digits else ""
    half = f".{'5'.ljust(digits, '0')}" if digits and wide else ""
    return [
        f"1970-01-01 00:00:00{fraction}",
        f"1969-12-31 23:59:59{half}",
        f"2026-02-28 12:34:56{fraction}",
        f"1883-11-18 12:03:57{fraction}",
        f"{first} 00:00:00{fraction}",
        f"{last} 23:59:59{fraction}",
    ]


def _decimals(precision: int, scale: int) -> list[str]:
    def text(number: int) -> str:
        return format(Decimal(number).scaleb(-scale, Context(prec=50)), "f")

    most = 10**precision - 1
    return [text(0), text(1), text(-1), text(most), text(-most)]


def _b64(*values: bytes) -> list[str]:
    return [base64.b64encode(value).decode() for value in values]


def values(kind: str, wide: bool) -> list[Any]:
    """Some values of a type: small ones, extreme ones, empty ones."""
    found = _ATOMIC.get(kind) or _NESTED.get(kind)
    if found is not None:
        return found
    numbers = [int(number) for number in re.findall(r"\d+", kind)]
    if kind.startswith("DECIMAL"):
        return _decimals(numbers[0], numbers[1])
    return instants(numbers[0], wide)


_ATOMIC: dict[str, list[Any]] = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["0", "-128", "127"],
    "SMALLINT": ["0", "-32768", "32767"],
    "INT": ["0", "-2147483648", "2147483647"],
    "BIGINT": ["0", str(-(2**63)), str(2**63 - 1)],
    "FLOAT": ["0.0", "-0.0", "1.5", "3.4028235E38", "1.4E-45", "NaN", "Infinity", "-Infinity"],
    "DOUBLE": ["0.0", "-0.0", "0.1", "1.7976931348623157E308", "4.9E-324", "NaN", "-Infinity"],
    "STRING": ["", " ", "a", "ä€𝄞", "null", "x" * 300, 'quo"te\\', "tab\tline\n"],
    "CHAR(5)": ["abcde", "ab   ", "ab", "", " a", "ä€𝄞yz"],
    "VARCHAR(5)": ["", "abcde", "ä€𝄞"],
    "BYTES": _b64(b"", b"\0", b"\xff\xfe", b"x" * 300),
    "BINARY(4)": _b64(b"\0\0\0\0", b"abcd", b"\xff\0\xff\0"),
    "VARBINARY(4)": _b64(b"", b"\0", b"abcd"),
    "DATE": ["1970-01-01", "1969-12-31", "2026-02-28", "0001-01-01", "9999-12-31", "1582-10-10"],
    "TIME(0)": ["00:00:00", "12:34:56", "23:59:59"],
    "TIME(3)": ["00:00:00", "12:34:56.789", "23:59:59.999"],
    "TIME(9)": ["00:00:00", "12:34:56.789", "23:59:59.999"],
}
_NESTED: dict[str, list[Any]] = {
    "ARRAY<INT>": [[], ["1", None, "-7"], [None]],
    "ARRAY<STRING>": [[], ["", "a", None, "ä"]],
    "ARRAY<TIMESTAMP(3)>": [[], ["2026-02-28 12:34:56.789", None]],
    "ARRAY<TIMESTAMP(6)>": [[], ["2026-02-28 12:34:56.789123", None]],
    "ARRAY<ARRAY<BIGINT>>": [[], [[]], [["1"], None, []]],
    "ARRAY<CHAR(3)>": [["abc", "a", "a  "]],
    "ARRAY<BYTES>": [[], _b64(b"", b"\xff")],
    "MAP<STRING, INT>": [{}, {"a": "1"}, {"": None, "b": "-2"}],
    "MAP<INT, ARRAY<STRING>>": [{}, {"1": ["x", None]}, {"-1": None}],
    "MAP<STRING, DECIMAL(20, 2)>": [{"a": "123456789012345678.90"}],
    "ROW<a INT, b STRING>": [{"a": "1", "b": "x"}, {"a": None, "b": None}],
    "ROW<r ROW<q DATE, t TIME(3)>>": [{"r": {"q": "2026-02-28", "t": "12:34:56.789"}}, {"r": None}],
    "ARRAY<ROW<x DECIMAL(20, 2), y TIMESTAMP(6), z TIMESTAMP_LTZ(3)>>": [
        [],
        [{"x": "0.01", "y": "2026-02-28 12:34:56.789123", "z": "2026-02-28 12:34:56.789"}, None],
    ],
    "ROW<m MAP<STRING, ROW<f FLOAT, g BOOLEAN>>>": [{"m": {"a": {"f": "1.5", "g": "true"}}}],
}
DECIMALS = ["(1, 0)", "(9, 2)", "(10, 2)", "(18, 4)", "(19, 0)", "(38, 10)", "(38, 38)"]
TYPES = [
    *_ATOMIC,
    *(f"DECIMAL{decimal}" for decimal in DECIMALS),
    *(f"TIMESTAMP({digits})" for digits in range(10)),
    *(f"TIMESTAMP_LTZ({digits})" for digits in range(10)),
    *_NESTED,
]


def is_fine(kind: str) -> bool:
    """Whether a type has a timestamp of more than 6 digits."""
    return re.search(r"TIMESTAMP(_LTZ)?\([789]\)", kind) is not None


def normal(value: Any) -> Any:
    """A text that is the same for all ways to write a value: both cores cut zeros differently."""
    if isinstance(value, list):
        return [normal(one) for one in value]
    if isinstance(value, dict):
        return {key: normal(one) for key, one in value.items()}
    if isinstance(value, str) and re.fullmatch(r"[\d-]*[ ]?\d\d:\d\d:\d\d\.\d+", value):
        return value.rstrip("0").rstrip(".")
    return value


def arrow(texts: Iterable[Any], kind: str) -> pa.Array:
    """Such values as an Arrow array of the type in which the Rust core takes them."""
    arrow_type = types.arrow_type(types.parse(kind))
    return pa.array([_python(text, arrow_type) for text in texts], arrow_type)


def _python(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_python(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [
            (_python(key, kind.key_type), _python(one, kind.item_type))
            for key, one in value.items()
        ]
    if pa.types.is_struct(kind):
        return {field.name: _python(value[field.name], field.type) for field in kind}
    if pa.types.is_boolean(kind):
        return value == "true"
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_time(kind):
        return datetime.time.fromisoformat(value)
    return _ticks(value, _UNITS[kind.unit]) if pa.types.is_timestamp(kind) else value


def _ticks(text: str, per_second: int) -> int:
    day, _, time = text.partition(" ")
    whole, _, fraction = time.partition(".")
    hours, minutes, seconds = map(int, whole.split(":"))
    days = datetime.date.fromisoformat(day).toordinal() - _EPOCH
    nanos = int(fraction.ljust(9, "0")) if fraction else 0
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return total * per_second + nanos * per_second // 10**9


def texts(array: pa.Array) -> list[Any]:
    """The values of an Arrow array as the texts of the JSON format."""
    return [_text(scalar) for scalar in array]


def _text(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_list(kind):
        return texts(scalar.values)
    if pa.types.is_map(kind):
        entries = scalar.values
        return dict(zip(texts(entries.field(0)), texts(entries.field(1)), strict=True))
    if pa.types.is_struct(kind):
        return {field.name: _text(scalar[field.name]) for field in kind}
    if pa.types.is_timestamp(kind):
        return _instant(scalar.value, _UNITS[kind.unit])
    return _plain(scalar.as_py(), kind)


def _plain(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_floating(kind):
        return floating(value, kind.bit_width)
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if pa.types.is_binary(kind):
        return base64.b64encode(value).decode()
    return str(value)


def floating(value: float, bits: int) -> str:
    """By its bits, so that each of them counts."""
    kind, whole = (pa.float32(), pa.int32()) if bits == 32 else (pa.float64(), pa.int64())
    return f"{bits}:{pa.array([value], kind).view(whole)[0].as_py():x}"


def _instant(ticks: int, per_second: int) -> str:
    seconds, rest = divmod(ticks, per_second)
    days, seconds = divmod(seconds, 24 * 3600)
    try:
        day = str(datetime.date.fromordinal(days + _EPOCH))
    except ValueError:
        day = f"day {days}"
    fraction = f".{rest * (10**9 // per_second):09d}"
    return f"{day} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def of_java(value: Any, kind: pa.DataType) -> Any:
    """A value as Java writes it, with floating numbers as `texts` has them."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [of_java(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return {key: of_java(one, kind.item_type) for key, one in value.items()}
    if pa.types.is_struct(kind):
        return {field.name: of_java(value[field.name], field.type) for field in kind}
    if pa.types.is_floating(kind):
        return floating(float(value), kind.bit_width)
    return value
