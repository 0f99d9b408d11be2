"""Two keys never become one, whatever the declared types of their columns."""

from __future__ import annotations

import datetime
import itertools
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.connectors.mysql_cdc.database.type_mapping import MODES, TypeMapping
from streamhouse.errors import TableError
from streamhouse.mysql.columns import selected_columns
from streamhouse.mysql.options import parse
from streamhouse.mysql.values.dates import ZERO_DATES, DateReading, ZeroDates
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.types import MySqlColumn, from_values, key_of_value, to_values
from streamhouse.paimon.schema import types
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

BERLIN = "Europe/Berlin"
ZONES = [BERLIN, "America/Sao_Paulo", "Australia/Lord_Howe", "UTC", "+05:30"]
OPTIONS = parse(
    {
        "hostname": "h",
        "username": "u",
        "password": "p",
        "database-name": "d",
        "table-name": "t",
    }
)
TARGETS = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38, 2)",
    "DECIMAL(20, 0)", "DECIMAL(10, 1)", "STRING", "BYTES", "DATE", "TIME(0)", "TIME(3)",
    "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)",
]  # fmt: skip


def column(kind: str, **facts: Any) -> MySqlColumn:
    return MySqlColumn("k", kind.partition("(")[0].partition(" ")[0], kind, False, **facts)


def local_times() -> list[str]:
    """Around the hours that the zones skip or repeat, at midnight, and near the limits."""
    found = []
    for day in ("2024-03-31", "2024-10-27", "2018-11-04", "2018-02-18", "2024-04-06", "2024-10-05"):
        start = datetime.datetime.fromisoformat(f"{day} 00:00:00")
        # The shortest change of a zone's clock is half an hour.
        steps = [*range(10), *range(28, 32)]
        found += [str(start + datetime.timedelta(minutes=30 * step)) for step in steps]
    return [*found, "1001-01-01 00:00:00", "1970-01-01 00:00:01", "9999-12-30 00:00:00"]


def with_fractions(texts: list[str], digits: int) -> list[str]:
    ends = ["".ljust(digits, "0"), "1".rjust(digits, "0"), "1".ljust(digits, "0")]
    if digits > 3:
        ends.append("001".ljust(digits, "0"))
    some = [f"{texts[at]}.{end}" for at in range(0, len(texts), 7) for end in ends]
    return list(dict.fromkeys([*some, *(f"{text}.{ends[0]}" for text in texts)]))


LOCAL = local_times()
INSTANTS = [text for text in LOCAL if "1970" <= text < "2038"]
TIMES = ["00:00:00", "01:02:03", "23:59:59"]
INTS = ["-1", "0", "1", "2", "16777216", "16777217", "9007199254740992", "9007199254740993"]
UNSIGNED = [*INTS[1:], "18446744073709551615", "18446744073709551614"]
DECIMALS = [
    "-1.00", "0.00", "0.01", "0.10", "1.00", "1.01", "9999999.98", "9999999.99",
    "100000000000000000.01", "100000000000000000.02",
]  # fmt: skip
TEXTS = [
    "1", "01", "1.0", "1.00", "1.5", "1.50", " 1", "1 ", "+1", "1e0", "-0", "0", "0.0", "true",
    "TRUE",    "2024-01-01", "2024-01-01 00:00:00", "2024-01-01T00:00:00", "2024-01-01 00:00:00.0",
    "2024-01-01 00:00", "2024-01-01 00:00:00Z", "2024-01-01 01:00:00+01:00", "01:02:03",
    "01:02:03.0", "01:02:03.5", "01:02:03.50", "01:02:03.0001", "a", "A", "ä", "",
]  # fmt: skip
UTF8 = {"charset": "utf8mb4"}
COLUMNS: list[tuple[MySqlColumn, list[Any]]] = [
    (column("tinyint(1)"), ["-1", "0", "1", "2"]),
    (column("tinyint(3) unsigned"), ["0", "1", "255"]),
    (column("int(11)"), INTS[:6]),
    (column("bigint(20)"), INTS),
    (column("bigint(20) unsigned"), UNSIGNED),
    (column("decimal(20,2)", precision=20, scale=2), DECIMALS),
    (column("decimal(9,2)", precision=9, scale=2), DECIMALS[:8]),
    (column("decimal(6,2)", precision=6, scale=2), DECIMALS[:6]),
    (column("decimal(50,2)", precision=50, scale=2), DECIMALS),
    (column("date"), ["1000-01-01", "1970-01-01", "1970-01-02", "9999-12-31"]),
    (column("datetime"), LOCAL),
    (column("datetime(3)", fraction=3), with_fractions(LOCAL, 3)),
    (column("datetime(6)", fraction=6), with_fractions(LOCAL, 6)),
    (column("timestamp"), INSTANTS),
    (column("timestamp(6)", fraction=6), with_fractions(INSTANTS, 6)),
    (column("time"), [*TIMES, "-00:00:01", "100:00:00"]),
    (column("time(3)", fraction=3), with_fractions(TIMES, 3)),
    (column("time(6)", fraction=6), with_fractions(TIMES, 6)),
    (column("year(4)"), ["0", "1901", "2024", "2155"]),
    (column("bit(1)"), [b"\0", b"\1"]),
    (column("bit(9)"), [b"\0\0", b"\0\1", b"\1\0", b"\1\1"]),
    (column("binary(3)", length=3), [b"a\0\0", b"a \0", b"abc", b"1  ", b"01 ", b"001", b"1.0"]),
    (column("varbinary(3)", length=3), [b"a", b"a\0", b"\xff", b"1", b"01", b"1.0", b"+1", b" 1"]),
    (column("char(9)", **UTF8), TEXTS[:9]),
    (column("varchar(99)", **UTF8), TEXTS),
    (column("enum('1','01','1.0','a','A')", **UTF8), ["1", "01", "1.0", "a", "A"]),
    (column("set('1','01','a')", **UTF8), ["", "1", "01", "1,01", "a", "1,01,a"]),
    (column("uuid"), [f"00000000-0000-0000-0000-00000000000{digit}" for digit in "0a"]),
    (column("inet4"), ["0.0.0.1", "1.0.0.0"]),
    (column("inet6"), ["::1", "::2"]),
]  # fmt: skip
IDS = [column.column_type for column, _ in COLUMNS]


def logged(column: MySqlColumn, text: Any, as_text: bool) -> Any:
    """The value that the binlog decoder returns."""
    if column.family in ("int", "uint64", "year"):
        return int(text)
    if column.family == "decimal":
        return Decimal(text)
    if not column.has_date or as_text:
        return text
    found = datetime.datetime.fromisoformat(text)
    if column.family == "date":
        return (found.date() - datetime.date(1970, 1, 1)).days
    return (found - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


def numbers(array: pa.Array) -> list[Any]:
    """Values of an array; those of times as numbers, as Python has fewer years."""
    if pa.types.is_temporal(array.type):
        is_short = array.type in (pa.date32(), pa.time32("ms"))
        array = array.cast(pa.int32() if is_short else pa.int64())
    return list(array.to_pylist())


def written(
    column: MySqlColumn, target: pa.DataType, zone: str, values: list[Any], zeros: ZeroDates
) -> dict[Any, Any]:
    """The accepted values, with what each becomes; the same by a SELECT and by the binlog."""
    writer = RowWriter(((column, target),), zone, frozenset({"k"}), zeros)
    as_text = pa.types.is_string(target)

    def snapshot(some: list[Any]) -> list[Any]:
        raw = [value if isinstance(value, bytes) else value.encode() for value in some]
        return numbers(writer.snapshot([pa.array(raw, pa.binary())]).column(0))

    def changes(some: list[Any]) -> list[Any]:
        values = [logged(column, value, as_text) for value in some]
        plain = from_values(column, values, DateReading(zeros, True, as_text))
        return numbers(writer.changed(pa.repeat("+I", len(plain)), [plain]).column(0))

    accepted = {}
    for value in values:
        results: list[tuple[list[Any], type[Exception] | None]] = []
        for read in (snapshot, changes):
            try:
                results.append((read([value]), None))
            except (TableError, TypeError) as error:
                # Without a check of keys, too: a number is no TIME.
                results.append(([], type(error)))
        assert results[0] == results[1], value
        if results[0][1] is None:
            accepted[value] = results[0][0][0]
    if accepted:
        assert snapshot(list(accepted)) == changes(list(accepted)) == list(accepted.values())
    if len(accepted) < len(values):
        with pytest.raises((TableError, TypeError)):
            snapshot(values)
        with pytest.raises((TableError, TypeError)):
            changes(values)
    return accepted


def frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def check(
    column: MySqlColumn, target: pa.DataType, zone: str, values: list[Any], zeros: ZeroDates
) -> int:
    """Check that no two values become one; returns how many are accepted."""
    own = list(dict.fromkeys(values))
    accepted = written(column, target, zone, own, zeros)
    by_target: dict[Any, Any] = {}
    for value, became in accepted.items():
        assert became is not None, value
        other = by_target.setdefault(frozen(became), value)
        assert other == value, f"{other} and {value} become {became}"
    return len(accepted)


@pytest.mark.parametrize(("column", "values"), COLUMNS, ids=IDS)
def test_declared_types_make_no_keys_equal(column: MySqlColumn, values: list[Any]) -> None:
    zones = ZONES if column.has_date else [BERLIN]
    modes = ZERO_DATES if column.has_date else ZERO_DATES[:1]
    for target, zone in itertools.product(TARGETS, zones):
        for zeros in modes if zone == BERLIN else modes[:1]:
            some = values if zone == BERLIN else values[::3]
            check(column, arrow_type(target), zone, some, zeros)
    assert check(column, column.exact, BERLIN, values, "CONVERT_TO_NULL") == len(values)


@pytest.mark.parametrize(("column", "values"), COLUMNS, ids=IDS)
@pytest.mark.parametrize("mode", ["", *MODES])
def test_types_of_syncs_make_no_keys_equal(
    column: MySqlColumn, values: list[Any], mode: str
) -> None:
    name = TypeMapping.of([mode]).type(column, in_key=True)
    target = types.arrow_type(types.parse(name))
    for zone in (BERLIN, "UTC"):
        accepted = check(column, target, zone, values, "CONVERT_TO_NULL")
        if zone == "UTC" and column.column_type not in ("time", "bigint(20) unsigned"):
            if not (mode == "to-string" and column.family == "binary"):
                assert accepted == len(set(values))


def accepted_by(kind: str, target: str, zone: str, values: list[str]) -> list[str]:
    source = next(column for column, _ in COLUMNS if column.column_type == kind)
    found = written(source, arrow_type(target), zone, values, "CONVERT_TO_NULL")
    return [value for value in values if value in found]


AUTUMN = [f"2024-10-27 {at}:00" for at in ("00:00", "00:30", "00:59", "01:00", "01:30", "02:00")]
SPRING = [f"2024-03-31 {at}:00" for at in ("01:59", "02:00", "02:30", "02:59", "03:00", "03:30")]


@pytest.mark.parametrize("target", ["TIMESTAMP(3)", "TIMESTAMP(6)", "STRING"])
def test_only_the_second_of_two_equal_hours_is_refused(target: str) -> None:
    first = [text for text in AUTUMN if "01:" not in text[11:14]]
    assert accepted_by("timestamp", target, BERLIN, AUTUMN) == first
    for zone in ("UTC", "+01:00"):
        assert accepted_by("timestamp", target, zone, AUTUMN) == AUTUMN
    assert accepted_by("timestamp", "TIMESTAMP_LTZ(3)", BERLIN, AUTUMN) == AUTUMN


@pytest.mark.parametrize("target", ["TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)"])
def test_only_the_hour_that_a_zone_skips_is_refused(target: str) -> None:
    there = [text for text in SPRING if "02:" not in text[11:14]]
    assert accepted_by("datetime", target, BERLIN, SPRING) == there
    assert accepted_by("datetime", target, BERLIN, AUTUMN) == AUTUMN
    assert accepted_by("datetime", "TIMESTAMP(3)", BERLIN, SPRING) == SPRING
    assert accepted_by("datetime", "STRING", BERLIN, SPRING) == SPRING


def test_values_that_fit_a_narrower_type_are_accepted() -> None:
    assert accepted_by("datetime", "DATE", BERLIN, ["2024-01-01 00:00:00"])
    assert accepted_by("varchar(99)", "BIGINT", BERLIN, ["1", "01", "200"]) == ["1", "200"]
    assert accepted_by("decimal(9,2)", "DOUBLE", BERLIN, ["0.01", "9999999.99"])
    assert accepted_by("bigint(20)", "DOUBLE", BERLIN, ["1", "-1"])


@pytest.mark.parametrize("zeros", ZERO_DATES)
@pytest.mark.parametrize("as_text", [False, True])
def test_keys_of_plain_arrays(zeros: ZeroDates, as_text: bool) -> None:
    """The keys of rows that are decoded by column are those of rows decoded one by one."""
    reading = DateReading(zeros, True, as_text)
    for source, texts in COLUMNS:
        values = [logged(source, text, as_text) for text in texts]
        found = to_values(source, from_values(source, values, reading))
        keys = [key_of_value(source, value, reading) for value in values]
        assert [key_of_value(source, value, reading) for value in found] == keys, source


def test_rounded_zero_dates_are_not_checked() -> None:
    for source, values in COLUMNS:
        if source.family in ("datetime", "timestamp"):
            zero = "0000-00-00 00:00:00.000000"[: len(values[-1])]
            for target in ("TIMESTAMP(3)", "TIMESTAMP_LTZ(6)", "DATE", "STRING"):
                writer = RowWriter(
                    ((source, arrow_type(target)),), BERLIN, frozenset({"k"}), "ROUND"
                )
                batch = writer.snapshot([pa.array([zero.encode()])])
                assert str(batch.column(0)[0].as_py())[:10] in ("0001-01-01", "0000-00-00")


@pytest.mark.parametrize(
    ("kind", "target", "value", "message"),
    [
        (
            "timestamp",
            "TIMESTAMP(3)",
            "2024-10-27 01:30:00",
            r"column 'k' \(timestamp\) of the key has the value 2024-10-27 01:30:00 UTC, whose "
            r"local time 2024-10-27 02:30:00 in the zone Europe/Berlin another instant has, too.*"
            r"set 'server-time-zone' .* to an offset such as '\+01:00', or to 'UTC', or declare "
            r"the column as TIMESTAMP_LTZ\(0\), and start again with a new checkpoint",
        ),
        (
            "timestamp",
            "STRING",
            "2024-10-27 01:30:00",
            "2024-10-27 02:30:00 in the zone Europe/Berlin another instant has",
        ),
        (
            "timestamp(6)",
            "TIMESTAMP(3)",
            "2024-10-27 00:30:00.000001",
            r"\(TIMESTAMP\(3\)\) makes 2024-10-27 02:30:00, .*such as TIMESTAMP_LTZ\(6\)",
        ),
        (
            "datetime",
            "TIMESTAMP_LTZ(3)",
            "2024-03-31 02:30:00",
            r"has the value 2024-03-31 02:30:00, a local time that the zone Europe/Berlin skips.*"
            r"'\+01:00'.* declare the column as TIMESTAMP\(0\)",
        ),
        (
            "datetime",
            "DATE",
            "2024-03-31 02:30:00",
            r"its declared type \(DATE\) makes 2024-03-31, .*such as TIMESTAMP\(6\)",
        ),
        ("time(6)", "TIME", "01:02:03.000001", r"\(TIME\(3\)\) makes 01:02:03, .*such as STRING"),
        ("varchar(99)", "INT", "01", r"the value 01, .* \(INT\) makes 1, .*such as STRING"),
        ("bit(9)", "BOOLEAN", b"\0\2", r"\(BOOLEAN\) makes true, .*such as BYTES"),
        ("decimal(9,2)", "BOOLEAN", "0.02", r"\(BOOLEAN\) makes true, .*DECIMAL\(9, 2\)"),
    ],
)
def test_messages(kind: str, target: str, value: Any, message: str) -> None:
    source = next(column for column, _ in COLUMNS if column.column_type == kind)
    writer = RowWriter(((source, arrow_type(target)),), BERLIN, frozenset({"k"}))
    raw = value if isinstance(value, bytes) else value.encode()
    with pytest.raises(TableError, match=message):
        writer.snapshot([pa.array([raw])])
    other = RowWriter(writer.columns, BERLIN)
    assert other.snapshot([pa.array([raw])]).num_rows == 1


@pytest.mark.parametrize(
    ("kind", "declared", "instead"),
    [
        ("datetime(6)", "TIMESTAMP(3)", "TIMESTAMP(6)"),
        ("datetime(6)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)"),
        ("timestamp(6)", "TIMESTAMP(0)", "TIMESTAMP(6)"),
        ("time(6)", "TIME(0)", "STRING"),
        ("bit(9)", "BOOLEAN", "BYTES"),
        ("datetime", "BOOLEAN", "TIMESTAMP(6)"),
        ("datetime(3)", "TIMESTAMP(3)", None),
        ("datetime(6)", "TIMESTAMP(6)", None),
        ("time(3)", "TIME(3)", None),
        ("bit(1)", "BOOLEAN", None),
        ("tinyint(1)", "BOOLEAN", None),
    ],
)
def test_types_that_never_keep_keys_apart_are_refused(
    kind: str, declared: str, instead: str | None
) -> None:
    source = next(column for column, _ in COLUMNS if column.column_type == kind)
    columns = [Column("k", declared)]
    if instead is None:
        selected_columns(OPTIONS, [source], columns, [source])
    else:
        with pytest.raises(
            TableError, match=rf"d\.t: column 'k'.*declare it as {re.escape(instead)}"
        ):
            selected_columns(OPTIONS, [source], columns, [source])
    selected_columns(OPTIONS, [source], columns)
