"""JSON records to Arrow columns and back: exact values, and a reason for each bad record."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import OptionError
from streamhouse.formats.base import Decoded, FormatChoice, ValueMismatch, format_of
from streamhouse.formats.json.columns import column
from streamhouse.formats.json.encode import JsonEncoder
from streamhouse.formats.json.exact import JsonOptions, NeedsText, converter, parse_exactly
from streamhouse.formats.times import STANDARDS

TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(10, 2)": pa.decimal128(10, 2),
    "DECIMAL(38, 18)": pa.decimal128(38, 18),
    "DECIMAL(18, 4)": pa.decimal128(18, 4),
    "DECIMAL(38, 10)": pa.decimal128(38, 10),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
    "TIMESTAMP(3)": pa.timestamp("ms"),
    "TIMESTAMP_LTZ(3)": pa.timestamp("ms", "UTC"),
}


def decoded(kind: pa.DataType, *records: bytes | None, **options: str) -> Decoded:
    schema = pa.schema([pa.field("a", kind)])
    spelled = {key.replace("_", "-"): value for key, value in options.items()}
    return FormatChoice("json", spelled, "json.").decoder(schema).decode(records)


def value(kind: str, text: str) -> Any:
    """The value of `{"a": text}`, alone and beside a value that forces conversion one by one."""
    alone = decoded(TYPES[kind], f'{{"a": {text}}}'.encode())
    assert not alone.bad, alone.bad
    return alone.rows.column("a")[0].as_py()


def reason(kind: str, text: str) -> str:
    bad = decoded(TYPES[kind], b'{"a": null}', f'{{"a": {text}}}'.encode())
    assert bad.rows.num_rows == 1
    (one,) = bad.bad
    assert one.index == 1
    return one.reason


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("BOOLEAN", "true", True),
        ("BOOLEAN", '"False"', False),
        ("INT", "-2147483648", -(2**31)),
        ("INT", '" 12 "', 12),
        ("INT", "1.0", 1),
        ("INT", "1e3", 1000),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("BIGINT", "9007199254740993.0", 9007199254740993),
        ("DOUBLE", "1", 1.0),
        ("DOUBLE", "1152921504606846977", float(1152921504606846977)),
        ("DOUBLE", "123456789012345678901234567890", 123456789012345678901234567890.0),
        ("DOUBLE", '"-Infinity"', float("-inf")),
        ("DOUBLE", '"1.5"', 1.5),
        ("FLOAT", "1.1", 1.100000023841858),
        ("DECIMAL(10, 2)", "12", Decimal("12.00")),
        ("DECIMAL(10, 2)", "12.34", Decimal("12.34")),
        ("DECIMAL(10, 2)", "1.005", Decimal("1.01")),
        ("DECIMAL(10, 2)", '"12.34"', Decimal("12.34")),
        ("DECIMAL(10, 2)", "99999999.99", Decimal("99999999.99")),
        ("DECIMAL(38, 18)", f"-{'9' * 20}.{'9' * 18}", Decimal(f"-{'9' * 20}.{'9' * 18}")),
        ("DECIMAL(10, 2)", "1e3", Decimal("1000.00")),
        ("DECIMAL(18, 4)", "12345678901234.5678", Decimal("12345678901234.5678")),
        (
            "DECIMAL(38, 10)",
            "1234567890123456789012345678.0123456789",
            Decimal("1234567890123456789012345678.0123456789"),
        ),
        ("DECIMAL(38, 10)", "0.1000000000000000055", Decimal("0.1000000000")),
        ("STRING", '"é\\u0000\\n"', "é\x00\n"),
        ("STRING", "1.10", "1.10"),
        ("STRING", "12345678901234567890123", "12345678901234567890123"),
        ("STRING", '{"x": [1.50, "é"], "y": null}', '{"x":[1.50,"é"],"y":null}'),
        ("STRING", "true", "true"),
        ("BYTES", '"aGk="', b"hi"),
        ("DATE", '"2024-02-29"', datetime.date(2024, 2, 29)),
        ("TIME", '"12:30:01.5"', datetime.time(12, 30, 1, 500000)),
        ("TIMESTAMP(3)", '"2024-05-01 12:00:00"', datetime.datetime(2024, 5, 1, 12)),
        (
            "TIMESTAMP(3)",
            '"2024-05-01 12:00:00.123456789"',
            datetime.datetime(2024, 5, 1, 12, 0, 0, 123000),
        ),
        (
            "TIMESTAMP_LTZ(3)",
            '"2024-05-01 12:00:00.5Z"',
            datetime.datetime(2024, 5, 1, 12, 0, 0, 500000, datetime.UTC),
        ),
        (
            "TIMESTAMP_LTZ(3)",
            '"2024-05-01 12:00:00+02:00"',
            datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC),
        ),
    ],
)
def test_values(kind: str, text: str, expected: Any) -> None:
    found = value(kind, text)
    if isinstance(expected, datetime.datetime) and expected.tzinfo is not None:
        assert found.astimezone(datetime.UTC) == expected
    else:
        assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("BOOLEAN", "1"), ("BOOLEAN", '"yes"'), ("TINYINT", "128"), ("INT", "1.5"),
        ("INT", "true"), ("INT", '"x"'), ("INT", '""'), ("INT", '"0x10"'),
        ("BIGINT", "9223372036854775808"), ("BIGINT", "1e300"), ("BIGINT", "[1]"),
        ("DOUBLE", "true"), ("DOUBLE", '"abc"'), ("DOUBLE", "[]"), ("FLOAT", "1e+39"),
        ("DECIMAL(10, 2)", "100000000"), ("DECIMAL(10, 2)", "99999999.995"),
        ("DECIMAL(10, 2)", "1e300"), ("DECIMAL(10, 2)", '"abc"'),
        ("DECIMAL(10, 2)", '"NaN"'), ("DECIMAL(10, 2)", "true"), ("BYTES", '"a"'), ("BYTES", "1"),
        ("DATE", '"2024-02-30"'), ("DATE", "1"), ("TIME", '"25:00:00"'),
        ("TIMESTAMP(3)", '"2024-05-01T12:00:00"'), ("TIMESTAMP(3)", '"2024-05-01"'),
        ("TIMESTAMP(3)", '"2024-05-01 12:00"'), ("TIMESTAMP(3)", '"2024-05-01 12:00:00Z"'),
        ("TIMESTAMP(3)", "1"), ("TIMESTAMP_LTZ(3)", '"2024-05-01 12:00:00"'),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(kind: str, text: str) -> None:
    displayed = text if len(text) < 60 else text[:60]
    assert reason(kind, text).startswith(
        f"column 'a': {displayed} is not of type {kind.split('(')[0]}"
    )


@pytest.mark.parametrize(
    "record",
    [
        b'{"a": 1e1000}',
        b"", b"{", b'{"a": 1,}', b'{"a": NaN}', b'{"a": "\xff"}', b'{"a": 1} x', b"3", b'"x"',
        b'[{"a": 1}, 2]', b'\xef\xbb\xbf{"a": 1}', b'{"a": "\\ud800"}',
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_bad(record: bytes) -> None:
    found = decoded(pa.int64(), b'{"a": 1}', record, b'{"a": 3}')
    assert found.rows.column("a").to_pylist() == [1, 3]
    assert found.records is not None and found.records.tolist() == [0, 2]
    assert [one.index for one in found.bad] == [1]
    assert found.bad[0].reason.startswith("not a JSON object: ")


def test_the_last_of_equal_keys_counts_and_unknown_fields_are_ignored() -> None:
    found = decoded(pa.int64(), b'{"a": 1, "b": [{}], "a": 2}')
    assert found.rows.column("a").to_pylist() == [2]


def test_records_without_an_object_have_no_row_and_arrays_have_several() -> None:
    records = [b"null", None, b'[{"a": 1.5}, null, {"a": 2.25}]', b'{"a": 7}']
    found = decoded(pa.decimal128(38, 2), *records)
    assert found.rows.column("a").to_pylist() == [Decimal("1.50"), Decimal("2.25"), Decimal("7.00")]
    assert found.records is not None and found.records.tolist() == [2, 2, 3]
    assert not found.bad


def test_one_bad_object_of_an_array_makes_its_record_bad() -> None:
    found = decoded(pa.int64(), b'[{"a": 1}, {"a": "x"}]', b'{"a": 7}')
    assert found.rows.column("a").to_pylist() == [7]
    assert [one.index for one in found.bad] == [0]


def test_nested_values() -> None:
    kind = pa.struct(
        [
            pa.field("when", pa.timestamp("ms")),
            pa.field("prices", pa.list_(pa.decimal128(5, 1))),
            pa.field("tags", pa.map_(pa.string(), pa.int32())),
            pa.field("must", pa.int32(), nullable=False),
        ]
    )
    good = (
        b'{"a": {"when": "2024-05-01 00:00:00", "prices": [1, 2.5, null], '
        b'"tags": {"x": 1}, "must": 1}}'
    )
    assert decoded(kind, good).rows.column("a").to_pylist() == [
        {
            "when": datetime.datetime(2024, 5, 1),
            "prices": [Decimal("1.0"), Decimal("2.5"), None],
            "tags": [("x", 1)],
            "must": 1,
        }
    ]
    (bad,) = decoded(kind, b'{"a": {"must": "x"}}').bad
    assert bad.reason == "column 'a': field 'must': \"x\" is not of type INT"
    (bad,) = decoded(kind, b'{"a": {}}').bad
    assert bad.reason == "column 'a': field 'must': null where INT NOT NULL is expected"
    (bad,) = decoded(kind, b'{"a": 3}').bad
    assert bad.reason.startswith("column 'a': 3 is not of type ROW<")


def test_a_null_in_a_column_that_cannot_be_null_is_bad() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    decoder = FormatChoice("json", {}, "json.").decoder(schema)
    found = decoder.decode([b'{"a": 1}', b"{}", b'{"a": null}'])
    assert found.rows.column("a").to_pylist() == [1]
    assert [one.index for one in found.bad] == [1, 2]


def test_fail_on_missing_field() -> None:
    found = decoded(pa.int64(), b"{}", b'{"a": null}', fail_on_missing_field="true")
    assert found.rows.num_rows == 1
    assert found.bad[0].reason == "column 'a' is missing"


def test_ignore_parse_errors_gives_null_and_skips_what_is_no_json() -> None:
    records = [b'{"a": "x"}', b"{", b'{"a": 5}']
    found = decoded(pa.int64(), *records, ignore_parse_errors="true")
    assert found.rows.column("a").to_pylist() == [None, 5]
    assert not found.bad


def test_iso_timestamps() -> None:
    found = decoded(
        pa.timestamp("ms", "UTC"),
        b'{"a": "2024-05-01T12:00:00Z"}',
        **{"timestamp_format.standard": "ISO-8601"},
    )
    assert found.rows.column("a").cast(pa.int64()).to_pylist() == [1714564800000]


def test_options_are_checked() -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(OptionError, match="unknown option 'json.ignore-parse-error'; did you mean"):
        FormatChoice("json", {"ignore-parse-error": "true"}, "json.").decoder(schema)
    with pytest.raises(OptionError, match="'iso' is not one of SQL, ISO-8601"):
        FormatChoice("json", {"timestamp-format.standard": "iso"}, "json.").decoder(schema)
    with pytest.raises(OptionError, match="unknown format 'jsn'; did you mean 'json'"):
        format_of("jsn")


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-(10**9), 10**9).map(lambda n: f"{n / 100:.2f}"),
    st.decimals(allow_nan=False, allow_infinity=False, places=6).map(lambda d: f"{d:f}"),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
VALUES = st.one_of(
    NUMBERS, st.sampled_from(["null", "true", '"12"', '"1.5"', '"2024-05-01 12:00:00.25"', '"x"'])
)


@given(st.sampled_from(sorted(TYPES)), st.lists(st.one_of(VALUES, NUMBERS), max_size=8))
def test_a_column_at_once_equals_its_values_one_by_one(kind: str, texts: list[str]) -> None:
    records = [f'{{"a": {text}}}'.encode() for text in texts]
    values = [orjson.loads(record)["a"] for record in records]
    fast = column(values, TYPES[kind], "SQL")
    if fast is None:
        return
    convert = converter(TYPES[kind], JsonOptions())
    slow = [convert(parse_exactly(record)["a"]) for record in records]
    assert fast.equals(pa.array(slow, TYPES[kind]))


@given(st.sampled_from(sorted(TYPES)), st.lists(VALUES, max_size=8))
def test_a_record_is_a_row_or_bad(kind: str, texts: list[str]) -> None:
    records = [f'{{"a": {text}}}'.encode() for text in texts]
    found = decoded(TYPES[kind], *records)
    assert found.rows.num_rows + len(found.bad) == len(records)
    convert = converter(TYPES[kind], JsonOptions())
    expected = []
    for record in records:
        try:
            expected.append(convert(parse_exactly(record)["a"]))
        except ValueMismatch:
            pass
        except NeedsText:
            raise AssertionError("numbers are texts") from None
    assert found.rows.column("a").equals(pa.array(expected, TYPES[kind]))


ROUND_TRIP = pa.table(
    {
        "flag": pa.array([True, None]),
        "n": pa.array([2**63 - 1, None], pa.int64()),
        "f": pa.array([1.1, float("nan")], pa.float32()),
        "d": pa.array([1e300, float("-inf")], pa.float64()),
        "price": pa.array([Decimal("-12.50"), None], pa.decimal128(38, 2)),
        "name": pa.array(['"é\n\x00', None]),
        "raw": pa.array([b"\xff\x00", None]),
        "day": pa.array([datetime.date(2024, 2, 29), None]),
        "time": pa.array([datetime.time(1, 2, 3, 500000), None], pa.time32("ms")),
        "at": pa.array([datetime.datetime(2024, 5, 1, 12, 0, 0, 120000), None], pa.timestamp("ms")),
        "zoned": pa.array([0, None], pa.timestamp("us", "UTC")),
        "list": pa.array([[1, None, 3], None], pa.list_(pa.int32())),
        "map": pa.array([[("x", 1.5), ("y", None)], None], pa.map_(pa.string(), pa.float64())),
        "row": pa.array([{"a": [{"b": "c"}]}, None]),
    }
)


@pytest.mark.parametrize("standard", ["SQL", "ISO-8601"])
def test_written_rows_are_read_as_they_were(standard: str) -> None:
    rows = ROUND_TRIP.to_batches()[0]
    options = {"timestamp-format.standard": standard}
    encoder = FormatChoice("json", options, "json.").encoder(rows.schema)
    records = encoder.encode(rows).to_pylist()
    found = FormatChoice("json", options, "json.").decoder(rows.schema).decode(records)
    assert not found.bad
    assert str(found.rows.to_pylist()) == str(rows.to_pylist())
    # A slice has offsets.
    last = encoder.encode(rows.slice(1)).to_pylist()
    assert last == records[1:]


def test_how_values_are_written() -> None:
    rows = ROUND_TRIP.to_batches()[0].slice(0, 1)
    (record,) = FormatChoice("json", {}, "json.").encoder(rows.schema).encode(rows).to_pylist()
    assert record is not None
    written = json.loads(record, parse_float=str)
    assert written["price"] == "-12.50"
    assert written["f"] == "1.1"
    assert written["at"] == "2024-05-01 12:00:00.12"
    assert written["zoned"] == "1970-01-01 00:00:00Z"
    assert written["time"] == "01:02:03.5"
    assert written["raw"] == "/wA="


_INSTANTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
_WRITTEN_AT_ONCE = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.decimal128(10, 2): st.decimals("-99999999.99", "99999999.99", places=2),
    pa.decimal128(20, 6): st.decimals(-1000, 1000, places=6),
    pa.string(): st.text(),
    pa.date32(): st.dates(),
    pa.timestamp("s"): _INSTANTS.map(lambda one: one.replace(microsecond=0)),
    pa.timestamp("us"): _INSTANTS,
    pa.timestamp("ms", "UTC"): _INSTANTS.map(lambda one: one.replace(microsecond=120_000)),
}


@given(st.data(), st.sampled_from(sorted(_WRITTEN_AT_ONCE, key=str)), st.sampled_from(STANDARDS))
def test_rows_written_at_once_equal_rows_written_one_by_one(
    data: st.DataObject, kind: pa.DataType, standard: str
) -> None:
    values = data.draw(st.lists(st.none() | _WRITTEN_AT_ONCE[kind], max_size=6))
    name = data.draw(st.sampled_from(["a", 'q"uo\te', "é"]))
    column = pa.array(values, kind)
    rows = pa.record_batch([column, column.slice(0)], names=[name, "b"]).slice(len(values) // 3)
    encoder = JsonEncoder(rows.schema, JsonOptions(standard=standard))
    written = encoder.encode(rows)
    assert written.to_pylist() == list(map(orjson.dumps, encoder.objects(rows)))


def test_null_fields() -> None:
    schema = pa.schema([("n", pa.int64()), ("row", pa.struct([("k", pa.int64())]))])
    rows = pa.record_batch([pa.array([None], pa.int64()), pa.array([{"k": 1}])], schema=schema)
    encoder = FormatChoice("json", {"encode.ignore-null-fields": "true"}, "json.").encoder(schema)
    assert encoder.encode(rows).to_pylist() == [b'{"row":{"k":1}}']
