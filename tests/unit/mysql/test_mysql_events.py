"""Finds the ends of transactions in a stream of binlog events."""

from __future__ import annotations

import pytest

from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    FORMAT,
    HEADER,
    MARIADB_GTID,
    QUERY,
    ROTATE,
    TABLE_MAP,
    XA_PREPARE,
    XID,
    PositionTracker,
    query_of,
)
from streamhouse.mysql.position import BinlogPosition

_CHECKSUM = b"sums"
MYSQL_GTID, HEARTBEAT, INSERT, CHECKPOINT = 33, 27, 30, 161


def event(kind: int, body: bytes = b"", end: int = 0) -> bytes:
    size = HEADER.size + len(body) + len(_CHECKSUM)
    return HEADER.pack(1, kind, 1, size, end, 0) + body + _CHECKSUM


def query(text: str, schema: str = "shop") -> bytes:
    raw = schema.encode()
    head = bytes(8) + bytes([len(raw)]) + b"\0\0" + (3).to_bytes(2, "little")
    return event(QUERY, head + b"var" + raw + b"\0" + text.encode())


def gtid(standalone: bool) -> bytes:
    return event(MARIADB_GTID, bytes(12) + bytes([standalone]) + bytes(6))


def boundaries(*events: bytes) -> str:
    """After each event, whether it ended between transactions (`|`) or inside one (`.`)."""
    track = PositionTracker(BinlogPosition("binlog.000001", 4), True)
    marks = ""
    for one in events:
        track.take(one, 0)
        marks += "|" if track.between else "."
    return marks


def prepared(one_phase: bool = False, gtrid: bytes = b"1", bqual: bytes = b"") -> bytes:
    """An XA_PREPARE event, as both servers write it."""
    lengths = len(gtrid).to_bytes(4, "little") + len(bqual).to_bytes(4, "little")
    form = (1).to_bytes(4, "little")
    return event(XA_PREPARE, bytes([one_phase]) + form + lengths + gtrid + bqual)


PREPARED = prepared()
BEGIN, COMMIT, CREATE = query("BEGIN"), query("COMMIT"), query("CREATE TABLE t (id INT)")


@pytest.mark.parametrize(
    ("events", "marks"),
    [
        ([gtid(False), event(TABLE_MAP), event(INSERT), event(XID)], "...|"),
        ([gtid(True), CREATE], ".|"),
        ([gtid(False), query("SAVEPOINT a"), query("ROLLBACK TO a"), COMMIT], "...|"),
        ([gtid(False), CREATE, event(TABLE_MAP), event(INSERT), event(XID)], "....|"),
        ([gtid(False), event(INSERT), PREPARED], "..|"),
        ([gtid(False), query("XA COMMIT X'31',X'',1")], ".|"),
        ([event(MYSQL_GTID), BEGIN, event(INSERT), event(XID)], "...|"),
        ([event(MYSQL_GTID), CREATE], ".|"),
        ([event(MYSQL_GTID), query("XA START X'31',X'',1"), query("XA END X'31',X'',1"), PREPARED],
         "...|"),
        ([BEGIN, event(INSERT), event(HEARTBEAT), query("ROLLBACK")], "...|"),
        ([CREATE, event(CHECKPOINT)], "||"),
    ],
)  # fmt: skip
def test_transactions_end_where_the_server_ends_them(events: list[bytes], marks: str) -> None:
    assert boundaries(*events) == marks


def test_positions_follow_rotations_and_leave_out_the_past() -> None:
    track = PositionTracker(BinlogPosition("binlog.000001", 500), True)

    def rotate(name: str, pos: int) -> bytes:
        return event(ROTATE, pos.to_bytes(8, "little") + name.encode())

    track.take(rotate("binlog.000001", 500), 0)
    track.take(event(FORMAT, bytes(60) + b"\1"), 0)
    assert track.position == BinlogPosition("binlog.000001", 500)
    track.take(event(XID, bytes(8), end=700), 0)
    track.take(rotate("binlog.000002", 4), 0)
    assert track.position == BinlogPosition("binlog.000002", 4)
    track.take(event(FORMAT, bytes(60) + b"\0", end=256), 0)
    assert track.position == BinlogPosition("binlog.000002", 256)
    assert track.trailer == 0


@pytest.mark.parametrize(("kind", "head"), [(27, b""), (41, b"\1\15")], ids=["MariaDB", "MySQL 8"])
def test_a_heartbeat_of_the_last_file_leaves_the_position(kind: int, head: bytes) -> None:
    """The server sends them while it opens the next file; rows there were left out once."""
    track = PositionTracker(BinlogPosition("binlog.000001", 500), True)
    track.take(event(kind, head + b"binlog.000001", end=900), 0)
    assert track.position == BinlogPosition("binlog.000001", 900)
    track.take(event(ROTATE, (4).to_bytes(8, "little") + b"binlog.000002"), 0)
    track.take(event(kind, head + b"binlog.000001", end=947), 0)
    assert track.position == BinlogPosition("binlog.000002", 4)
    track.take(event(kind, head + b"binlog.000002", end=256), 0)
    assert track.position == BinlogPosition("binlog.000002", 256)


def test_a_query_has_its_database_and_its_text() -> None:
    data = b"before" + query("TRUNCATE tä", "läden")
    assert query_of(data, 6, len(data) - 4) == ("läden", "TRUNCATE tä")
