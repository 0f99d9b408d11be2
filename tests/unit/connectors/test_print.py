"""Rows as Flink's print connector writes them (its `Row.toString`)."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from streamhouse.connectors.base import WrittenBatch
from streamhouse.connectors.print.connector import row_texts
from streamhouse.connectors.registry import connector
from streamhouse.connectors.specs import SinkSpec
from streamhouse.errors import OptionError
from streamhouse.sql.plan import Column, TableInfo

NOON = datetime.datetime(2024, 5, 1, 12, 0)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int32(), 7, "7"),
        (pa.int32(), None, "null"),
        (pa.string(), "a, b", "a, b"),
        (pa.bool_(), True, "true"),
        (pa.float64(), 1e7, "1.0E7"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), 0.1, "0.1"),
        (pa.decimal128(10, 2), Decimal("2.50"), "2.50"),
        (pa.decimal128(10, 8), Decimal("0.00000001"), "0.00000001"),
        (pa.date32(), NOON.date(), "2024-05-01"),
        (pa.time32("ms"), datetime.time(12, 0), "12:00"),
        (pa.time32("ms"), datetime.time(12, 0, 1, 500_000), "12:00:01.500"),
        (pa.timestamp("us"), NOON, "2024-05-01T12:00"),
        (pa.timestamp("us"), NOON.replace(second=3), "2024-05-01T12:00:03"),
        (pa.timestamp("us"), NOON.replace(microsecond=1200), "2024-05-01T12:00:00.001200"),
        (pa.timestamp("ms"), NOON.replace(microsecond=1000), "2024-05-01T12:00:00.001"),
        (pa.timestamp("ms", "UTC"), NOON.replace(tzinfo=datetime.UTC), "2024-05-01T12:00:00Z"),
        (pa.binary(), b"\x01\xff", "[1, -1]"),
        (pa.list_(pa.int32()), [1, None], "[1, null]"),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], "{a=1}"),
        (pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": None}, "+I[1, null]"),
    ],
    ids=str,
)
def test_a_value(kind: pa.DataType, value: object, text: str) -> None:
    batch = pa.record_batch([pa.array([value], kind)], ["c"])

    assert list(row_texts(batch)) == [f"+I[{text}]"]


def test_row_kinds_precede_the_rows() -> None:
    rows = {"id": [1, 1, 2], "name": ["a", "b", "c"], "rowkind": ["-U", "+U", "-D"]}

    assert list(row_texts(pa.RecordBatch.from_pydict(rows))) == ["-U[1, a]", "+U[1, b]", "-D[2, c]"]


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_batch_is_printed_once_it_is_committed(
    stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"print-identifier": "seen", "standard-error": str(stream == "err").lower()}
    spec = SinkSpec("print", options, (Column("id", "INT"),))
    sink = spec.open()
    writer = sink.writer("q", 3, "a")
    writer.write(pa.record_batch([pa.array([1, 2], pa.int32())], schema=spec.arrow_schema))
    messages = writer.prepare()
    writer.close()
    assert capsys.readouterr() == ("", "")

    assert sink.committer("q").commit(lambda: WrittenBatch(3, messages), lambda: None)
    assert getattr(capsys.readouterr(), stream) == "seen> +I[1]\nseen> +I[2]\n"
    assert not sink.committer("q").commit(lambda: None, lambda: None)


def test_a_blackhole_discards_rows() -> None:
    spec = SinkSpec("blackhole", {}, (Column("id", "INT"),))
    sink = spec.open()
    writer = sink.writer("q", 0, "a")
    writer.write(pa.record_batch([pa.array([1], pa.int32())], schema=spec.arrow_schema))

    assert writer.prepare() == []
    assert sink.committer("q").commit(lambda: WrittenBatch(0, []), lambda: None)


def test_wrong_options_are_errors() -> None:
    table = TableInfo(("c", "d", "t"), (Column("id", "INT"),), connector="print")
    kind = connector("print")

    with pytest.raises(OptionError, match="neither 'true' nor 'false'"):
        kind.check(table, {"standard-error": "yes"}, "t")
    with pytest.raises(OptionError, match="unknown option 'print-identifer'"):
        kind.check(table, {"print-identifer": "x"}, "t")
