"""Row images made by hand: the packed forms against plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.constants import FIELD_TYPE
from tests.unit.mysql.test_key_targets import OPTIONS

from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    TIME2,
    LoggedColumn,
)
from streamhouse.connectors.mysql_cdc.binlog.rows.arrays import to_array
from streamhouse.connectors.mysql_cdc.binlog.rows.images import Block, Values
from streamhouse.errors import OptionError, SchemaChangeError, TableError
from streamhouse.mysql.charsets import Charsets
from streamhouse.mysql.columns import server_zone
from streamhouse.mysql.connection import Session
from streamhouse.mysql.values.types import MySqlColumn


def _offline(statement: bytes) -> list[tuple[bytes, ...]]:
    raise AssertionError(f"asks the server: {statement!r}")


CONTEXT = decode.Context(Charsets(_offline))


def plain(wire: LoggedColumn, column: MySqlColumn, data: bytes) -> pa.Array:
    """The plain array of one value."""
    convert = to_array(wire, column, CONTEXT, column)
    return convert(Block(data), Values(np.array([0]), 0, None, None))


TIME = MySqlColumn("t", "time", "time(6)", fraction=6)


def _packed_time(micros: int) -> bytes:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    packed = (hours << 12 | minutes << 6 | seconds % 60) << 24 | fraction
    return ((-packed if micros < 0 else packed) + (0x800000 << 24)).to_bytes(6, "big")


@given(st.integers(-3_020_399_999_999, 3_020_399_999_999))
def test_times_of_either_sign(micros: int) -> None:
    read = decode.READERS["time"](LoggedColumn(type=TIME2, fraction=6), TIME, CONTEXT)
    text = read(_packed_time(micros))
    seconds, fraction = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    assert text == f"{sign}{clock}.{fraction:06d}"


def _packed_decimal(number: Decimal, precision: int, scale: int) -> bytes:
    digits = f"{abs(int(number.scaleb(scale))):0{precision}d}"
    whole, part = digits[: precision - scale], digits[precision - scale :]
    bytes_of = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    head = len(whole) % 9
    groups = [whole[:head]] + [whole[i : i + 9] for i in range(head, len(whole), 9)]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    raw = b"".join(int(g).to_bytes(bytes_of[len(g)], "big") for g in groups if g)
    if number < 0:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (20, 0), (5, 5), (27, 9), (18, 13)])
@given(data=st.data())
def test_decimals_of_each_shape(precision: int, scale: int, data: st.DataObject) -> None:
    most = 10**precision - 1
    number = Decimal(data.draw(st.integers(-most, most))).scaleb(-scale)
    wire = LoggedColumn(type=FIELD_TYPE.NEWDECIMAL, precision=precision, scale=scale)
    column = MySqlColumn("d", "decimal", "decimal", precision=precision, scale=scale)
    packed = _packed_decimal(number, precision, scale)
    assert decode.READERS["decimal"](wire, column, CONTEXT)(packed) == number
    assert decode.width(wire) == (len(packed), 0)
    assert plain(wire, column, packed).to_pylist() == [number]


def test_an_altered_column_is_an_error() -> None:
    column = MySqlColumn("n", "int", "int(11)")
    for wire in (
        LoggedColumn(type=FIELD_TYPE.VARCHAR),
        LoggedColumn(type=FIELD_TYPE.LONGLONG, name="n", unsigned=True),
    ):
        with pytest.raises(SchemaChangeError, match="column 'n' is int"):
            decode.check_type(wire, column)


def test_a_widened_number_is_read_as_it_is_logged() -> None:
    column = MySqlColumn("n", "int", "int(11)")
    wire = LoggedColumn(type=FIELD_TYPE.LONGLONG, name="n", unsigned=False)
    assert plain(wire, column, (-5).to_bytes(8, "little", signed=True)).to_pylist() == [-5]
    wire = LoggedColumn(type=FIELD_TYPE.LONG, name="n", unsigned=True)
    assert plain(wire, column, b"\xff" * 4).to_pylist() == [4294967295]


def test_a_type_that_is_not_supported_names_its_column() -> None:
    with pytest.raises(TableError, match="column 'v' has the type xmltype"):
        _ = MySqlColumn("v", "xmltype", "xmltype").family


class _Berlin(Session):
    """A server whose own zone is neither UTC nor an offset."""

    def __init__(self) -> None:
        pass

    def rows(
        self, statement: str | bytes, arguments: Sequence[Any] = (), raw: bool = False
    ) -> list[tuple[Any, ...]]:
        return [("SYSTEM", "CET")]


@pytest.mark.parametrize(
    ("kind", "target", "needed"),
    [
        ("datetime", pa.timestamp("us"), False),
        ("datetime", pa.timestamp("ms"), False),
        ("datetime", pa.date32(), False),
        ("datetime", pa.string(), False),
        ("datetime", pa.timestamp("ms", "UTC"), True),
        ("timestamp", pa.timestamp("ms", "UTC"), False),
        ("timestamp", pa.timestamp("us"), True),
        ("timestamp", pa.string(), True),
        ("timestamp", pa.date32(), True),
        ("int", pa.int64(), False),
    ],
)
def test_a_zone_is_needed_between_datetimes_and_instants(
    kind: str, target: pa.DataType, needed: bool
) -> None:
    selected = [(MySqlColumn("c", kind, kind), target)]
    if not needed:
        assert server_zone(_Berlin(), OPTIONS, selected, "it") == "UTC"
        return
    with pytest.raises(OptionError, match="time zone is 'CET'; set it"):
        server_zone(_Berlin(), OPTIONS, selected, "it")
