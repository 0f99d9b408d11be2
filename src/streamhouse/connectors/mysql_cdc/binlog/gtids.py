"""Reads global transaction identifiers (GTIDs) from binlog events."""

import struct
import uuid

from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    ANONYMOUS,
    HEADER,
    MARIADB_GTID,
    TAGGED_GTID,
)
from streamhouse.errors import DataLossError
from streamhouse.mysql.gtids import GtidSet, mariadb_set, merged_ranges, tagged_origin

_NUMBER_DOMAIN = struct.Struct("<QI")
_LISTED = struct.Struct("<IIQ")
"""A domain, a server's id, and a number."""
_RANGE = struct.Struct("<QQ")


def gtid_of(kind: int, data: bytes, at: int) -> tuple[str, int]:
    """The origin and number in the GTID event that starts at `at`; origin '' for none."""
    body = at + HEADER.size
    if kind == ANONYMOUS:
        return "", 0
    if kind == TAGGED_GTID:
        return _tagged_gtid(data, body)
    if kind == MARIADB_GTID:
        number, domain = _NUMBER_DOMAIN.unpack_from(data, body)
        return str(domain), number
    origin = str(uuid.UUID(bytes=data[body + 1 : body + 17]))
    return origin, int.from_bytes(data[body + 17 : body + 25], "little")


def gtid_list(data: bytes, at: int) -> GtidSet:
    """The set in MariaDB's GTID_LIST event: what was logged before this file."""
    body = at + HEADER.size
    count = int.from_bytes(data[body : body + 4], "little") & 0x0FFFFFFF
    start = body + 4
    return mariadb_set(_LISTED.iter_unpack(data[start : start + count * _LISTED.size]))


def previous_gtids(data: bytes, at: int) -> GtidSet:
    """The set in MySQL's PREVIOUS_GTIDS event: what was logged before this file.

    Its first eight bytes count the origins; with tags (MySQL 8.3), the last of them is not zero.
    """
    body = at + HEADER.size
    tagged = data[body + 7] != 0
    head = data[body + 1 : body + 7] if tagged else data[body : body + 8]
    at, found = body + 8, {}
    for _ in range(int.from_bytes(head, "little")):
        origin, at = str(uuid.UUID(bytes=data[at : at + 16])), at + 16
        if tagged:
            size, at = _packed(data, at)
            origin, at = tagged_origin(origin, data[at : at + size].decode()), at + size
        count, at = int.from_bytes(data[at : at + 8], "little"), at + 8
        end = at + count * _RANGE.size
        ranges = [(first, after - 1) for first, after in _RANGE.iter_unpack(data[at:end])]
        found[origin], at = merged_ranges(ranges), end
    return GtidSet(found, False, {})


def _tagged_gtid(data: bytes, at: int) -> tuple[str, int]:
    """The origin and number in the body of a tagged GTID event.

    It is a message of MySQL's serialization: a version, the size, the last field that must be
    known, then each field after its number.
    """
    for _ in range(3):
        _, at = _packed(data, at)
    at = _field(data, at, 0)
    _, at = _packed(data, at)
    at, octets = _field(data, at, 1), bytearray()
    for _ in range(16):
        octet, at = _packed(data, at)
        octets.append(octet)
    number, at = _packed(data, _field(data, at, 2))
    size, at = _packed(data, _field(data, at, 3))
    origin = tagged_origin(str(uuid.UUID(bytes=bytes(octets))), data[at : at + size].decode())
    # The lowest bit of a signed number is its sign.
    return origin, number >> 1


def _field(data: bytes, at: int, expected: int) -> int:
    number, at = _packed(data, at)
    if number != expected:
        raise DataLossError(
            f"the binlog has a tagged GTID of a form that is not known (field {number}, not "
            f"{expected})"
        )
    return at


def _packed(data: bytes, at: int) -> tuple[int, int]:
    """The number at a byte offset, and the offset after it.

    The number of trailing one bits of the first byte is that of the bytes after it.
    """
    first = data[at]
    following = (~first & (first + 1)).bit_length() - 1
    end = at + 1 + following
    return int.from_bytes(data[at:end], "little") >> min(following + 1, 8), end
