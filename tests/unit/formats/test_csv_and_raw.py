"""CSV and raw records to Arrow columns and back."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import OptionError
from streamhouse.formats.base import Decoded, FormatChoice, RecordError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("ms")),
    ]
)


def decoded(
    *records: bytes | None, schema: pa.Schema = SCHEMA, form: str = "csv", **options: str
) -> Decoded:
    spelled = {key.replace("_", "-"): value for key, value in options.items()}
    return FormatChoice(form, spelled, f"{form}.").decoder(schema).decode(records)


def test_plain_and_quoted_lines_are_the_same() -> None:
    plain = decoded(b"1,Ada,12.5,2024-05-01 12:00:00")
    quoted = decoded(b'"1","Ada","12.5","2024-05-01 12:00:00"')
    assert plain.rows.equals(quoted.rows)
    assert plain.rows.to_pylist() == [
        {
            "id": 1,
            "name": "Ada",
            "price": Decimal("12.50"),
            "at": datetime.datetime(2024, 5, 1, 12),
        }
    ]


def test_a_quoted_field_may_have_delimiters_quotes_and_line_breaks() -> None:
    found = decoded(b'1,"a,""b""\nc",1,2024-05-01 12:00:00', b"2,plain,1,2024-05-01 12:00:00")
    assert found.rows.column("name").to_pylist() == ['a,"b"\nc', "plain"]


def test_an_empty_number_is_null_and_an_empty_text_is_empty() -> None:
    found = decoded(b",,,")
    assert found.rows.to_pylist() == [{"id": None, "name": "", "price": None, "at": None}]
    found = decoded(b"-,-,-,-", null_literal="-")
    assert found.rows.to_pylist() == [{"id": None, "name": None, "price": None, "at": None}]


def test_empty_bytes_are_empty_as_an_empty_text_is() -> None:
    schema = pa.schema([("id", pa.int64()), ("b", pa.binary())])
    rows = pa.record_batch([[1, 2], [b"", b"x"]], schema=schema)
    records = FormatChoice("csv", {}, "csv.").encoder(schema).encode(rows).to_pylist()
    assert decoded(*records, schema=schema).rows.to_pylist() == rows.to_pylist()
    assert decoded(b"1,-", schema=schema, null_literal="-").rows.column("b").to_pylist() == [None]


def test_a_record_without_columns_is_an_empty_line() -> None:
    found = decoded(b"", None, b"x", b"", schema=pa.schema([]))
    assert found.rows.num_rows == 2
    assert found.records is not None and found.records.tolist() == [0, 3]
    assert [one.reason for one in found.bad] == ["1 fields, but the table has 0 columns ()"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"x,a,1,", "column 'id': \"x\" is not of type BIGINT"),
        (b"0x10,a,1,", "column 'id': \"0x10\" is not of type BIGINT"),
        (b"1,a,1e20,", "column 'price': \"1e20\" is not of type DECIMAL(10, 2)"),
        (b"1,a,1,yesterday", "column 'at': \"yesterday\" is not of type TIMESTAMP(3)"),
        (b"1,a", "2 fields, but the table has 4 columns (id, name, price, at)"),
        (b"1,a,1,,", "5 fields, but the table has 4 columns (id, name, price, at)"),
        (b'1,"a"b,1,', "not valid CSV: ',' expected after '\"'"),
        (b'1,"a', "not valid CSV: unexpected end of data"),
        (b"\xff,a,1,", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_bad_records(record: bytes, reason: str) -> None:
    found = decoded(b"1,a,1,", record, b"3,a,1,")
    assert found.rows.column("id").to_pylist() == [1, 3]
    assert found.records is not None and found.records.tolist() == [0, 2]
    assert [(one.index, one.reason) for one in found.bad] == [(1, reason)]


def test_ignore_parse_errors_pads_and_nulls() -> None:
    found = decoded(b"x,a", b"2,b,1,,,", ignore_parse_errors="true")
    assert found.rows.column("id").to_pylist() == [None, 2]
    assert not found.bad


def test_comments_delimiters_and_escapes() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.list_(pa.int32()))])
    found = decoded(
        b"# no row", b"x\\;y;1|2", schema=schema,
        allow_comments="true", field_delimiter=";", array_element_delimiter="|",
        escape_character="\\",
    )  # fmt: skip
    assert found.rows.to_pylist() == [{"a": "x;y", "b": [1, 2]}]
    assert found.records is not None and found.records.tolist() == [1]


def test_options_and_columns_are_checked() -> None:
    with pytest.raises(OptionError, match="'csv.field-delimiter' must be one character, not 'ab'"):
        decoded(field_delimiter="ab")
    with pytest.raises(OptionError, match="is also the quote character; leave it out"):
        decoded(escape_character='"')
    for key in ("quote_character", "escape_character"):
        with pytest.raises(OptionError, match="is also the quote or the escape character"):
            decoded(field_delimiter=";", **{key: ";"})
    nested = pa.schema([("m", pa.map_(pa.string(), pa.int32()))])
    with pytest.raises(OptionError, match="csv cannot hold MAP<STRING, INT>"):
        decoded(schema=nested)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_number_beyond_its_type_is_not_infinity(kind: pa.DataType) -> None:
    schema = pa.schema([("x", kind)])
    found = decoded(b"1e400", b"-1e400", b"-Infinity", b"1.5", b"-0", schema=schema)
    assert found.rows.column("x").to_pylist() == [float("-inf"), 1.5, -0.0]
    assert [bad.index for bad in found.bad] == [0, 1]


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.none(), st.text(alphabet=st.characters(codec="utf-8"), max_size=6)),
            st.one_of(st.none(), st.lists(st.integers(-9, 9), min_size=1, max_size=3)),
        ),
        max_size=5,
    )
)
def test_written_rows_are_read_as_they_were(rows: list[tuple[Any, ...]]) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))])
    columns = [[row[n] for row in rows] for n in range(3)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    batch = pa.record_batch(arrays, schema=schema)
    options = {"null-literal": "NULL"}
    if any(row[1] == "NULL" for row in rows):
        return
    records = FormatChoice("csv", options, "csv.").encoder(schema).encode(batch).to_pylist()
    found = FormatChoice("csv", options, "csv.").decoder(schema).decode(records)
    assert not found.bad
    assert found.rows.to_pylist() == batch.to_pylist()


def test_what_csv_cannot_write_is_an_error() -> None:
    schema = pa.schema([("s", pa.string())])
    rows = pa.record_batch([pa.array(["a,b"])], schema=schema)
    encoder = FormatChoice("csv", {"disable-quote-character": "true"}, "csv.").encoder(schema)
    with pytest.raises(RecordError, match="needs quotes"):
        encoder.encode(rows)
    same = FormatChoice("csv", {"null-literal": "a,b"}, "csv.").encoder(schema)
    with pytest.raises(RecordError, match="is also the 'null-literal'"):
        same.encode(rows)


@pytest.mark.parametrize(
    ("kind", "value", "record"),
    [
        (pa.string(), "é", "é".encode()),
        (pa.binary(), b"\xff", b"\xff"),
        (pa.int32(), 258, b"\x00\x00\x01\x02"),
        (pa.float64(), 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (pa.bool_(), True, b"\x01"),
        (pa.string(), None, None),
    ],
)
def test_raw(kind: pa.DataType, value: Any, record: bytes | None) -> None:
    schema = pa.schema([("v", kind)])
    rows = pa.record_batch([pa.array([value], kind)], schema=schema)
    assert FormatChoice("raw", {}, "raw.").encoder(schema).encode(rows).to_pylist() == [record]
    assert decoded(record, schema=schema, form="raw").rows.equals(rows)


def test_raw_records_that_do_not_fit() -> None:
    found = decoded(b"\x00", b"\x00\x00\x01\x02", schema=pa.schema([("v", pa.int32())]), form="raw")
    assert found.rows.column("v").to_pylist() == [258]
    assert found.bad[0].reason == "column 'v': INT has 4 bytes, but the record has 1"
    found = decoded(b"\xff", schema=pa.schema([("v", pa.string())]), form="raw")
    assert "codec can't decode" in found.bad[0].reason
    with pytest.raises(OptionError, match="format raw has one column, not 4"):
        decoded(form="raw")
