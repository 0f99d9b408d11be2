"""Reads global transaction identifiers (GTIDs) from binlog events."""

from __future__ import annotations

import uuid

from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    ANONYMOUS,
    HEADER,
    MARIADB_GTID,
    TAGGED_GTID,
)
from streamhouse.connectors.mysql_cdc.server.gtids import GtidSet, mariadb_set, merged_ranges
from streamhouse.errors import DataLossError


def gtid_of(kind: int, data: bytes, at: int) -> tuple[str, int]:
    """The origin and number in the GTID event that starts at `at`; origin '' for none."""
    body = at + HEADER.size
    if kind == ANONYMOUS:
        return "", 0
    if kind == TAGGED_GTID:
        raise DataLossError("the binlog has tagged GTIDs, which cannot be compared with a GTID set")
    if kind == MARIADB_GTID:
        number = int.from_bytes(data[body : body + 8], "little")
        return str(int.from_bytes(data[body + 8 : body + 12], "little")), number
    origin = str(uuid.UUID(bytes=data[body + 1 : body + 17]))
    return origin, int.from_bytes(data[body + 17 : body + 25], "little")


def gtid_list(data: bytes, at: int) -> GtidSet:
    """The set in MariaDB's GTID_LIST event: what was logged before this file."""
    body = at + HEADER.size
    count = int.from_bytes(data[body : body + 4], "little") & 0x0FFFFFFF
    entries = []
    for index in range(count):
        entry = body + 4 + 16 * index
        domain = int.from_bytes(data[entry : entry + 4], "little")
        server = int.from_bytes(data[entry + 4 : entry + 8], "little")
        entries.append((domain, server, int.from_bytes(data[entry + 8 : entry + 16], "little")))
    return mariadb_set(entries)


def previous_gtids(data: bytes, at: int) -> GtidSet:
    """The set in MySQL's PREVIOUS_GTIDS event: what was logged before this file.

    Raises `ValueError` for the form with tagged GTIDs (MySQL 8.3).
    """
    body = at + HEADER.size
    head = int.from_bytes(data[body : body + 8], "little")
    if head >> 56:
        raise ValueError("the binlog has tagged GTIDs, which cannot be followed")
    at, found = body + 8, {}
    for _ in range(head):
        origin = str(uuid.UUID(bytes=data[at : at + 16]))
        count = int.from_bytes(data[at + 16 : at + 24], "little")
        at += 24
        ranges = []
        for _ in range(count):
            first = int.from_bytes(data[at : at + 8], "little")
            after = int.from_bytes(data[at + 8 : at + 16], "little")
            ranges.append((first, after - 1))
            at += 16
        found[origin] = merged_ranges(ranges)
    return GtidSet(found, False, {})
