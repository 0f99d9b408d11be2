"""Compressed events are decompressed to what the server sends without compression."""

from __future__ import annotations

import random
import zlib

import pyarrow as pa
import pytest
from tests.unit.mysql.test_mysql_events import BEGIN, INSERT, event, query
from tests.unit.mysql.test_mysql_transactions import (
    DONE,
    MAP,
    OTHER,
    START,
    mysql_gtid,
    row,
    rows_in,
    selects,
)

from streamhouse.connectors.mysql_cdc.binlog.format.compression import PAYLOAD, decompressed
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    HEADER,
    QUERY,
    PositionTracker,
    query_of,
)
from streamhouse.connectors.mysql_cdc.binlog.transactions import Transactions
from streamhouse.errors import ConnectError

SUM = 4
ZSTD, NONE = b"\2\1\0", b"\2\3\xfc\xff\0"


def number(value: int) -> bytes:
    """A length-encoded integer."""
    return bytes([value]) if value < 251 else b"\xfd" + value.to_bytes(3, "little")


def field(kind: int, value: int) -> bytes:
    return bytes([kind, len(number(value))]) + number(value)


def payload(plain: bytes, method: bytes) -> bytes:
    """MySQL's event with a whole transaction, whose own events have no checksums."""
    data = plain if method == NONE else pa.Codec("zstd").compress(plain, asbytes=True)
    head = field(1, len(data)) + method + field(3, len(plain)) + b"\0"
    return event(PAYLOAD, head + data)


def bare(one: bytes) -> bytes:
    """An event without its checksum."""
    size = len(one) - SUM
    return one[:9] + size.to_bytes(4, "little") + one[13:size]


def at(pos: int, one: bytes) -> bytes:
    return one[:13] + pos.to_bytes(4, "little") + one[17:]


def shrunk(text: bytes) -> bytes:
    """A text as MariaDB compresses it."""
    size = len(text).to_bytes(3, "big").lstrip(b"\0") or b"\0"
    return bytes([0x80 | len(size)]) + size + zlib.compress(text)


@pytest.mark.parametrize("method", [ZSTD, NONE], ids=["zstd", "none"])
def test_a_transaction_of_mysql(method: bytes) -> None:
    events = [BEGIN, MAP, row("a"), OTHER, row("x", b"others"), MAP, row("b" * 100_000), DONE]
    begin = at(100, mysql_gtid(1))
    whole = payload(b"".join(map(bare, events)), method)
    whole = at(100 + len(whole), whole)
    track = PositionTracker(START, True)
    transactions = Transactions(track, selects, "MySQL")
    block = begin + decompressed(whole, SUM)
    assert transactions.advance(block, 0)[0] == len(block)
    assert track.between and track.pos == 100 + len(whole)
    track = PositionTracker(START, True)
    transactions, place, found = Transactions(track, selects, "MySQL"), 0, []
    while place < len(block):
        place, committed = transactions.advance(block, place)
        found += [] if committed is None else [rows_in(committed.group)]
        # A position inside the transaction is before its end.
        assert track.between or track.pos < 100 + len(whole)
    assert found == [["a", "b" * 100_000]]


@pytest.mark.parametrize("length", [12, 300, 70_000])
def test_a_statement_of_mariadb(length: int) -> None:
    text = "INSERT INTO t VALUES ('" + "x" * length + "')"
    plain = query(text)
    start = len(plain) - SUM - len(text)
    sent = event(165, plain[HEADER.size : start] + shrunk(text.encode()), end=77)
    found = decompressed(sent, SUM)
    _, kind, _, size, pos, _ = HEADER.unpack_from(found)
    assert (kind, size, pos) == (QUERY, len(found), 77)
    assert query_of(found, 0, len(found) - SUM) == ("shop", text)


@pytest.mark.parametrize(
    ("sent", "kind", "bitmaps"),
    [(166, 23, 1), (167, 24, 2), (168, 25, 1), (169, 30, 1), (170, 31, 2), (171, 32, 1)],
)
def test_rows_of_mariadb(sent: int, kind: int, bitmaps: int) -> None:
    chance = random.Random(sent)
    images = bytes(chance.choice(b"ab") for _ in range(5_000))
    extra = b"\5\0xyz" if kind >= INSERT else b""
    head = b"table." + b"\0\0" + extra + number(11) + b"\xff\7" * bitmaps
    expected = event(kind, head + images, end=9)
    found = decompressed(event(sent, head + shrunk(images), end=9), SUM)
    assert found == expected[:-SUM] + bytes(SUM)


@pytest.mark.parametrize(
    "damaged",
    [
        payload(b"plain", b"\2\1\7"),
        event(PAYLOAD, b"\1\1"),
        event(PAYLOAD, field(1, 3) + ZSTD + field(3, 9) + b"\0" + b"abc"),
        event(166, b"table.\0\0" + b"\1\1" + b"\0plain"),
        event(166, b"table.\0\0" + b"\1\1" + shrunk(b"x" * 99)[:-9]),
        event(166, b"table.\0\0" + b"\1\1" + b"\x81\5" + zlib.compress(b"abc")),
    ],
)
def test_what_cannot_be_decompressed_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ConnectError, match="compressed event .* cannot be read"):
        decompressed(damaged, SUM)
