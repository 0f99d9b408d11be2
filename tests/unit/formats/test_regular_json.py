"""Records that are decoded at once give what they give one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pyarrow as pa
import pytest

from streamhouse.formats.base import Decoded, Decoder, FormatChoice
from streamhouse.formats.json.columns import LEAST, RegularDecoder
from streamhouse.formats.json.exact import JsonOptions

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(16, 0)),
        ("name", pa.string()),
        ("at", pa.timestamp("ms")),
    ]
)
LAYOUTS = (
    '{"id":%s,"small":%s,"price":%s,"wide":%s,"name":"%s","at":"%s"}',
    '{"at": "%5$s", "extra": "%4$s", "id": %0$s, "n": %2$s, "name": "%4$s", "wide": %3$s, '
    '"small": %1$s, "price": %2$s}',
    ' { "name" : "%4$s" , "id" : %0$s , "small" : %1$s , "é" : %0$s, "price" : %2$s, "wide":%3$s, '
    '"at" : "%5$s" } ',
)
ODD = {
    0: ["007", "-", "1.0", "12345678901234567", "9223372036854775807", "null", "1e3", '"5"', "--1"],
    1: ["40000", "-32769", "00", "1.", "true", "+1", " 1", "1 "],
    2: [
        "1.234",
        "123456789.5",
        ".5",
        "5.",
        "1.2.3",
        "-0.00",
        "00.1",
        "1.2e1",
        "1.00000000000",
        "-",
    ],
    3: ["99999999999999999", "1.0", "0123", "NaN"],
    4: ["\\u0041", 'a"b', "\x01", "\n", "é", "\\", "a,b}", ""],
    5: [
        "2026-13-01 00:00:00",
        "2026-01-01T00:00:00",
        "",
        "2026-01-01 00:00:00.123456789",
        "x" * 23,
    ],
}


def fields(chance: random.Random) -> list[str]:
    """The texts of the fields of a record that has the shape."""
    return [
        str(chance.choice([0, 1, -1, 7, chance.randint(-(10**16) + 1, 10**16 - 1)])),
        str(chance.randint(-(2**15), 2**15 - 1)),
        chance.choice(
            ["0", "-5", "0.5", "-0.05", f"{chance.randint(-(10**10) + 1, 10**10 - 1) / 100:.2f}"]
        ),
        str(chance.randint(-(10**16) + 1, 10**16 - 1)),
        chance.choice(["", "a", "Zoë", "long text " * 3, "12345678", "a:b,{c}"]),
        f"2026-0{chance.randint(1, 9)}-1{chance.randint(0, 9)} 12:00:0{chance.randint(0, 9)}"
        + chance.choice(["", ".5", ".123"]),
    ]


def record(layout: str, texts: list[str]) -> bytes:
    for number, text in enumerate(texts):
        layout = layout.replace(f"%{number}$s", text)
        layout = layout if "$s" in layout else layout.replace("%s", text, 1)
    return layout.encode()


@contextmanager
def one_by_one() -> Iterator[None]:
    with patch.object(RegularDecoder, "columns", lambda *_: None):
        yield


def compared(
    records: list[bytes | None], schema: pa.Schema = SCHEMA, decoder: Decoder | None = None
) -> Decoded:
    decoder = decoder or FormatChoice("json", {}, "json.").decoder(schema)
    at_once = decoder.decode(records)
    with one_by_one():
        expected = decoder.decode(records)
    assert at_once.rows.equals(expected.rows)
    at_once.rows.validate(full=True)
    assert list(at_once.bad) == list(expected.bad)
    lists = (None if one.records is None else one.records.tolist() for one in (at_once, expected))
    assert len({str(one) for one in lists}) == 1
    return at_once


@pytest.mark.parametrize("layout", LAYOUTS)
def test_regular_records_are_decoded_at_once(layout: str) -> None:
    chance = random.Random(layout)
    for _ in range(20):
        records: list[bytes | None] = [record(layout, fields(chance)) for _ in range(LEAST)]
        assert RegularDecoder(SCHEMA, "SQL").columns(records) is not None
        found = compared(records)
        assert found.rows.num_rows == LEAST and not found.bad


@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_values_are_decoded_as_they_are_one_by_one(layout: str) -> None:
    chance = random.Random(layout)
    for field, values in ODD.items():
        for value in values:
            records: list[bytes | None] = [record(layout, fields(chance)) for _ in range(LEAST)]
            texts = fields(chance)
            texts[field] = value
            records[chance.randrange(LEAST)] = record(layout, texts)
            compared(records)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rounds", [500, pytest.param(5000, marks=pytest.mark.soak)])
def test_damaged_records_are_decoded_as_they_are_one_by_one(layout: str, rounds: int) -> None:
    chance = random.Random(layout)
    # To make a record takes as long as to decode it.
    sound = [record(layout, fields(chance)) for _ in range(10 * LEAST)]
    for _ in range(rounds):
        records: list[bytes | None] = [*chance.sample(sound, LEAST)]
        place = chance.randrange(LEAST)
        damaged = bytearray(records[place] or b"")
        at = chance.randrange(len(damaged))
        kind = chance.randrange(4)
        if kind == 0:
            damaged[at] = chance.randrange(256)
        elif kind == 1:
            damaged[at] = chance.choice(b'"{}[]:,.0-+eE \\\x00\xff')
        elif kind == 2:
            del damaged[at : at + chance.randint(1, 9)]
        else:
            damaged[at:at] = chance.choice([b'"', b",", b"0", b".", b"-", b"{}", b'""', b"\xc3"])
        records[place] = bytes(damaged)
        compared(records)


def test_a_shape_that_is_remembered_hides_no_other() -> None:
    chance, decoder = random.Random(7), FormatChoice("json", {}, "json.").decoder(SCHEMA)
    sound = {one: [record(one, fields(chance)) for _ in range(4 * LEAST)] for one in LAYOUTS}
    for _ in range(600):
        records: list[bytes | None] = [*chance.sample(sound[chance.choice(LAYOUTS)], LEAST)]
        for place in chance.sample((0, 1, LEAST - 1), chance.randrange(3)):
            damaged = bytearray(records[place] or b"")
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.randrange(2)] = chance.choice([b'"', b",", b"0", b":", b"n"])
            records[place] = bytes(damaged)
        if chance.random() < 0.2:
            # All records change their shape at once.
            records = [one and one.replace(b'"wide"', b'"WIDE"') for one in records]
        compared(records, decoder=decoder)
    remembered = FormatChoice("json", {}, "json.").decoder(SCHEMA)
    compared([*sound[LAYOUTS[0]]], decoder=remembered)
    compared(
        [one.replace(b'"id":', b'"id":"').replace(b',"s', b'","s') for one in sound[LAYOUTS[0]]],
        decoder=remembered,
    )
    compared([*sound[LAYOUTS[1]]], decoder=remembered)


def test_the_first_record_may_be_the_odd_one() -> None:
    chance, layout = random.Random(1), LAYOUTS[0]
    firsts = [b"", None, b"null", b"[]", b"{}", b'{"id":1}', b'{"id":1,"id":2}', b'{"id":{}}', b"x"]
    for first in firsts:
        compared([first, *(record(layout, fields(chance)) for _ in range(LEAST))])
        compared([*(record(layout, fields(chance)) for _ in range(LEAST)), first])
    twice = layout.replace('"small"', '"id"')
    compared([record(twice, fields(chance)) for _ in range(LEAST)])


def test_quotes_that_move_between_records_are_noticed() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    plain = b'{"a":"1","b":"2"}'
    for odd in (
        b'{"b":"1","a":"2"}',
        b'{"a":"1","b":2"}"',
        b'{"a":"","b""2"}',
        b'"a":"1","b":"2"}{',
    ):
        compared([plain, *[plain] * LEAST, odd, plain], schema)
    # The quotes of two records add up, but not within each.
    compared([*[plain] * LEAST, b'{"a":"1"}', b'{"a":"1","b":"2","c":"3"}'], schema)


def test_columns_of_other_types_are_decoded_one_by_one() -> None:
    for kind in (pa.float64(), pa.bool_(), pa.list_(pa.int64())):
        decoder = RegularDecoder(pa.schema([("a", kind)]), JsonOptions().standard)
        assert decoder.columns([b'{"a":1}'] * LEAST) is None
