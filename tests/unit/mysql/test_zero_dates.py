"""Dates that are none: the same by the snapshot and by the binlog, in each mode."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pymysql.constants import FIELD_TYPE
from tests.unit.mysql import reference_decoder

from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    DATETIME2,
    TIMESTAMP2,
    LoggedColumn,
)
from streamhouse.connectors.mysql_cdc.binlog.rows.arrays import to_array
from streamhouse.connectors.mysql_cdc.binlog.rows.images import Block, Values
from streamhouse.errors import TableError
from streamhouse.mysql.charsets import Charsets
from streamhouse.mysql.values.dates import (
    ZERO_DATES,
    DateReading,
    ZeroDates,
)
from streamhouse.mysql.values.rows import convert_dates
from streamhouse.mysql.values.types import (
    MySqlColumn,
    from_texts,
    from_values,
    key_of_text,
    key_of_value,
    key_text,
    key_texts,
    to_values,
)


def _offline(statement: bytes) -> list[tuple[bytes, ...]]:
    raise AssertionError(f"asks the server: {statement!r}")


COLUMNS = [
    MySqlColumn("c", "date", "date"),
    MySqlColumn("c", "datetime", "datetime"),
    MySqlColumn("c", "datetime", "datetime(3)", fraction=3),
    MySqlColumn("c", "timestamp", "timestamp"),
    MySqlColumn("c", "timestamp", "timestamp(5)", fraction=5),
]
REAL, ZERO, FIRST = "2024-02-29 12:34:56.500000", "0000-00-00 00:00:00", "0001-01-01 00:00:00"
BROKEN = ["2023-00-00", "2023-05-00", "2023-02-31 01:02:03", "0000-05-01", "0000-00-00 00:00:01"]


def text_in(column: MySqlColumn, value: str) -> str:
    if column.family == "date":
        return value[:10]
    whole = value if len(value) > 10 else f"{value} 00:00:00"
    length = 19 + (1 + column.fraction if column.fraction else 0)
    return f"{whole}.000000"[:length] if "." not in whole else whole[:length]


def logged(column: MySqlColumn, value: str, old: bool = False) -> tuple[LoggedColumn, bytes]:
    """How the binlog has a value."""
    text = text_in(column, value)
    year, month, day = (int(part) for part in text[:10].split("-"))
    if column.family == "date":
        packed = year << 9 | month << 5 | day
        return LoggedColumn(type=FIELD_TYPE.DATE), packed.to_bytes(3, "little")
    hours, minutes, seconds = (int(part) for part in text[11:19].split(":"))
    extra = (column.fraction + 1) // 2
    digits = text[20:].ljust(2 * extra, "0")
    fraction = int(digits or "0").to_bytes(extra, "big")
    if column.family == "datetime":
        if old:
            number = int(text.translate(str.maketrans("", "", "- :")))
            return LoggedColumn(type=FIELD_TYPE.DATETIME), number.to_bytes(8, "little")
        days = (year * 13 + month) << 22 | day << 17
        packed = days | hours << 12 | minutes << 6 | seconds | 0x8000000000
        wire = LoggedColumn(type=DATETIME2, fraction=column.fraction)
        return wire, packed.to_bytes(5, "big") + fraction
    at = 0
    if year:
        moment = datetime.datetime.fromisoformat(text[:19]).replace(tzinfo=datetime.UTC)
        at = int(moment.timestamp())
    if old:
        return LoggedColumn(type=FIELD_TYPE.TIMESTAMP), at.to_bytes(4, "little")
    wire = LoggedColumn(type=TIMESTAMP2, fraction=column.fraction)
    return wire, at.to_bytes(4, "big") + fraction


class Outcome:
    """The plain values of a column, or the error, by each way to read them."""

    def __init__(
        self, column: MySqlColumn, values: Sequence[str | None], reading: DateReading
    ) -> None:
        self.column, self.values, self.reading = column, values, reading
        self.texts = [None if value is None else text_in(column, value) for value in values]

    def snapshot(self) -> pa.Array:
        raw = [None if text is None else text.encode() for text in self.texts]
        return from_texts(self.column, pa.array(raw, pa.binary()), self.reading)

    def context(self) -> decode.Context:
        return decode.Context(Charsets(_offline), self.reading, self.column.fraction)

    def one_by_one(self, old: bool = False) -> pa.Array:
        found = []
        for value in self.values:
            wire, data = logged(self.column, value or REAL, old)
            read = reference_decoder.reader(wire, self.column, self.context())
            one, end = read(b"x" + data, 1)
            assert end == 1 + len(data)
            found.append(None if value is None else one)
        return from_values(self.column, found, self.reading)

    def together(self, old: bool = False) -> pa.Array:
        pieces = [logged(self.column, value or REAL, old) for value in self.values]
        wire = pieces[0][0]
        convert = to_array(wire, self.column, self.context(), self.column)
        sizes = [len(data) for _, data in pieces]
        at = np.cumsum([0, *sizes[:-1]]).astype(np.int64)
        nulls = np.array([value is None for value in self.values])
        block = Block(*(data for _, data in pieces))
        return convert(block, Values(at, 0, None, nulls if nulls.any() else None))

    def all(self) -> list[Any]:
        """The values by each way, which are equal; the error's message in a list."""
        ways = [self.snapshot, self.one_by_one, self.together]
        if not self.column.fraction and self.column.family != "date":
            ways += [lambda: self.one_by_one(old=True), lambda: self.together(old=True)]
        outcomes = []
        for way in ways:
            try:
                array = way()
                array.validate(full=True)
                outcomes.append((str(array.type), array.to_pylist()))
            except TableError as error:
                outcomes.append(("error", [str(error)]))
        assert all(outcome == outcomes[0] for outcome in outcomes), outcomes
        values: list[Any] = outcomes[0][1]
        return values


def date_of(column: MySqlColumn, text: str) -> datetime.date:
    found = datetime.datetime.fromisoformat(text_in(column, text))
    if column.family == "date":
        return found.date()
    return found if column.family == "datetime" else found.replace(tzinfo=datetime.UTC)


def broken(column: MySqlColumn) -> list[str]:
    """The values that are no dates, but not zero."""
    if column.family == "timestamp":
        return []
    return [one for one in BROKEN if text_in(column, one) != text_in(column, ZERO)]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.column_type)
@pytest.mark.parametrize("in_key", [False, True])
@pytest.mark.parametrize("zero_dates", ZERO_DATES)
def test_dates_alone_are_read_in_all_modes(
    column: MySqlColumn, in_key: bool, zero_dates: ZeroDates
) -> None:
    real: list[str | None] = [REAL, None, "2024-01-01", REAL]
    for values in (real, real[:1]):
        expected = [None if one is None else date_of(column, one) for one in values]
        assert Outcome(column, values, DateReading(zero_dates, in_key)).all() == expected


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.column_type)
def test_other_columns(column: MySqlColumn) -> None:
    values = [REAL, ZERO, None, *broken(column), ZERO, REAL]
    real, first = date_of(column, REAL), date_of(column, FIRST)
    nulls = [None] * len(broken(column))
    assert Outcome(column, values, DateReading()).all() == [real, None, None, *nulls, None, real]
    rounded = [real, first, None, *nulls, first, real]
    assert Outcome(column, values, DateReading("ROUND")).all() == rounded
    for value in (ZERO, *broken(column)):
        (error,) = Outcome(column, [REAL, None, value], DateReading("EXCEPTION")).all()
        assert f"has the value {text_in(column, value)}, which is no date, and" in error
        assert f"column 'c' ({column.column_type})" in error and "'EXCEPTION'" in error


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.column_type)
def test_keys(column: MySqlColumn) -> None:
    zero = text_in(column, ZERO)
    (error,) = Outcome(column, [REAL, ZERO], DateReading(in_key=True)).all()
    assert f"of the key has the zero date {zero}," in error
    assert "'jdbc.properties.zeroDateTimeBehavior' = 'ROUND'" in error
    assert "as STRING" in error and "--type-mapping to-string" in error
    rounded = DateReading("ROUND", in_key=True)
    values: list[str | None] = [ZERO, REAL, ZERO]
    expected = [date_of(column, FIRST), date_of(column, REAL), date_of(column, FIRST)]
    assert Outcome(column, values, rounded).all() == expected
    for behavior in ZERO_DATES[:2]:
        for value in broken(column):
            (error,) = Outcome(column, [ZERO, value][-1:], DateReading(behavior, True)).all()
            assert f"of the key has the value {text_in(column, value)}, which is no date" in error
            assert "declare the column as STRING" in error
    if column.family != "timestamp":
        for some in ([ZERO, FIRST], [FIRST], [REAL, FIRST, None]):
            (error,) = Outcome(column, some, rounded).all()
            assert f"of the key has the value {text_in(column, FIRST)}, as which" in error
        assert Outcome(column, [FIRST], DateReading(in_key=True)).all() == expected[:1]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.column_type)
@pytest.mark.parametrize("zero_dates", ZERO_DATES)
def test_keys_that_are_texts(column: MySqlColumn, zero_dates: ZeroDates) -> None:
    reading = DateReading(zero_dates, in_key=True, as_text=True)
    first = [] if column.family == "timestamp" else [FIRST]
    for values in ([REAL, *first], [REAL, ZERO, *first, *broken(column), REAL]):
        outcome = Outcome(column, values, reading)
        if zero_dates == "EXCEPTION" and ZERO in values:
            (error,) = outcome.all()
            assert f"has the value {text_in(column, ZERO)}" in error
        else:
            assert outcome.all() == outcome.texts


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.column_type)
@pytest.mark.parametrize("reading", [DateReading("ROUND", True), DateReading("ROUND", True, True)])
def test_keys_are_compared_by_mysqls_text(column: MySqlColumn, reading: DateReading) -> None:
    for value in (REAL, ZERO, *(broken(column) if reading.as_text else ())):
        wire, data = logged(column, value)
        convert = to_array(wire, column, Outcome(column, [], reading).context(), column)
        (read,) = to_values(column, convert(Block(data), Values(np.array([0]), 0, None, None)))
        text = text_in(column, value)
        key = text.rstrip("0").rstrip(".") if "." in text else text
        assert key_of_value(column, read, reading) == key_of_text(column, text) == key


@pytest.mark.parametrize(
    ("column", "texts", "keys"),
    [
        (COLUMNS[0], ["2024-01-10", "0000-00-00"], ["2024-01-10", "0000-00-00"]),
        (
            COLUMNS[2],
            ["2024-01-10 10:00:00", "2024-01-10 10:00:00.000", "2024-01-10 10:00:00.100"],
            ["2024-01-10 10:00:00", "2024-01-10 10:00:00", "2024-01-10 10:00:00.1"],
        ),
        (
            MySqlColumn("c", "decimal", "decimal(9,3)", precision=9, scale=3),
            ["100", "001.500", "-2.050", "0.000", "10.0"],
            ["100", "1.5", "-2.05", "0", "10"],
        ),
        (MySqlColumn("c", "time", "time(3)", fraction=3), ["-10:00:00.000"], ["-10:00:00"]),
    ],
)
def test_keys_do_not_depend_on_digits(
    column: MySqlColumn, texts: list[str], keys: list[str]
) -> None:
    assert [key_text(column, text) for text in texts] == keys
    assert key_texts(column, pa.array(texts)).to_pylist() == keys


TARGETS: list[tuple[pa.DataType, Any]] = [
    (pa.date32(), datetime.date(1, 1, 1)),
    (pa.timestamp("us"), datetime.datetime(1, 1, 1)),
    (pa.timestamp("ms"), datetime.datetime(1, 1, 1)),
    (pa.timestamp("us", "UTC"), datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
    (pa.timestamp("ms", "UTC"), datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
    (pa.string(), "0001-01-01 00:00:00"),
]


@pytest.mark.parametrize("zone", ["UTC", "+14:00", "-12:00", "America/New_York"])
@pytest.mark.parametrize("column", COLUMNS[1:], ids=lambda column: column.column_type)
@pytest.mark.parametrize(("target", "expected"), TARGETS, ids=str)
def test_rounded_dates_are_not_shifted(
    zone: str, column: MySqlColumn, target: pa.DataType, expected: Any
) -> None:
    reading = DateReading("ROUND")
    plain = Outcome(column, [ZERO, REAL, None], reading).snapshot()
    found = convert_dates(column, plain, target, zone, reading)
    assert found.type == target
    if target == pa.string() and column.fraction:
        expected = f"{expected}.{'0' * column.fraction}"
    assert found[0].as_py() == expected
    plain = Outcome(column, [REAL, REAL, None], DateReading()).snapshot()
    assert found[1:] == convert_dates(column, plain, target, zone, DateReading())[1:]


def test_a_key_does_not_become_the_rounded_one_by_its_type() -> None:
    reading, column = DateReading("ROUND", in_key=True), COLUMNS[1]
    for value, target, zone in (
        ("0001-01-01 05:00:00", pa.date32(), "UTC"),
        ("0001-01-01 05:00:00", pa.timestamp("us", "UTC"), "+05:00"),
    ):
        for values in ([value], [ZERO, value]):
            plain = Outcome(column, values, reading).snapshot()
            with pytest.raises(TableError, match="'c' .* makes equal to 0001-01-01"):
                convert_dates(column, plain, target, zone, reading)


def test_texts_of_timestamps_are_in_the_servers_zone() -> None:
    reading, column = DateReading(in_key=True, as_text=True), COLUMNS[3]
    plain = Outcome(column, [ZERO, REAL, None], reading).snapshot()
    found = convert_dates(column, plain, pa.string(), "+08:00", reading)
    assert found.to_pylist() == ["0000-00-00 00:00:00", "2024-02-29 20:34:56", None]
    # As a sync writes them.
    wide = MySqlColumn("c", "timestamp", "timestamp", fraction=6)
    found = convert_dates(wide, plain, pa.string(), "UTC", reading)
    assert found.to_pylist() == ["0000-00-00 00:00:00.000000", "2024-02-29 12:34:56.000000", None]
    wide = MySqlColumn("c", "datetime", "datetime", fraction=3)
    plain = Outcome(COLUMNS[1], [ZERO, "2023-02-31", None], reading).snapshot()
    found = convert_dates(wide, plain, pa.string(), "+08:00", reading)
    assert found.to_pylist() == ["0000-00-00 00:00:00.000", "2023-02-31 00:00:00.000", None]
