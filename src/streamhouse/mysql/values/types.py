"""Converts MySQL's column types to Arrow, with the same values from a SELECT and from the binlog.

Both kinds of values first become a *plain* Arrow array (int64, uint64, decimal, float64, string,
binary, date32, timestamp of microseconds). From there the same code converts them to the column's
own or declared type, so a snapshot and the binlog cannot differ.

A primary key is represented by JSON values: integers as int, binaries as hexadecimal text,
everything else as MySQL's text of it, without zeros at the end of a fraction.
"""

import datetime
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeVar, get_args

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.mysql.values import dates
from streamhouse.mysql.values.byte_values import geometry_texts, utf8_text, vector_numbers
from streamhouse.mysql.values.dates import AS_NULL, DateReading

_T = TypeVar("_T")
Family = Literal[
    "int", "uint64", "decimal", "float", "double", "string", "binary", "bit", "date", "datetime",
    "timestamp", "time", "year", "enum", "set", "json", "geometry", "vector", "uuid", "inet4",
    "inet6",
]  # fmt: skip

_FAMILIES: dict[str, Family] = {
    **{family: family for family in get_args(Family)},
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "bigint"), "int"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "string"),
    **dict.fromkeys(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"),
    **dict.fromkeys(
        (
            "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
            "geometrycollection", "geomcollection",
        ),
        "geometry",
    ),
}  # fmt: skip
"""The families of MySQL's types; most have the name of their only type."""
UTC_NAMES = ("UTC", "GMT", "Etc/UTC")
WITH_FRACTIONS = frozenset({"decimal", "date", "datetime", "timestamp", "time"})
"""Families whose texts may have digits after a point, or whose values are compared as texts."""
_BEYOND_UTF8MB3 = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", None: "'"}
# The bytes of MariaDB's temporal types with fractions before version 10.1, by digits.
_OLD_FRACTIONS = {
    "time": (3, 4, 4, 5, 5, 5, 6),
    "datetime": (8, 6, 6, 7, 7, 7, 8),
    "timestamp": (4, 5, 5, 6, 6, 7, 7),
}
_LONGEST_DECIMAL = 38
_INTS = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
}
"""The types of signed and of unsigned integers."""
_PLAIN: dict[Family, pa.DataType] = {
    "int": pa.int64(),
    "year": pa.int64(),
    "uint64": pa.uint64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "bit": pa.binary(),
    "vector": pa.binary(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_OFFSET = re.compile(r"([+-])([01]?\d):([0-5]\d)")
_LENGTH = re.compile(r"\((\d+)\)")
_ZEROS = re.compile(r"^(-?)0+(?=\d)")
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
    def declared_length(self) -> int | None:
        """The number in parentheses of the column's type; None if there is none."""
        match = _LENGTH.search(self.column_type)
        return None if match is None else int(match[1])

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
        return [
            _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), quoted)
            for quoted in _MEMBER.findall(self.column_type)
        ]

    def member_number(self, text: str) -> int:
        """The number by which the server orders a value of an ENUM or SET."""
        by_name = _numbers(self)
        names = [text] if self.family == "enum" else text.split(",")
        try:
            numbers = [by_name[name] for name in names] if text else []
        except KeyError as error:
            raise unreadable(self, f"{error} is not among the members; it was altered") from None
        return sum(numbers) if self.family == "enum" else sum(1 << number - 1 for number in numbers)

    @property
    def members_are_uncertain(self) -> bool:
        """Whether `members` may have `?` for other characters: the server lists them in utf8mb3."""
        return self.charset in _BEYOND_UTF8MB3 and any("?" in name for name in self.members)

    @property
    def has_date(self) -> bool:
        """Whether values have a date, and so may be zero dates, which may read as NULL."""
        return self.family in ("date", "datetime", "timestamp")

    @property
    def old_fraction_bytes(self) -> int:
        """The bytes in the binlog of fractions in the form before MariaDB 10.1; 0 for others."""
        if "mariadb-5.3" in self.column_type and self.fraction:
            return _OLD_FRACTIONS[self.data_type][self.fraction]
        return 0

    @property
    def plain(self) -> pa.DataType:
        """The Arrow type to which values of SELECTs and of the binlog are converted first."""
        if self.family == "decimal" and self.precision <= _LONGEST_DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _PLAIN.get(self.family, pa.string())

    @property
    def natural(self) -> pa.DataType:
        """The Arrow type of a column without a declared type."""
        is_boolean = self.column_type.startswith("tinyint(1)") and not self.unsigned
        return pa.bool_() if is_boolean else self.exact

    @property
    def exact(self) -> pa.DataType:
        """As `natural`, but a TINYINT(1) is a number, since keys need all of its values."""
        family = self.family
        if family in ("int", "uint64"):
            return _INTS[self.data_type][self.unsigned]
        if family == "bit" and self.column_type == "bit(1)":
            return pa.bool_()
        if family == "year":
            return pa.int32()
        if family == "vector":
            return pa.list_(pa.float32())
        return pa.float32() if family == "float" else self.plain

    @property
    def select(self) -> str:
        """The SQL expression that gives the exact value as text or bytes."""
        name = quote(self.name)
        if self.family == "float":
            # MySQL prints six digits of a FLOAT, but all digits of a DOUBLE.
            return f"({name} * 1e0)"
        return name


@functools.lru_cache(maxsize=1000)
def _numbers(column: MySqlColumn) -> dict[str, int]:
    return {member: number for number, member in enumerate(column.members, 1)}


NO_KEY = "a key has only characters that its character set has once"


def unreadable(column: MySqlColumn, reason: str) -> TableError:
    """The error for a value that cannot be read as one of the column's type."""
    return TableError(
        f"column '{column.name}' ({column.column_type}) has a value that cannot be read: {reason}; "
        "change or delete the row in MySQL, or leave the column out, and start again with a new "
        "checkpoint"
    )


@contextmanager
def errors_of(table: str) -> Iterator[None]:
    """Prefix a `TableError` with the name of the table, unless it has it."""
    try:
        yield
    except TableError as error:
        if type(error) is not TableError or table in str(error):
            raise
        raise TableError(f"MySQL table {table}: {error}") from None


def naming(table: str, batches: Iterable[_T]) -> Iterator[_T]:
    """Yield the batches; errors while reading them name the table."""
    with errors_of(table):
        yield from batches


def quote(name: str) -> str:
    """A name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def from_texts(column: MySqlColumn, raw: pa.Array, reading: DateReading = AS_NULL) -> pa.Array:
    """The plain array of values that a SELECT returned, from a binary array (of texts, too)."""
    plain = column.plain
    if pa.types.is_binary(plain):
        return raw
    if column.family == "geometry":
        return geometry_texts(raw)
    texts = _texts(raw)
    if column.family == "decimal" and pa.types.is_string(plain):
        return without_zeros(texts)
    if pa.types.is_decimal(plain):
        try:
            return texts.cast(plain)
        except pa.ArrowInvalid:
            return _decimals([None if v is None else Decimal(v) for v in texts.to_pylist()], plain)
    if column.has_date:
        return dates.parsed(column, texts, plain, reading)
    return texts.cast(plain)


def without_zeros(texts: pa.Array) -> pa.Array:
    """Decimals without the leading zeros of ZEROFILL, which the binlog does not have."""
    return pc.replace_substring_regex(texts, r"^(-?)0*(\d.*)$", r"\1\2")


def _texts(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else utf8_text(v) for v in raw.to_pylist()], pa.string())


def from_values(
    column: MySqlColumn, values: Sequence[Any], reading: DateReading = AS_NULL
) -> pa.Array:
    """The plain array of the binlog decoder's values; timestamps in microseconds, dates in days."""
    plain = column.plain
    if column.has_date:
        return dates.from_values(values, plain, reading)
    if column.family == "decimal" and pa.types.is_string(plain):
        return pa.array([None if v is None else format(v, "f") for v in values], plain)
    if pa.types.is_decimal(plain):
        return _decimals(values, plain)
    return pa.array(values, plain)


def to_values(column: MySqlColumn, plain: pa.Array) -> list[Any]:
    """The binlog decoder's values of a plain array, as `from_values` takes them."""
    if pa.types.is_timestamp(plain.type):
        plain = plain.cast(pa.int64())
    elif pa.types.is_date32(plain.type):
        plain = plain.cast(pa.int32())
    values: list[Any] = plain.to_pylist()
    if column.family == "decimal" and pa.types.is_string(plain.type):
        return [None if value is None else Decimal(value) for value in values]
    return values


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
            return zoned(plain, target, zone).cast(target, safe=False)
        if pa.types.is_date(target):
            return zoned(plain, pa.timestamp("us"), zone).cast(target, safe=False)
        if pa.types.is_string(target):
            return dates.texts_of(zoned(plain, pa.timestamp("us"), zone), column.fraction)
    if column.family == "bit" and pa.types.is_string(target):
        one = column.column_type == "bit(1)"
        return pa.array([None if v is None else _bit_text(v, one) for v in plain.to_pylist()])
    if column.family == "vector" and not pa.types.is_binary(target):
        return vector_numbers(plain, target)
    if column.family == "float" and pa.types.is_string(target):
        # The text of the nearest single-precision number, as the server prints it.
        return plain.cast(pa.float32()).cast(target)
    if column.family == "bit" and pa.types.is_integer(target):
        values = [None if v is None else int.from_bytes(v, "big") for v in plain.to_pylist()]
        return pa.array(values, target)
    if column.family == "set" and pa.types.is_list(target):
        sets = [None if v is None else v.split(",") if v else [] for v in plain.to_pylist()]
        return pa.array(sets, pa.list_(pa.string())).cast(target)
    if pa.types.is_time(target):
        return pa.array([_day_ms(v) for v in plain.to_pylist()], pa.time32("ms")).cast(target)
    return plain.cast(target)


def _bit_text(value: bytes, one: bool) -> str:
    """As Paimon writes it: a BIT(1) as true or false, longer ones as the digits of whole bytes."""
    if one:
        return "true" if any(value) else "false"
    return "".join(f"{byte:08b}" for byte in value)


def zoned(plain: pa.Array, target: pa.TimestampType, zone: str) -> pa.Array:
    """Local times of a zone as instants if `target` has a zone, else instants as local times."""
    if (plain.type.tz is None) == (target.tz is None):
        return plain
    to_local = plain.type.tz is not None
    offset = zone_offset(zone)
    if offset is not None:
        micros = (offset if to_local else -offset) // datetime.timedelta(microseconds=1)
        shifted = pc.add(plain.cast(pa.int64()), pa.scalar(micros, pa.int64()))
        return shifted.cast(pa.timestamp("us", target.tz))
    if to_local:
        return pc.local_timestamp(plain.cast(pa.timestamp("us", tz=zone)))
    instants = pc.assume_timezone(plain, zone, ambiguous="earliest", nonexistent="latest")
    return instants.cast(pa.timestamp("us", tz=target.tz))


def has_fixed_offset(zone: str) -> bool:
    """Whether a zone never changes its offset, such as `UTC` and `+08:00`."""
    return zone in UTC_NAMES or zone_offset(zone) is not None


def zone_offset(zone: str) -> datetime.timedelta | None:
    """The offset of a zone such as `+08:00`; None for a named zone."""
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    offset = datetime.timedelta(hours=int(match[2]), minutes=int(match[3]))
    return -offset if match[1] == "-" else offset


def _day_ms(text: str | None) -> int | None:
    if text is None:
        return None
    match = _TIME.match(text)
    if match is None or int(match[1]) > 23:
        raise ValueError(
            f"'{text}' is not a time of day (declare the column as STRING; in a sync, drop the "
            "Paimon table, and start with --type-mapping time-to-string and another --name)"
        )
    hours, minutes, seconds = (int(match[i]) for i in (1, 2, 3))
    fraction = int((match[4] or "").ljust(3, "0")[:3])
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction


def key_of_text(column: MySqlColumn, value: Any) -> Any:
    """The JSON value of a key column, from a value of a SELECT; `TableError` for NULL."""
    if value is None:
        raise unreadable(column, NO_KEY)
    family = column.family
    if family in ("binary", "bit"):
        return value.hex() if family == "binary" else int.from_bytes(value, "big")
    try:
        text = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise unreadable(column, NO_KEY) from None
    if family in ("int", "uint64", "year"):
        return int(text)
    if family in WITH_FRACTIONS:
        return key_text(column, text)
    return column.member_number(text) if family in ("enum", "set") else text


def key_of_value(column: MySqlColumn, value: Any, reading: DateReading = AS_NULL) -> Any:
    """The JSON value of a key column, from a value of the binlog decoder."""
    family = column.family
    if family == "binary":
        return value.hex()
    if family in WITH_FRACTIONS:
        if column.has_date:
            value = dates.key_of_date(column, value, reading)
        return key_text(column, format(value, "f") if family == "decimal" else value)
    if family in ("enum", "set"):
        return column.member_number(value)
    return int.from_bytes(value, "big") if family == "bit" else value


def key_text(column: MySqlColumn, text: str) -> str:
    """The text of a key without zeros at the end of a fraction, and those of ZEROFILL.

    An ALTER TABLE may have given the column more digits since another text of the same key.
    """
    if column.family == "decimal":
        text = _ZEROS.sub(r"\1", text)
    return text.rstrip("0").rstrip(".") if "." in text else text


def key_texts(column: MySqlColumn, texts: pa.Array) -> pa.Array:
    """As `key_text`, for an array."""
    if column.family == "decimal":
        texts = without_zeros(texts)
    return trimmed_fractions(texts)


def trimmed_fractions(texts: pa.Array) -> pa.Array:
    """Numbers and times without zeros at the end of a fraction."""
    with_fraction = pc.match_substring(texts, ".")
    if not pc.any(with_fraction).as_py():
        return texts
    trimmed = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    return pc.if_else(with_fraction, trimmed, texts)
