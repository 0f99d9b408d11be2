"""Generated rows: bounds, repeatability, pace."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.connectors.datagen.connector import CONNECTOR, GeneratedSource
from streamhouse.errors import OptionError
from streamhouse.source import Lag
from streamhouse.sql.plan import Column, TableInfo

COLUMNS = (
    Column("order_id", "BIGINT"),
    Column("customer_id", "INT"),
    Column("price", "DOUBLE"),
    Column("note", "STRING"),
    Column("order_time", "TIMESTAMP(3)"),
)
OPTIONS = {
    "rows-per-second": "100000",
    "number-of-rows": "5000",
    "fields.order_id.kind": "sequence",
    "fields.order_id.start": "1",
    "fields.order_id.end": "1000000",
    "fields.customer_id.min": "1",
    "fields.customer_id.max": "10",
    "fields.price.min": "1",
    "fields.price.max": "100",
    "fields.note.length": "20",
}


def source_of(columns: Sequence[Column], options: Mapping[str, str]) -> GeneratedSource:
    return CONNECTOR.generated(columns, options, None)


def rows(source: GeneratedSource, start: dict[str, int], end: dict[str, int]) -> pa.Table:
    batches = [b for p in source.partitions(start, end) for b in source.read(p)]
    return pa.Table.from_batches(batches, schema=source.schema)


def run_out(source: GeneratedSource) -> list[dict[str, int]]:
    offsets = [source.initial_offset()]
    while not source.finished(offsets[-1]):
        offset = source.latest_offset(offsets[-1], max_rows=1_700)
        if offset != offsets[-1]:
            offsets.append(offset)
    return offsets


def test_all_rows_once_and_within_bounds() -> None:
    source = source_of(COLUMNS, OPTIONS)
    offsets = run_out(source)
    table = pa.concat_tables(rows(source, a, b) for a, b in zip(offsets, offsets[1:], strict=False))
    data = table.to_pydict()
    assert data["order_id"] == list(range(1, 5001))
    assert set(data["customer_id"]) == set(range(1, 11))
    assert 1 <= min(data["price"]) < 5 and 95 < max(data["price"]) < 100
    assert {len(text) for text in data["note"]} == {20}
    assert data["order_time"] == sorted(data["order_time"])


def test_a_replay_makes_the_same_rows_in_another_process_state() -> None:
    source = source_of(COLUMNS, OPTIONS)
    offsets = run_out(source)
    again = source_of(COLUMNS, OPTIONS)
    for a, b in zip(offsets, offsets[1:], strict=False):
        assert rows(source, a, b).equals(rows(again, a, b))


def test_rate_and_no_rows_for_the_downtime_of_a_restart() -> None:
    options = {**OPTIONS, "rows-per-second": "1000"}
    source = source_of(COLUMNS, options)
    began = time.monotonic()
    first = source.latest_offset({})
    time.sleep(0.3)
    end = source.latest_offset(first)
    assert 250 <= end["rows"] <= 10 + 1000 * (time.monotonic() - began)
    assert source_of(COLUMNS, options).latest_offset(end) == end


def test_whole_range_of_bigint_and_nulls() -> None:
    source = source_of(
        (Column("x", "BIGINT"), Column("y", "DECIMAL(10,2)"), Column("z", "BOOLEAN")),
        {"number-of-rows": "2000", "rows-per-second": "10000000", "fields.y.null-rate": "0.5"},
    )
    offsets = run_out(source)
    table = pa.concat_tables(rows(source, a, b) for a, b in zip(offsets, offsets[1:], strict=False))
    assert min(table["x"].to_pylist()) < -(2**62) and max(table["x"].to_pylist()) > 2**62
    assert 800 < table["y"].null_count < 1200
    assert set(table["z"].to_pylist()) == {True, False}


@pytest.mark.parametrize(
    ("kind", "options", "most"),
    [
        ("DECIMAL(4, 2)", {}, "99.99"),
        ("DECIMAL(5, 5)", {}, "0.99999"),
        ("DECIMAL(10, 2)", {"min": "99999998", "max": "99999999.99"}, "99999999.99"),
        ("DECIMAL(38, 18)", {}, "1000000"),
        ("DECIMAL(38, 0)", {"max": "99999999999999990000000000000000000000"}, "1E+38"),
    ],
)
def test_decimals_fit_their_precision(kind: str, options: dict[str, str], most: str) -> None:
    least = Decimal(options.get("min", "0"))
    fields = {f"fields.x.{key}": value for key, value in options.items()}
    source = source_of((Column("x", kind),), {"number-of-rows": "2000", **fields})
    (part,) = source.partitions({}, {"rows": 2_000, "base_rows": 0, "base_ms": 0})
    values = [value for batch in source.read(part) for value in batch.column(0).to_pylist()]
    spread = Decimal(most) - least
    assert least <= min(values) < least + spread / 10
    assert Decimal(most) - spread / 10 < max(values) <= Decimal(most)


def test_a_decimal_range_that_its_precision_cannot_hold_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"0 to 100.0 do not fit DECIMAL\(4, 2\)"):
        source_of((Column("x", "DECIMAL(4, 2)"),), {"fields.x.max": "100"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields.order_time.kind": "sequence"}, "a column of numbers or text, not TIMESTAMP(3)"),
        (
            {"fields.note.kind": "sequence", "fields.note.length": "3"},
            "'fields.note.length' needs 'fields.note.kind' = 'random'",
        ),
        ({"fields.order_id.kind": "sequence"}, "'fields.order_id.start'"),
        (
            {"fields.price.min": "9", "fields.price.max": "3"},
            "9 is greater than 'fields.price.max', 3",
        ),
        ({"fields.price.min": "2000000"}, "'fields.price.max', 1000000 (the default)"),
        ({"rows-per-second": "fast"}, "'fast' is not a whole number"),
    ],
)
def test_bad_options_say_what_to_change(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        source_of(COLUMNS, options)


def generated(
    kind: str, options: dict[str, str] | None = None, rows: int = 2_000, at_ms: int = 0
) -> list[Any]:
    """The values of one column."""
    fields = {f"fields.x.{key}": value for key, value in (options or {}).items()}
    source = source_of((Column("x", kind),), {"rows-per-second": "1000", **fields})
    end = {"rows": rows, "base_rows": 0, "base_ms": at_ms}
    (part,) = source.partitions({}, end)
    return [value for batch in source.read(part) for value in batch.column(0).to_pylist()]


SEQUENCE = {"kind": "sequence", "start": "8", "end": "10"}


@pytest.mark.parametrize(
    ("kind", "options", "lengths"),
    [
        ("STRING", {}, {100}),
        ("CHAR(8)", {}, {8}),
        ("VARCHAR(8)", {}, {8}),
        ("VARCHAR(300)", {}, {100}),
        ("BINARY(3)", {}, {3}),
        ("BYTES", {"length": "5"}, {5}),
        ("VARCHAR(8)", {"length": "4", "var-len": "true"}, {1, 2, 3, 4}),
        ("VARBINARY(2)", {"var-len": "true"}, {1, 2}),
    ],
)
def test_texts_fit_their_type(kind: str, options: dict[str, str], lengths: set[int]) -> None:
    assert {len(text) for text in generated(kind, options)} == lengths


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("INT", [8, 9, 10]),
        ("DOUBLE", [8.0, 9.0, 10.0]),
        ("DECIMAL(4, 2)", [Decimal("8.00"), Decimal("9.00"), Decimal("10.00")]),
        ("STRING", ["8", "9", "10"]),
        ("CHAR(2)", ["8", "9", "10"]),
    ],
)
def test_sequences_of_numbers_and_texts(kind: str, expected: list[Any]) -> None:
    assert generated(kind, SEQUENCE, 3) == expected


@pytest.mark.parametrize(("kind", "end"), [("DECIMAL(4, 2)", "100"), ("VARCHAR(2)", "100")])
def test_a_sequence_that_its_type_cannot_hold_is_an_error(kind: str, end: str) -> None:
    with pytest.raises(OptionError, match=f"8 to {end} do not fit"):
        generated(kind, {**SEQUENCE, "end": end})


def test_times_are_those_at_which_a_row_is_due() -> None:
    instant = datetime(2026, 3, 4, 23, 59, 59, 500_000)
    at_ms = int(instant.replace(tzinfo=UTC).timestamp() * 1000)
    one = timedelta(milliseconds=1)
    expected = [instant + one * (n + 1) for n in range(1000)]
    assert generated("TIMESTAMP(3)", rows=1000, at_ms=at_ms) == expected
    seconds = [m.replace(microsecond=0) for m in expected]
    assert generated("TIMESTAMP(0)", rows=1000, at_ms=at_ms) == seconds
    assert generated("DATE", rows=1000, at_ms=at_ms) == [m.date() for m in expected]
    assert generated("TIME(3)", rows=1000, at_ms=at_ms) == [m.time() for m in expected]
    assert generated("TIME", rows=1000, at_ms=at_ms) == [m.time() for m in seconds]


def test_nulls_do_not_depend_on_other_values() -> None:
    """A null once took the random number of a later row's value."""
    plain, some = generated("DOUBLE", {}, 50_000), generated("DOUBLE", {"null-rate": "0.1"}, 50_000)
    absent = [index for index, value in enumerate(some) if value is None]
    assert 4_500 < len(absent) < 5_500
    for shift in range(20):
        later = [plain[index + shift] for index in absent if index + shift < len(plain)]
        assert 450_000 < sum(later) / len(later) < 550_000


def test_the_lag_counts_due_rows_that_are_not_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(COLUMNS, {**OPTIONS, "rows-per-second": "1000"})
    offset = {"rows": 100, "base_rows": 0, "base_ms": 10_000}
    monkeypatch.setattr("time.time_ns", lambda: 12_100 * 1_000_000)
    assert source.lag({}) is None
    assert source.lag(offset) == Lag(seconds=2.0, rows=2_000)
    assert source.lag({**offset, "rows": 3_000}) == Lag(seconds=0.0, rows=0)
    monkeypatch.setattr("time.time_ns", lambda: 99_000 * 1_000_000)
    assert source.lag({**offset, "rows": 5_000}) == Lag(seconds=0.0, rows=0)


KEYED = {
    "number-of-rows": "20000",
    "rows-per-second": "1000000",
    "fields.order_id.kind": "sequence",
    "fields.order_id.start": "1",
    "fields.order_id.end": "20000",
    "fields.customer_id.min": "5",
    "fields.customer_id.max": "104",
}


def of(**options: str) -> dict[str, list[Any]]:
    """All rows with more options, by a fixed clock."""
    source = source_of(COLUMNS, KEYED | options)
    end = {"rows": 20_000, "base_rows": 0, "base_ms": 1_700_000_000_000}
    return dict(rows(source, {}, end).to_pydict())


def test_frequencies_follow_zipfs_law() -> None:
    ids = of(**{"fields.customer_id.zipf-exponent": "1"})["customer_id"]
    counts = [ids.count(key) for key in (5, 6, 14)]
    assert counts[0] == pytest.approx(20_000 / 5.187, rel=0.05)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.1)
    assert counts[0] / counts[2] == pytest.approx(10, rel=0.2)
    assert (min(ids), max(ids)) == (5, 104)


def test_a_seed_gives_other_rows_and_the_same_again() -> None:
    one, other = of(seed="1"), of(seed="2")
    assert one == of(seed="1")
    assert one["customer_id"] != other["customer_id"] != of()["customer_id"]
    assert one["order_id"] == other["order_id"]


def test_rows_that_come_twice_and_late() -> None:
    plain, twice = of(), of(**{"duplicate-rate": "0.2", "duplicate-within": "50"})
    repeated = [n for n in range(20_000) if twice["order_id"][n] != n + 1]
    assert len(repeated) == pytest.approx(4_000, rel=0.1)
    for n in repeated:
        first = twice["order_id"][n] - 1
        assert n - 2_000 < first < n
        assert {key: twice[key][n] for key in twice} == {key: plain[key][first] for key in twice}

    late = of(**{"late-rate": "0.1", "late-by": "5 s"})
    delays = [
        (a - b).total_seconds()
        for a, b in zip(plain["order_time"], late["order_time"], strict=True)
    ]
    assert sum(1 for delay in delays if delay) == pytest.approx(2_000, rel=0.1)
    assert 0 <= min(delays) and 4.9 < max(delays) <= 5.001
    assert plain["price"] == late["price"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"late-rate": "2"}, "'late-rate': '2' is not a share from 0 to 1"),
        ({"duplicate-rate": "1"}, "leaves no row to repeat"),
        ({"duplicate-within": "0"}, "the least is 1"),
        ({"fields.customer_id.zipf-exponent": "-1"}, "the least is 0"),
        ({"fields.customer_id.zipf-exponent": "1", "fields.customer_id.max": "9999999"}, "at most"),
        ({"fields.price.zipf-exponent": "1"}, "does not apply to DOUBLE"),
    ],
)
def test_wrong_options_of_disorder(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source_of(COLUMNS, KEYED | options)


NESTED = (Column("place", "ROW<city STRING, at ROW<x INT>>"), Column("tags", "ARRAY<STRING>"),
          Column("sizes", "MAP<STRING, INT>"))  # fmt: skip


def test_rows_arrays_and_maps() -> None:
    options = {
        "number-of-rows": "2000",
        "fields.place.city.length": "4",
        "fields.place.at.x.min": "1",
        "fields.place.at.x.max": "2",
        "fields.place.null-rate": "0.5",
        "fields.tags.length": "2",
        "fields.tags.element.length": "1",
        "fields.sizes.key.length": "1",
        "fields.sizes.value.min": "0",
        "fields.sizes.value.max": "9",
    }
    CONNECTOR.check(TableInfo(("t",), NESTED), options, "table t")
    end = {"rows": 2_000, "base_rows": 0, "base_ms": 1_700_000_000_000}
    data = rows(source_of(NESTED, options), {}, end).to_pydict()
    places = [place for place in data["place"] if place is not None]
    assert len(places) == pytest.approx(1_000, rel=0.1)
    assert {len(place["city"]) for place in places} == {4}
    assert {place["at"]["x"] for place in places} == {1, 2}
    assert {len(tag) for tag in data["tags"]} == {2}
    assert len({tuple(tag) for tag in data["tags"]}) == 256
    assert {len(size) for size in data["sizes"]} <= {1, 2, 3}
    assert all(len(dict(size)) == len(size) for size in data["sizes"])
    assert rows(source_of(NESTED, options), {}, end).to_pydict() == data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields.place.length": "1"}, "unknown option 'fields.place.length'"),
        ({"fields.place.cty.length": "1"}, "did you mean 'place.city'"),
        ({"fields.place.at.x.length": "1"}, "does not apply to INT"),
        ({"fields.tags.element.kind": "sequence", "fields.tags.element.start": "1",
          "fields.tags.element.end": "2"}, "only a whole column is a sequence"),
        ({"fields.tags.length": "-1"}, "the least is 0"),
    ],
)  # fmt: skip
def test_wrong_options_of_parts(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CONNECTOR.check(TableInfo(("t",), NESTED), options, "table t")
