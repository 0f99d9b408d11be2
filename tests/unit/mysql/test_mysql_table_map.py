"""TABLE_MAP events made by hand, in MySQL's form: what they describe."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pymysql.constants import FIELD_TYPE

from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    DATETIME2,
    LoggedColumn,
    logged_columns,
)
from streamhouse.mysql.values.byte_values import geometry_texts


def _sized(data: bytes) -> bytes:
    size = len(data)
    return (bytes([size]) if size < 251 else b"\xfc" + size.to_bytes(2, "little")) + data


def _event(types: list[int], metadata: bytes, *optional: tuple[int, bytes]) -> bytes:
    count = len(types)
    return (
        bytes(19 + 8)
        + b"\4shop\0\3t\xc3\xa4\0"
        + _sized(bytes(types))
        + _sized(metadata)
        + bytes((count + 7) // 8)
        + b"".join(bytes([kind]) + _sized(data) for kind, data in optional)
    )


def _columns(event: bytes, mariadb: bool = False) -> list[LoggedColumn]:
    return logged_columns(b"before" + event + b"sums", 6, 6 + len(event), mariadb)


_TYPES = [
    FIELD_TYPE.LONG, FIELD_TYPE.VARCHAR, FIELD_TYPE.GEOMETRY, FIELD_TYPE.JSON, FIELD_TYPE.STRING,
    FIELD_TYPE.STRING, FIELD_TYPE.STRING, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.BLOB, FIELD_TYPE.BIT,
    DATETIME2, FIELD_TYPE.STRING,
]  # fmt: skip
_METADATA = bytes(
    [0x2C, 0x01, 4, 4, 0xF7, 2, 0xF8, 8, 0xFE, 20, 10, 2, 2, 4, 1, 6, 0xEE, 0xFC]
)  # fmt: skip


def test_a_table_without_metadata() -> None:
    columns = _columns(_event(_TYPES, _METADATA))
    assert columns == [
        LoggedColumn(FIELD_TYPE.LONG),
        LoggedColumn(FIELD_TYPE.VARCHAR, length=300, length_size=2),
        LoggedColumn(FIELD_TYPE.GEOMETRY, length_size=4),
        LoggedColumn(FIELD_TYPE.JSON, length_size=4),
        LoggedColumn(FIELD_TYPE.ENUM, size=2),
        LoggedColumn(FIELD_TYPE.SET, size=8),
        LoggedColumn(FIELD_TYPE.STRING, length=20, length_size=1),
        LoggedColumn(FIELD_TYPE.NEWDECIMAL, precision=10, scale=2),
        LoggedColumn(FIELD_TYPE.BLOB, length_size=2),
        LoggedColumn(FIELD_TYPE.BIT, size=2),
        LoggedColumn(DATETIME2, fraction=6),
        LoggedColumn(FIELD_TYPE.STRING, length=508, length_size=2),
    ]


def test_full_metadata() -> None:
    names = [f"c{number}" for number in range(len(_TYPES) - 1)] + ["ü" * 130]
    long_member = "é".encode("latin1") * 255
    event = _event(
        _TYPES,
        _METADATA,
        (1, b"\x80"),
        (2, b"\xfc\xff\x00" + b"\x01\x08"),  # utf8mb4_0900_ai_ci, the second text latin1
        (4, b"".join(_sized(name.encode()) for name in names)),
        (5, b"\x02" + _sized(b"a") + _sized(b"\xe4")),
        (6, b"\x01" + _sized(long_member)),
        (7, b"\x00"),
        (8, b"\x00"),
        (11, b"\x1c\x08"),
        (12, b"\x00\x00"),
        (99, b"of a later version"),
    )
    columns = _columns(event)
    assert [column.name for column in columns] == names
    assert [column.unsigned for column in columns] == [True, *[None] * 6, False, *[None] * 4]
    # In MySQL, unlike in MariaDB, GEOMETRY has no collation.
    assert [column.collation for column in columns] == [
        None, 255, None, None, 28, 8, 8, None, 255, None, None, 255,
    ]  # fmt: skip
    assert columns[4].members == (long_member,)
    assert columns[5].members == (b"a", b"\xe4")
    assert _columns(event, mariadb=True)[2].collation == 8


@pytest.mark.parametrize("mariadb", [False, True])
def test_signs_of_numbers_next_to_a_year(mariadb: bool) -> None:
    types = [FIELD_TYPE.TINY, FIELD_TYPE.YEAR, FIELD_TYPE.LONG, FIELD_TYPE.LONG]
    found = _columns(_event(types, b"", (1, b"\x70")), mariadb=mariadb)
    assert [column.unsigned for column in found] == [False, True, True, True]


def test_every_type_can_be_stepped_over() -> None:
    values = [
        bytes(4), b"\x02\x00ab", b"\x05\0\0\0geom!", b"\x03\0\0\0\0\0\0", b"\1\0", bytes(8),
        b"\x01x", b"\x80\0\0\0\0", b"\x03\x00abc", b"\0\1", bytes(8), b"\x02\x00ab",
    ]  # fmt: skip
    at, row = 0, b"".join(values)
    for column, value in zip(_columns(_event(_TYPES, _METADATA)), values, strict=True):
        size, length_size = decode.width(column)
        size += length_size + int.from_bytes(row[at : at + length_size], "little")
        assert size == len(value), column
        at += size


def test_a_big_endian_geometry() -> None:
    point = b"\0" + (1).to_bytes(4, "big") + bytes.fromhex("3ff8000000000000c000000000000000")
    text = '{"coordinates":[1.5,-2],"type":"Point","srid":7}'
    assert geometry_texts(pa.array([(7).to_bytes(4, "little") + point])).to_pylist() == [text]
