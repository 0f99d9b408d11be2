"""Converts MySQL's column types to Arrow, with the same values from a SELECT and from the binlog.

Both kinds of values first become a *plain* Arrow array (int64, uint64, decimal, float64, string,
binary, date32, timestamp of microseconds). From there the same code converts them to the column's
own or declared type, so a snapshot and the binlog cannot differ.

A primary key is represented by JSON values: integers as int, binaries as hexadecimal text,
everything else as MySQL's text of it.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError

Family = Literal[
    "int", "uint64", "decimal", "float", "double", "string", "binary", "bit", "date", "datetime",
    "timestamp", "time", "year", "enum", "set", "json",
]  # fmt: skip

_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "int"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "string"),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"
    ),
    "decimal": "decimal",
    "float": "float",
    "double": "double",
    "bit": "bit",
    "date": "date",
    "datetime": "datetime",
    "timestamp": "timestamp",
    "time": "time",
    "year": "year",
    "enum": "enum",
    "set": "set",
    "json": "json",
}
_LONGEST_DECIMAL = 38
_INTS: dict[tuple[str, bool], pa.DataType] = {
    ("tinyint", False): pa.int8(),
    ("tinyint", True): pa.int16(),
    ("smallint", False): pa.int16(),
    ("smallint", True): pa.int32(),
    ("mediumint", False): pa.int32(),
    ("mediumint", True): pa.int32(),
    ("int", False): pa.int32(),
    ("int", True): pa.int64(),
    ("bigint", False): pa.int64(),
    ("bigint", True): pa.decimal128(20, 0),
}
_PLAIN: dict[Family, pa.DataType] = {
    "int": pa.int64(),
    "year": pa.int64(),
    "uint64": pa.uint64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "bit": pa.binary(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_TIME = re.compile(r"^(\d\d):(\d\d):(\d\d)(?:\.(\d+))?$")


@dataclass(frozen=True)
class MySqlColumn:
    """A column as `information_schema.columns` describes it.

    `length`: bytes of a BINARY; `scale`: of a decimal; `fraction`: digits after the seconds;
    `extra`: such as `auto_increment` or `stored generated`.
    """

    name: str
    data_type: str
    column_type: str
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    length: int = 0
    charset: str | None = None
    collation: str | None = None
    extra: str = ""

    @property
    def unsigned(self) -> bool:
        return "unsigned" in self.column_type

    @property
    def family(self) -> Family:
        """The kind of the column's values; `TableError` for types that are not supported."""
        family = _FAMILIES.get(self.data_type)
        if family is None:
            raise TableError(
                f"column '{self.name}' has the type {self.column_type}, which is not supported; "
                "declare the table's columns without it"
            )
        if family == "int" and self.data_type == "bigint" and self.unsigned:
            return "uint64"
        return family

    @property
    def members(self) -> list[str]:
        """The values of an ENUM or SET, in order."""
        quoted = re.findall(r"'((?:[^']|'')*)'", self.column_type)
        return [value.replace("''", "'") for value in quoted]

    @property
    def plain(self) -> pa.DataType:
        """The Arrow type to which values of a SELECT and of the binlog are converted first."""
        if self.family == "decimal" and self.precision <= _LONGEST_DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _PLAIN.get(self.family, pa.string())

    @property
    def natural(self) -> pa.DataType:
        """The Arrow type of a column without a declared type."""
        family = self.family
        if family in ("int", "uint64"):
            if self.column_type.startswith("tinyint(1)") and not self.unsigned:
                return pa.bool_()
            return _INTS[self.data_type, self.unsigned]
        if family == "bit" and self.column_type == "bit(1)":
            return pa.bool_()
        if family == "year":
            return pa.int32()
        return pa.float32() if family == "float" else self.plain

    @property
    def select(self) -> str:
        """The SQL expression that gives the exact value as text or bytes."""
        name = quote(self.name)
        if self.family == "float":
            # MySQL prints six digits of a FLOAT, but all digits of a DOUBLE.
            return f"({name} + 0e0)"
        if self.family in ("date", "datetime", "timestamp"):
            return f"IF(YEAR({name}) = 0 OR MONTH({name}) = 0 OR DAY({name}) = 0, NULL, {name})"
        return name


def quote(name: str) -> str:
    """A name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def from_texts(column: MySqlColumn, values: Sequence[Any]) -> pa.Array:
    """The plain array of values that a SELECT returned: text, bytes or None."""
    plain = column.plain
    if pa.types.is_binary(plain):
        return pa.array(values, plain)
    if column.family == "json":
        return pa.array([None if v is None else _json(json.loads(v)) for v in values], plain)
    if pa.types.is_decimal(plain):
        return _decimals([None if v is None else Decimal(v) for v in values], plain)
    texts = pa.array(values, pa.string())
    if column.family == "timestamp":
        return texts.cast(pa.timestamp("us")).cast(pa.int64()).cast(plain)
    return texts.cast(plain)


def from_values(column: MySqlColumn, values: Sequence[Any]) -> pa.Array:
    """The plain array of the binlog decoder's values; timestamps in microseconds, dates in days."""
    plain = column.plain
    if pa.types.is_timestamp(plain):
        return pa.array(values, pa.int64()).cast(plain)
    if pa.types.is_date32(plain):
        return pa.array(values, pa.int32()).cast(plain)
    if column.family == "decimal" and pa.types.is_string(plain):
        return pa.array([None if v is None else format(v, "f") for v in values], plain)
    if pa.types.is_decimal(plain):
        return _decimals(values, plain)
    return pa.array(values, plain)


def _decimals(values: Sequence[Decimal | None], plain: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, plain)
    except pa.ArrowInvalid:
        # The column has been widened; `convert` checks whether values fit the declared type.
        return pa.array(values)


def convert(column: MySqlColumn, plain: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    """Convert a plain array to the type `target`; `zone`: between DATETIME and instants.

    Raises `TableError` naming the column when a value does not fit.
    """
    if plain.type == target:
        return plain
    try:
        return _convert(column, plain, target, zone)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise TableError(
            f"column '{column.name}' ({column.column_type}) does not fit its declared type "
            f"({target}): {str(error).splitlines()[0]}; declare a wider type"
        ) from None


def _convert(column: MySqlColumn, plain: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    if pa.types.is_boolean(target):
        if column.family == "bit":
            return pa.array([None if v is None else any(v) for v in plain.to_pylist()], target)
        return pc.not_equal(plain, pa.scalar(0, plain.type))
    if pa.types.is_timestamp(plain.type):
        if pa.types.is_timestamp(target):
            return _zoned(plain, target, zone).cast(target, safe=False)
        if pa.types.is_date(target):
            return _zoned(plain, pa.timestamp("us"), zone).cast(target, safe=False)
        if pa.types.is_string(target):
            values = _zoned(plain, pa.timestamp("us"), zone).cast(pa.int64()).to_pylist()
            return pa.array([_moment_text(v, column.fraction) for v in values], target)
    if column.family == "bit" and pa.types.is_integer(target):
        values = [None if v is None else int.from_bytes(v, "big") for v in plain.to_pylist()]
        return pa.array(values, target)
    if pa.types.is_time(target):
        return pa.array([_day_ms(v) for v in plain.to_pylist()], pa.time32("ms")).cast(target)
    return plain.cast(target)


def _zoned(plain: pa.Array, target: pa.TimestampType, zone: str) -> pa.Array:
    if plain.type.tz is not None and target.tz is None:
        return pc.local_timestamp(plain.cast(pa.timestamp("us", tz=zone)))
    if plain.type.tz is None and target.tz is not None:
        instants = pc.assume_timezone(plain, zone, ambiguous="earliest", nonexistent="latest")
        return instants.cast(pa.timestamp("us", tz=target.tz))
    return plain


def _day_ms(text: str | None) -> int | None:
    if text is None:
        return None
    match = _TIME.match(text)
    if match is None or int(match[1]) > 23:
        raise ValueError(f"'{text}' is not a time of day (declare the column as STRING)")
    hours, minutes, seconds = (int(match[i]) for i in (1, 2, 3))
    fraction = int((match[4] or "").ljust(3, "0")[:3])
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction


def json_text(value: Any) -> str:
    """A JSON document as text, the same for values of a SELECT and of the binlog."""
    return _json(value)


def _json(value: Any) -> str:
    def plain(part: Any) -> Any:
        if isinstance(part, bytes):
            return part.decode("utf-8", "replace")
        if isinstance(part, dict):
            return {plain(k): plain(v) for k, v in part.items()}
        return [plain(v) for v in part] if isinstance(part, list) else part

    return json.dumps(plain(value), ensure_ascii=False, default=str)


def key_of_text(column: MySqlColumn, value: Any) -> Any:
    """The JSON value of a key column, from a value of a SELECT."""
    if column.family in ("int", "uint64", "year"):
        return int(value)
    return value.hex() if isinstance(value, bytes) else value


def key_of_value(column: MySqlColumn, value: Any) -> Any:
    """The JSON value of a key column, from a value of the binlog decoder."""
    family = column.family
    if family == "binary":
        return value.hex()
    if family == "date":
        return datetime.date.fromordinal(value + _EPOCH_DAY).isoformat()
    if family in ("datetime", "timestamp"):
        return _moment_text(value, column.fraction)
    return format(value, "f") if family == "decimal" else value


_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)


def _moment_text(micros: int | None, digits: int) -> str | None:
    if micros is None:
        return None
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    text = moment.isoformat(" ", "seconds")
    return f"{text}.{moment.microsecond:06d}"[: len(text) + 1 + digits] if digits else text
