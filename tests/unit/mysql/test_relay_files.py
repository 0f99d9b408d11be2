"""The files of a relay log can be read from any position, and never partially written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.mysql.test_mysql_events import MYSQL_GTID, event, query

from streamhouse.connectors.mysql_cdc.binlog.change_decoder import names_of
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    HEADER,
    ROTATE,
    TABLE_MAP,
    XID,
    PositionTracker,
)
from streamhouse.connectors.mysql_cdc.relay import files
from streamhouse.connectors.mysql_cdc.relay.files import (
    FrameReader,
    Segment,
    bounded,
    drop_old,
    segments,
)
from streamhouse.connectors.mysql_cdc.relay.log import RelayLog
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.mysql import table
from streamhouse.mysql.options import parse
from streamhouse.mysql.position import BinlogPosition

FILE = "binlog.000001"
SHOP = ("shop", "orders")
INSERT = 30
NAMES = {"database-name": "shop", "table-name": "orders"}
OPTIONS = parse({"hostname": "localhost", "username": "reader", "password": "secret", **NAMES})


class Server:
    """Sends transactions of one row, as a server would, from `start` on."""

    def __init__(self, start: int = 4) -> None:
        self.at = start
        self.track = PositionTracker(BinlogPosition(FILE, start), True)

    def placed(self, raw: bytes) -> bytes:
        seconds, kind, server, size, _, flags = HEADER.unpack_from(raw)
        self.at += size
        return HEADER.pack(seconds, kind, server, size, self.at, flags) + raw[HEADER.size :]

    def opening(self, table: str, row: bytes) -> bytes:
        number = table.encode().ljust(6, b".")
        mapped = event(TABLE_MAP, number + b"\0\0" + names_of("shop", table) + b"columns")
        events = [event(MYSQL_GTID), query("BEGIN"), mapped, event(INSERT, number + row)]
        return b"".join(self.placed(raw) for raw in events)

    def ending(self) -> bytes:
        return self.placed(event(XID, bytes(8)))

    def transaction(self, table: str, row: bytes) -> bytes:
        return self.opening(table, row) + self.ending()

    def rotation(self, name: str) -> bytes:
        self.at = 4
        return event(ROTATE, (4).to_bytes(8, "little") + name.encode())


def rows(folder: Path, start: BinlogPosition, end: BinlogPosition) -> list[bytes]:
    """The rows of all kept events between two positions."""
    reader = FrameReader(folder, start)
    found = []
    for frame in reader.up_to(end):
        at = 0
        while at < len(frame.events):
            _, kind, _, size, pos, _ = HEADER.unpack_from(frame.events, at)
            if kind == INSERT and start < BinlogPosition(frame.end.file, pos) <= end:
                found.append(frame.events[at + HEADER.size + 6 : at + size])
            at += size
    reader.close()
    return found


@pytest.fixture
def view(tmp_path: Path) -> RelayView:
    return RelayView(tmp_path)


def connected(folder: Path, most_bytes: int = 1 << 20) -> tuple[Server, RelayLog]:
    """A server, and a log that is connected to it."""
    server, start = Server(), BinlogPosition(FILE, 4)
    made = RelayLog(folder, [SHOP], start, most_bytes, table.Server(True, ""))
    made.connect(server.track, OPTIONS)
    return server, made


def test_any_range_between_transactions_is_read_again(tmp_path: Path, view: RelayView) -> None:
    server, kept = connected(tmp_path, most_bytes=4_000)
    ends = [BinlogPosition(FILE, 4)]
    for number in range(60):
        if number == 40:
            kept.keep(server.rotation("binlog.000002"))
        # Two transactions a block, so that ranges also start and end inside a frame.
        block = b""
        for half in (0, 1):
            block += server.transaction("orders", b"%d" % (2 * number + half))
            file = "binlog.000002" if number >= 40 else FILE
            ends.append(BinlogPosition(file, server.at))
        kept.keep(block)
    kept.close()
    assert len(segments(tmp_path)) > 10
    for first in range(0, 121, 7):
        for last in range(first, 121, 9):
            wanted = [b"%d" % number for number in range(first, last)]
            assert rows(tmp_path, ends[first], ends[last]) == wanted


def test_events_of_an_open_transaction_are_invisible_and_can_be_undone(
    tmp_path: Path, view: RelayView
) -> None:
    server, kept = connected(tmp_path)
    kept.keep(server.transaction("orders", b"1"))
    whole = BinlogPosition(FILE, server.at)
    kept.keep(server.opening("orders", b"x" * 2_000_000))
    state = view.state()
    assert state is not None and state.end == whole
    kept.undo()
    again = Server(whole.pos)
    kept.connect(again.track, OPTIONS)
    kept.keep(again.transaction("orders", b"2"))
    assert rows(tmp_path, BinlogPosition(FILE, 4), BinlogPosition(FILE, again.at)) == [b"1", b"2"]
    kept.close()
    assert view.state() is None


def test_a_transaction_that_a_crash_cut_off_is_left_out(tmp_path: Path) -> None:
    server, kept = connected(tmp_path)
    kept.keep(server.transaction("orders", b"1") + server.opening("orders", b"lost"))
    kept.keep(server.rotation("binlog.000002"))
    kept.keep(server.transaction("orders", b"2"))
    end = BinlogPosition("binlog.000002", server.at)
    assert rows(tmp_path, BinlogPosition(FILE, 4), end) == [b"1", b"2"]
    kept.close()


def test_events_of_other_tables_only_advance_the_end(tmp_path: Path, view: RelayView) -> None:
    server, kept = connected(tmp_path)
    kept.keep(server.transaction("orders", b"1"))
    changed = BinlogPosition(FILE, server.at)
    kept.keep(server.transaction("others", b"2"))
    kept.keep(server.placed(query("ALTER TABLE others ADD x INT")))
    state = view.state()
    assert state is not None
    assert state.altered == {}
    assert (state.end, state.changed) == (BinlogPosition(FILE, server.at), {"shop.orders": changed})
    kept.keep(server.placed(query("ALTER TABLE Orders ADD x INT")))
    before, state = state.end, view.state()
    assert state is not None and state.changed == {"shop.orders": BinlogPosition(FILE, server.at)}
    assert state.altered == {"shop.orders": [before]}
    assert rows(tmp_path, BinlogPosition(FILE, 4), state.end) == [b"1"]
    kept.close()


def test_a_range_is_bounded_by_bytes(tmp_path: Path, view: RelayView) -> None:
    server, kept = connected(tmp_path, most_bytes=4_000)
    ends = [BinlogPosition(FILE, 4)]
    for number in range(40):
        kept.keep(server.transaction("orders", b"%02d" % number))
        ends.append(BinlogPosition(FILE, server.at))
    steps, at = [], ends[0]
    while at < ends[-1]:
        after = bounded(view.folder, at, ends[-1], 300)
        steps.append(ends.index(after) - ends.index(at))
        at = after
    assert sum(steps) == 40 and max(steps) < 8 and len(steps) > 5
    assert bounded(view.folder, ends[3], ends[5], 10**9) == ends[5]
    kept.close()


def test_segments_are_dropped_if_unneeded_or_too_large(tmp_path: Path, view: RelayView) -> None:
    server, kept = connected(tmp_path, most_bytes=4_000)
    for number in range(60):
        kept.keep(server.transaction("orders", b"%02d" % number))
    end = BinlogPosition(FILE, server.at)
    starts = [segment.start for segment in segments(tmp_path)]
    assert len(starts) > 6
    drop_old(tmp_path, starts[2], 10**9)
    assert view.begin() == starts[2]
    with pytest.raises(FileNotFoundError, match="begins after"):
        FrameReader(tmp_path, starts[1])
    reader = FrameReader(tmp_path, starts[2])
    frames = reader.up_to(end)
    next(frames)
    drop_old(tmp_path, None, 0)
    assert view.begin() == starts[-1]
    # The file that is open can be read on; the one that should follow is gone.
    with pytest.raises(FileNotFoundError):
        list(frames)
    reader.close()
    kept.close()


def test_a_segment_may_be_dropped_while_a_batch_is_planned(
    tmp_path: Path, view: RelayView, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, kept = connected(tmp_path, most_bytes=4_000)
    ends = [BinlogPosition(FILE, 4)]
    for number in range(60):
        kept.keep(server.transaction("orders", b"%02d" % number))
        ends.append(BinlogPosition(FILE, server.at))
    listed = segments(tmp_path)

    def then_dropped(folder: Path) -> list[Segment]:
        for segment in listed[:3]:
            segment.path.unlink(missing_ok=True)
        return listed

    monkeypatch.setattr(files, "segments", then_dropped)
    assert bounded(view.folder, ends[0], ends[-1], 10**9) == ends[-1]
    within = bounded(view.folder, ends[0], ends[-1], 300)
    assert listed[3].start < within < ends[-1] and within in ends
    kept.close()


def test_a_range_ends_after_a_transaction_of_several_frames(
    tmp_path: Path, view: RelayView
) -> None:
    server, kept = connected(tmp_path, most_bytes=100 << 20)
    ends = [BinlogPosition(FILE, 4)]
    for number in range(3):
        row = b"%d" % number * 700_000
        kept.keep(server.opening("orders", row) + server.placed(event(INSERT, b"orders" + row)))
        kept.keep(server.ending())
        ends.append(BinlogPosition(FILE, server.at))
    assert [bounded(view.folder, end, ends[-1], 10) for end in ends[:-1]] == ends[1:]
    assert len(rows(tmp_path, ends[1], ends[2])) == 2
    kept.close()


def test_a_statement_inside_a_transaction_keeps_the_rows_before_it(tmp_path: Path) -> None:
    """Such as INSERT INTO others SELECT * FROM orders, of a session in statement format."""
    server, kept = connected(tmp_path)
    before = server.transaction("orders", b"0")
    middle = server.at
    opening = server.opening("orders", b"1")
    statement = server.placed(query("INSERT INTO others SELECT * FROM orders"))
    kept.keep(before + opening + statement + server.ending())
    end = BinlogPosition(FILE, server.at)
    assert rows(tmp_path, BinlogPosition(FILE, 4), BinlogPosition(FILE, middle)) == [b"0"]
    assert rows(tmp_path, BinlogPosition(FILE, middle), end) == [b"1"]
    kept.close()
