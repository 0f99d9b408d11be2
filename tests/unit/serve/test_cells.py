"""Values of each type as JSON, CSV and text-table cells."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.cli import output
from streamhouse.serve.formats import row_formats
from streamhouse.serve.formats.cells import csv_values, json_values, printable, table_texts

UTC = pa.timestamp("ms", "Europe/Berlin")
INSTANT = datetime.datetime(2024, 2, 29, 23, 59, 59, 120_000)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int64(), 2**62, 2**62),
        (pa.bool_(), False, False),
        (pa.float64(), 0.1, 0.1),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), float("-inf"), "-Infinity"),
        (pa.decimal128(38, 10), Decimal("1E-10"), "0.0000000001"),
        (pa.decimal128(5, 0), Decimal(-7), "-7"),
        (pa.date32(), datetime.date(2024, 2, 29), "2024-02-29"),
        (pa.time32("ms"), datetime.time(1, 2, 3, 4000), "01:02:03.004"),
        (pa.timestamp("s"), INSTANT, "2024-02-29T23:59:59"),
        (pa.timestamp("ms"), INSTANT, "2024-02-29T23:59:59.120"),
        (pa.timestamp("us"), INSTANT, "2024-02-29T23:59:59.120000"),
        (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001"),
        (UTC, INSTANT, "2024-02-29T23:59:59.120Z"),
        (pa.timestamp("ms"), -1, "1969-12-31T23:59:59.999"),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.string(), "é\n\0", "é\n\0"),
        (pa.list_(pa.float64()), [1.0, float("nan")], [1.0, "NaN"]),
        (pa.list_(pa.int32()), [], []),
        (pa.struct([("d", pa.decimal128(5, 2))]), {"d": Decimal("1.50")}, {"d": "1.50"}),
        (pa.map_(pa.string(), pa.binary()), [("k", b"a")], {"k": "YQ=="}),
        (pa.map_(pa.int32(), pa.int32()), [(1, 2)], [[1, 2]]),
        (pa.map_(pa.string(), pa.int32()), [], {}),
        (pa.list_(pa.timestamp("ms")), [INSTANT], ["2024-02-29T23:59:59.120"]),
        (pa.struct([("t", UTC)]), {"t": 0}, {"t": "1970-01-01T00:00:00.000Z"}),
    ],
    ids=str,
)
def test_json_values(kind: pa.DataType, value: Any, expected: Any) -> None:
    found = json_values(pa.array([None, value], kind))
    assert found == [None, expected]
    json.dumps(found, allow_nan=False)
    assert json_values(pa.array([value, None, value], kind).slice(1)) == [None, expected]
    assert json_values(pa.chunked_array([pa.array([value], kind)] * 2)) == [expected] * 2


def test_csv_values() -> None:
    assert csv_values(pa.array([True, None])) == ["true", None]
    assert csv_values(pa.array([0.1, float("nan"), float("inf")])) == ["0.1", "NaN", "Infinity"]
    assert csv_values(pa.array([[1], None])) == ["[1]", None]
    assert csv_values(pa.array([1_234_567])) == ["1234567"]


def test_table_texts() -> None:
    assert table_texts(pa.array([1_234_567, None])) == ["1,234,567", None]
    assert table_texts(pa.array([0.1 + 0.2])) == ["0.30000000000000004"]
    assert table_texts(pa.array([1234.5, 0.125, None]), exact=False) == ["1,234.50", "0.12", None]
    assert table_texts(pa.array([0.00123]), exact=False) == ["0.00123"]
    assert table_texts(pa.array([float("nan"), 1e300, -0.0]), exact=False)[:2] == ["NaN", "1e+300"]
    assert table_texts(pa.array([Decimal("-1234567.80")])) == ["-1,234,567.80"]
    assert table_texts(pa.array([INSTANT], pa.timestamp("ms"))) == ["2024-02-29 23:59:59.120"]
    assert table_texts(pa.array([b"\x01\xfe"])) == ["0x01fe"]


def test_control_characters_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\n\u202eb") == "a\\x1b[2J\\n\\u202eb"
    assert table_texts(pa.array(["\x1b[31m"])) == ["\\x1b[31m"]


def test_csv_is_rfc_4180() -> None:
    table = pa.table({'a "x"': ["1,2", 'q"q', "two\nlines", "", None], "b": [1, 2, 3, 4, None]})
    out = io.StringIO()
    row_formats.write_csv(table.schema, table.to_batches(), out)
    assert out.getvalue() == (
        '"a ""x""",b\r\n"1,2",1\r\n"q""q",2\r\n"two\nlines",3\r\n"",4\r\n,\r\n'
    )


def test_json_is_one_array() -> None:
    out = io.StringIO()
    row_formats.write_json([], out)
    row_formats.write_json(pa.table({"a": [1, None]}).to_batches(max_chunksize=1), out)
    assert out.getvalue() == '[]\n[\n{"a": 1},\n{"a": null}\n]\n'


def test_long_tables_end_with_a_count() -> None:
    table = pa.table({"n": range(2_500)})
    out = io.StringIO()
    output.write_table(table.schema, table.to_batches(max_chunksize=700), out)
    assert "│ 999 │" in out.getvalue() and "1,000 │" not in out.getvalue()
    assert out.getvalue().endswith(
        "2,500 rows, only the first 1,000 printed; --format csv or json prints all\n"
    )
