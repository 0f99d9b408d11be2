"""Row events that are decoded together give the same rows as one by one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymysql.constants import FIELD_TYPE
from tests.unit.mysql import reference_decoder
from tests.unit.mysql.test_mysql_decode import _packed_decimal

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    DATETIME2,
    TIMESTAMP2,
    LoggedColumn,
)
from streamhouse.connectors.mysql_cdc.binlog.rows import batch_decoder
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import (
    BatchDecoder,
    ChangedRows,
    LoggedTable,
    RowEvent,
    RowSelection,
)
from streamhouse.errors import ConnectError, TableError
from streamhouse.mysql.charsets import Charsets
from streamhouse.mysql.options import parse
from streamhouse.mysql.table import TableDefinition
from streamhouse.mysql.values.types import MySqlColumn, from_values

INSERT, UPDATE, DELETE, OLD_INSERT = 30, 31, 32, 23
OPTIONS = parse(
    {
        "hostname": "h", "username": "u", "password": "p", "database-name": "d", "table-name": "t",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A column, how the binlog describes it, and encoded values of it."""

    wire: LoggedColumn
    column: MySqlColumn
    values: st.SearchStrategy[bytes]


def fixed(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


def counted(size: int, values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return values.map(lambda raw: len(raw).to_bytes(size, "little") + raw)


def texts(most: int) -> st.SearchStrategy[bytes]:
    return st.text(max_size=most).map(lambda text: text.encode("utf-8", "replace"))


def decimals(precision: int, scale: int) -> st.SearchStrategy[bytes]:
    most = 10**precision - 1
    numbers = st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale))
    return numbers.map(lambda number: _packed_decimal(number, precision, scale))


def kind(
    name: str, column_type: str, wire: dict[str, Any], values: st.SearchStrategy[bytes], **more: Any
) -> Kind:
    data_type = column_type.split("(")[0].split(" ")[0]
    return Kind(
        LoggedColumn(name=name, **wire), MySqlColumn(name, data_type, column_type, **more), values
    )


def decimal(name: str, precision: int, scale: int) -> Kind:
    wire = {"type": FIELD_TYPE.NEWDECIMAL, "precision": precision, "scale": scale}
    values = decimals(precision, scale)
    return kind(name, "decimal(1)", wire, values, precision=precision, scale=scale)


def number(name: str, column_type: str, field: int, size: int) -> Kind:
    wire = {"type": field, "unsigned": "unsigned" in column_type}
    return kind(name, column_type, wire, fixed(size))


def instant(name: str, data_type: str, field: int, size: int, digits: int) -> Kind:
    wire = {"type": field, "fraction": digits}
    fractions = st.integers(0, 10**digits - 1).map(
        lambda value: (value * 10 ** (digits % 2)).to_bytes((digits + 1) // 2, "big")
    )
    values = st.tuples(fixed(size), fractions).map(b"".join)
    return kind(name, data_type, wire, values, fraction=digits)


VARCHAR = {"type": FIELD_TYPE.VARCHAR, "length_size": 1, "length": 200}
BLOB = {"type": FIELD_TYPE.BLOB, "length_size": 2}
DATES = st.integers(0, (10_000 << 9) - 1).map(lambda packed: packed.to_bytes(3, "little"))
DATETIMES = st.integers(0, (130_000 << 22) - 1).map(
    lambda packed: (packed | 0x8000000000).to_bytes(5, "big")
)
MILLIS = st.integers(0, 999).map(lambda value: (value * 10).to_bytes(2, "big"))
FLOATS = st.floats(width=32, allow_nan=False).map(lambda value: struct.pack("<f", value))
DOUBLES = st.floats(allow_nan=False).map(lambda value: struct.pack("<d", value))
ASCII = st.text(st.characters(codec="ascii"), max_size=9).map(str.encode)
HALVES = st.sampled_from([b"", b"a", b"\xed\xa0\x80"])
BINARY = {"type": FIELD_TYPE.STRING, "length_size": 1, "length": 9}
ENUM, SET = {"type": FIELD_TYPE.ENUM, "size": 1}, {"type": FIELD_TYPE.SET, "size": 1}
MEMBERS = st.integers(0, 3).map(lambda value: bytes([value]))
DATETIME = {"type": DATETIME2}
MB4, LATIN = {"charset": "utf8mb4"}, {"charset": "latin1"}
KINDS = [
    number("tiny", "tinyint(4)", FIELD_TYPE.TINY, 1),
    number("utiny", "tinyint(3) unsigned", FIELD_TYPE.TINY, 1),
    number("small", "smallint(6)", FIELD_TYPE.SHORT, 2),
    number("medium", "mediumint(9)", FIELD_TYPE.INT24, 3),
    number("umedium", "mediumint(8) unsigned", FIELD_TYPE.INT24, 3),
    number("int", "int(11)", FIELD_TYPE.LONG, 4),
    number("uint", "int(10) unsigned", FIELD_TYPE.LONG, 4),
    number("ubig", "bigint(20) unsigned", FIELD_TYPE.LONGLONG, 8),
    number("narrow", "bigint(20)", FIELD_TYPE.SHORT, 2),
    kind("float", "float", {"type": FIELD_TYPE.FLOAT}, FLOATS),
    kind("double", "double", {"type": FIELD_TYPE.DOUBLE}, DOUBLES),
    decimal("money", 12, 2),
    decimal("fine", 18, 13),
    decimal("below", 5, 5),
    decimal("long", 27, 9),
    kind("date", "date", {"type": FIELD_TYPE.DATE}, DATES),
    kind("dt", "datetime", DATETIME, DATETIMES),
    kind(
        "dt3",
        "datetime(3)",
        {**DATETIME, "fraction": 3},
        st.tuples(DATETIMES, MILLIS).map(b"".join),
        fraction=3,
    ),
    instant("ts", "timestamp", TIMESTAMP2, 4, 0),
    instant("ts6", "timestamp", TIMESTAMP2, 4, 6),
    kind("year", "year(4)", {"type": FIELD_TYPE.YEAR}, fixed(1)),
    kind("text", "varchar(50)", VARCHAR, counted(1, texts(50)), **MB4),
    kind("latin", "varchar(50)", VARCHAR, counted(1, st.binary(max_size=50)), **LATIN),
    kind("plain", "varchar(50)", VARCHAR, counted(1, ASCII), **LATIN),
    kind("wide", "text", BLOB, counted(2, texts(400)), **MB4),
    kind("halves", "varchar(9)", VARCHAR, counted(1, HALVES), **MB4),
    kind("raw", "varbinary(50)", VARCHAR, counted(1, st.binary(max_size=50))),
    kind("padded", "binary(9)", BINARY, counted(1, st.binary(max_size=9)), length=9),
    kind("enum", "enum('a','b','c')", ENUM, MEMBERS, **MB4),
    kind("set", "set('a','b')", SET, MEMBERS, **MB4),
    kind("bit", "bit(12)", {"type": FIELD_TYPE.BIT, "size": 2}, fixed(2)),
]
KEY = Kind(
    LoggedColumn(type=FIELD_TYPE.LONGLONG, name="id", unsigned=False),
    MySqlColumn("id", "bigint", "bigint(20)", nullable=False),
    st.integers(0, 50).map(lambda value: value.to_bytes(8, "little")),
)


class _Latin1(Charsets):
    """A server that has latin1 as Python has it."""

    def texts(self, charset: str, encoded: Sequence[bytes], key: bool = False) -> list[str]:
        if charset != "latin1":
            return super().texts(charset, encoded, key)
        return [raw.decode("latin-1") for raw in encoded]


def latin1(options: Any) -> Charsets:
    return _Latin1(lambda statement: [])


@pytest.fixture(autouse=True)
def _charsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_decoder, "charsets_of", latin1)
    monkeypatch.setattr(reference_decoder, "charsets_of", latin1)


def logged(kinds: Sequence[Kind], left_out: Collection[str] = ()) -> LoggedTable:
    columns = tuple(one.column for one in kinds)
    definition = TableDefinition(
        "d", "t", columns, tuple(c for c in columns if c.name == "id"), "utf8mb4"
    )
    captured = CapturedTable(
        OPTIONS, definition, tuple(c for c in columns if c.name not in left_out)
    )
    names = [column.name for column in columns]
    return LoggedTable(
        captured,
        tuple((one.wire, one.column) for one in kinds),
        tuple(names.index(column.name) for column in captured.columns),
    )


def row_event(kind: int, count: int, rows: Sequence[bytes], seconds: int = 7) -> bytes:
    present = ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
    body = bytes(8) + (b"" if kind == OLD_INSERT else b"\2\0")
    body += bytes([count]) + present * (2 if kind == UPDATE else 1) + b"".join(rows)
    return HEADER.pack(seconds, kind, 1, HEADER.size + len(body), 0, 0) + body


def image(data: Callable[[st.SearchStrategy[Any]], Any], kinds: Sequence[Kind]) -> bytes:
    nulls, values = 0, b""
    for index, one in enumerate(kinds):
        if one is not KEY and data(st.integers(0, 5)) == 0:
            nulls |= 1 << index
        else:
            values += data(one.values)
    return nulls.to_bytes((len(kinds) + 7) // 8, "little") + values


def decoder(
    table: LoggedTable, raw: Sequence[bytes], skipped: int = 0
) -> batch_decoder._RunDecoder:
    run = [(one[4], one, skipped, number) for number, one in enumerate(raw)]
    return batch_decoder._RunDecoder(table, run)


def compared(table: LoggedTable, raw: Sequence[bytes], skipped: int) -> ChangedRows:
    """The rows of the events decoded together, which are those of each event alone."""
    together = decoder(table, raw, skipped).rows(None)
    kinds, rows, seconds = [], [], []
    for one in raw:
        event = RowEvent(table, one[4], one, 0, len(one))
        for before, after, at in list(reference_decoder.changes(event))[skipped:]:
            images = [image for image in (before, after) if image is not None]
            key = [[image[index] for index in table.captured.key_indexes] for image in images]
            kinds += (
                ["+I" if before is None else "-D"]
                if len(images) == 1
                else ["-U", "+U"]
                if key[0] == key[1]
                else ["-D", "+I"]
            )
            rows += images
            seconds += [at] * len(images)
    assert together.kinds.to_pylist() == kinds
    assert together.seconds.tolist() == seconds
    assert sorted(set(together.numbers.tolist())) == together.numbers.tolist()
    columns = zip(*rows, strict=True) if rows else ((),) * len(table.captured.columns)
    for column, ours, values in zip(table.captured.columns, together.columns, columns, strict=True):
        theirs = from_values(column, values, table.captured.date_reading(column))
        assert ours.type == theirs.type, column
        ours.validate(full=True)
        assert ours.equals(theirs), column
    return together


@settings(max_examples=180)
@given(data=st.data())
def test_any_rows_together_are_those_of_each_event(data: st.DataObject) -> None:
    draw = data.draw
    picked = draw(
        st.lists(st.sampled_from(KINDS), max_size=12, unique_by=lambda one: one.wire.name)
    )
    kinds = draw(st.permutations([KEY, *picked]))
    left_out = draw(st.sets(st.sampled_from([one.column.name for one in [*picked, KINDS[0]]])))
    table = logged(kinds, left_out)
    raw = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from([INSERT, UPDATE, DELETE, OLD_INSERT]))
        count = draw(st.integers(1, 4)) * (2 if kind == UPDATE else 1)
        rows = [image(draw, kinds) for _ in range(count)]
        raw.append(row_event(kind, len(kinds), rows, draw(st.integers(0, 2**32 - 1))))
    compared(table, raw, draw(st.integers(0, 2)))


def half(odd: int) -> RowSelection:
    """Selects rows by whether the key is even."""
    return lambda key: key[0].to_numpy() % 2 == odd


@pytest.mark.parametrize("events", [3, 200])
def test_shares_divide_the_rows_and_keep_their_order(events: int) -> None:
    text = next(one for one in KINDS if one.column.name == "text")
    table = logged([KEY, text])

    def row(key: int) -> bytes:
        value = f"text {key}".encode()
        return b"\0" + key.to_bytes(8, "little") + bytes([len(value)]) + value

    raw = [row_event(INSERT, 2, [row(5 * n + m) for m in range(5)]) for n in range(events)]
    # An update that changes the key has its halves in different key groups.
    raw.append(row_event(UPDATE, 2, [row(0), row(1), row(2), row(2)]))
    found = []
    for odd in (0, 1):
        held = BatchDecoder(half(odd))
        for one in raw:
            held.add(RowEvent(table, one[4], b"xx" + one, 2, len(one) + 2))
        rows = list(held.drain())
        assert len(rows) == 1 and held.bytes == 0
        keys = rows[0].columns[0].to_pylist()
        assert rows[0].columns[1].to_pylist() == [f"text {key}" for key in keys]
        assert keys[: len(keys) - (3 if odd == 0 else 1)] == list(range(odd, 5 * events, 2))
        found.append(list(zip(rows[0].kinds.to_pylist(), keys, strict=True)))
    assert found[0][-3:] == [("-D", 0), ("-U", 2), ("+U", 2)]
    assert found[1][-1] == ("+I", 1)


@settings(max_examples=5)
@given(data=st.data())
def test_a_key_group_may_have_no_rows(data: st.DataObject) -> None:
    table, nulls = logged([KEY, *KINDS]), bytes((len(KINDS) + 8) // 8)
    key = (2).to_bytes(8, "little")
    row = nulls + key + b"".join(data.draw(one.values) for one in KINDS)
    raw = row_event(INSERT, 1 + len(KINDS), [row] * 200)
    for odd, rows in ((0, 200), (1, 0)):
        shared = decoder(table, [raw]).rows(half(odd))
        whole = decoder(table, [raw]).rows(None)
        assert [column.type for column in shared.columns] == [
            column.type for column in whole.columns
        ]
        assert {len(one) for one in (*shared.columns, shared.kinds, shared.seconds)} == {rows}


def test_an_altered_table_is_decoded_as_it_was() -> None:
    int_kind, text = (next(k for k in KINDS if k.column.name == name) for name in ("int", "text"))
    before, after = logged([KEY, int_kind, text]), logged([int_kind, text, KEY])
    key, number, value = (3).to_bytes(8, "little"), (9).to_bytes(4, "little"), b"\1x"
    first = row_event(INSERT, 3, [b"\0" + key + number + value])
    second = row_event(INSERT, 3, [b"\0" + number + value + key])
    held = BatchDecoder()
    held.add(RowEvent(before, INSERT, first, 0, len(first)))
    held.add(RowEvent(after, INSERT, second, 0, len(second)))
    rows = [[column.to_pylist() for column in one.columns] for one in held.drain()]
    assert rows == [[[3], [9], ["x"]], [[9], ["x"], [3]]]


def test_rows_without_all_columns_are_refused() -> None:
    table = logged([KEY, KINDS[0]])
    whole = row_event(INSERT, 2, [b"\0" + bytes(8) + b"\1"])
    partial = bytearray(whole)
    partial[HEADER.size + 8 + 2 + 1] = 0b01
    events = decoder(table, [whole, bytes(partial)])
    with pytest.raises(ConnectError, match="incomplete rows.*binlog_row_image = FULL"):
        events.rows(None)


@pytest.mark.parametrize("cut", [1, 5])
def test_a_row_that_does_not_fit_its_event_is_an_error(cut: int) -> None:
    table = logged([KEY, KINDS[0]])
    raw = row_event(INSERT, 2, [b"\0" + bytes(8) + b"\1"])[:-cut]
    with pytest.raises(ConnectError, match="cannot be decoded"):
        decoder(table, [raw]).rows(None)


def test_a_zero_date_in_a_key_is_refused() -> None:
    day = Kind(
        LoggedColumn(type=FIELD_TYPE.DATE, name="id"),
        MySqlColumn("id", "date", "date", nullable=False),
        DATES,
    )
    table = logged([day])
    raw = row_event(INSERT, 1, [b"\0" + bytes(3)])
    events = decoder(table, [raw])
    with pytest.raises(TableError, match="'id' .* of the key has the zero date"):
        events.rows(None)
