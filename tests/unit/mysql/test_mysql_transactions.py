"""Transactions from hand-made binlog bytes, as MySQL and MariaDB write them."""

from __future__ import annotations

import random
import tempfile
import uuid
from collections.abc import Sequence
from unittest.mock import Mock, patch

import pytest
from tests.unit.mysql.test_mysql_events import (
    BEGIN,
    COMMIT,
    INSERT,
    PREPARED,
    event,
    gtid,
    prepared,
    query,
)

from streamhouse.connectors.mysql_cdc.binlog.change_decoder import names_of
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    FORMAT,
    HEADER,
    INCIDENT,
    MARIADB_GTID,
    MYSQL_GTID,
    ROWS,
    TABLE_MAP,
    TAGGED_GTID,
    XID,
    PositionTracker,
)
from streamhouse.connectors.mysql_cdc.binlog.gtids import gtid_list, gtid_of, previous_gtids
from streamhouse.connectors.mysql_cdc.binlog.transaction_buffer import TransactionBuffer
from streamhouse.connectors.mysql_cdc.binlog.transactions import Committed, Transactions
from streamhouse.errors import DataLossError
from streamhouse.mysql.gtids import known_gtids, owned_gtids, parse_gtids
from streamhouse.mysql.position import BinlogIdentity, BinlogPosition

ORIGIN = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START = BinlogPosition("binlog.000001", 4)
DONE = event(XID, bytes(8))
MAP = event(TABLE_MAP, b"table." + b"\0\0" + names_of("shop", "orders") + b"columns")
OTHER = event(TABLE_MAP, b"others" + b"\0\0" + names_of("shop", "others") + b"columns")


def row(text: str, table: bytes = b"table.") -> bytes:
    return event(INSERT, table + text.encode())


def mysql_gtid(number: int) -> bytes:
    body = b"\1" + uuid.UUID(ORIGIN).bytes + number.to_bytes(8, "little") + bytes(17)
    return event(MYSQL_GTID, body)


def placed(events: Sequence[bytes]) -> bytes:
    """The events in one block, each with its end position."""
    at, block = START.pos, b""
    for one in events:
        at += len(one)
        block += one[:13] + at.to_bytes(4, "little") + one[17:]
    return block


def selects(kind: int, data: bytes, at: int, end: int) -> bool:
    return kind == TABLE_MAP and b"orders" in data[at:end]


def rows_in(group: TransactionBuffer | None) -> list[str]:
    assert group is not None
    return [
        data[at + HEADER.size + 6 : end].decode()
        for kind, data, at, end, _ in group.events()
        if kind in ROWS
    ]


def committed(*events: bytes, made: Transactions | None = None) -> list[Committed]:
    made = made or Transactions(PositionTracker(START, True), selects, "MySQL")
    block, at, found = placed(events), 0, []
    while at < len(block):
        at, one = made.advance(block, at)
        found += [] if one is None else [one]
    return found


def rows(*events: bytes, made: Transactions | None = None) -> list[list[str]]:
    return [rows_in(one.group) for one in committed(*events, made=made)]


XA = ["XA START X'31',X'',1", "XA END X'31',X'',1", "XA COMMIT X'31',X'',1"]
ROLLBACK_XA = query("XA ROLLBACK X'31',X'',1")


def test_other_tables_and_empty_transactions_are_left_out() -> None:
    begin = mysql_gtid(1)
    assert rows(
        begin, BEGIN, MAP, row("a"), OTHER, row("b", b"others"), row("c"), DONE,
        begin, BEGIN, OTHER, row("d", b"others"), DONE,
    ) == [["a", "c"]]  # fmt: skip


@pytest.mark.parametrize(
    "start", [[mysql_gtid(1), query(XA[0])], [query(XA[0])], [gtid(False)]],
    ids=["MySQL", "without GTID", "MariaDB"],
)  # fmt: skip
def test_xa(start: list[bytes]) -> None:
    group = [*start, MAP, row("a"), query(XA[1]), PREPARED]
    plain = [mysql_gtid(2), BEGIN, MAP, row("b"), DONE]
    commit, rollback = [mysql_gtid(3), query(XA[2])], [mysql_gtid(3), ROLLBACK_XA]
    assert rows(*group, *plain, *commit) == [["b"], ["a"]]
    assert rows(*group, *plain, *rollback) == [["b"]]
    assert rows(*group, *rollback, *group, *commit) == [["a"]]
    one_phase = [*group[:-1], prepared(one_phase=True)]
    assert rows(*one_phase, *plain) == [["a"], ["b"]]


def test_mysql_logs_an_unprepared_xa_rollback_in_its_group() -> None:
    group = [mysql_gtid(1), query(XA[0]), MAP, row("a"), query(XA[1]), ROLLBACK_XA]
    assert rows(*group, mysql_gtid(2), BEGIN, MAP, row("b"), DONE) == [["b"]]


def test_what_was_prepared_earlier_is_named() -> None:
    known = BinlogPosition("binlog.000001", 400)
    made = Transactions(PositionTracker(START, True), selects, "MySQL", prepared={"1:31:": known})
    assert committed(gtid(True), query(XA[2]), made=made) == [Committed(None, "1:31:", known)]
    assert committed(gtid(True), ROLLBACK_XA)[0].rolled_back
    assert committed(gtid(True), query(XA[2])) == [Committed(None, "1:31:", None)]


def test_savepoints() -> None:
    assert rows(
        mysql_gtid(1), BEGIN, query("SAVEPOINT `a`"), MAP, row("1"), query("SAVEPOINT B"),
        row("2"), query("ROLLBACK TO `b`"), row("3"), query('SAVEPOINT "c"'), row("4"),
        query("ROLLBACK WORK TO SAVEPOINT B"), row("5"), DONE,
        mysql_gtid(2), BEGIN, MAP, query("SAVEPOINT savepoint"), row("6"),
        query("ROLLBACK TO savepoint"), row("7"), query("ROLLBACK"),
    ) == [["1", "5"]]  # fmt: skip


@pytest.mark.parametrize("names", [("é", "e"), ("a", "b")])
def test_an_unclear_savepoint_is_data_loss(names: tuple[str, str]) -> None:
    with pytest.raises(DataLossError, match=r"binlog.000001:\d+: .* an unclear savepoint"):
        rows(
            mysql_gtid(1), BEGIN, MAP, query(f"SAVEPOINT `{names[0]}`"), row("1"),
            query(f"ROLLBACK TO `{names[1]}`"), DONE,
        )  # fmt: skip


@pytest.mark.parametrize("first", [MAP, row("1")])
def test_a_start_inside_a_transaction_is_data_loss(first: bytes) -> None:
    with pytest.raises(DataLossError, match="is inside a transaction"):
        rows(first, DONE)


def test_changes_that_the_server_could_not_log_are_data_loss() -> None:
    with pytest.raises(DataLossError, match="lacks changes at .*INCIDENT"):
        rows(event(INCIDENT, b"\1\0"))


def test_another_binlog_is_data_loss() -> None:
    made = Transactions(PositionTracker(START, True), selects, "MySQL", BinlogIdentity(0, 1))
    with pytest.raises(DataLossError, match="created 1970-01-01 00:00:01 UTC by the server.* id 1"):
        committed(event(FORMAT, bytes(60) + b"\1"), made=made)


def test_transactions_of_a_set_are_left_out() -> None:
    wanted = parse_gtids(f"{ORIGIN.upper()}:1-7:9-10")
    made = Transactions(PositionTracker(START, True), selects, "MySQL", skipped=wanted)
    groups = [[mysql_gtid(n), BEGIN, MAP, row(str(n)), DONE] for n in range(6, 12)]
    assert rows(*sum(groups, []), made=made) == [["8"], ["11"]]


def test_a_large_group_is_the_same_from_the_disk() -> None:
    for most in (10, 100, 10_000):
        group = TransactionBuffer(most)
        kept: list[str] = []
        for number in range(100):
            if number == 40:
                group.savepoint("a")
            if number == 80:
                group.rollback_to("a")
                del kept[40:]
            raw = row(str(number))
            group.add(INSERT, raw, 0, len(raw) - 4, number)
            kept.append(str(number))
        assert rows_in(group) == rows_in(group) == kept
        assert group.memory_bytes <= max(most, len(raw))
        group.close()


def test_a_group_beside_a_large_one_takes_no_file() -> None:
    """Small groups share the block of events that was received with a large one."""
    opened = Mock(wraps=tempfile.TemporaryFile)
    block = row("1") + bytes(100)
    with patch.object(tempfile, "TemporaryFile", opened):
        group = TransactionBuffer(most_bytes=50)
        group.add(INSERT, block, 0, len(row("1")) - 4, 1)
        assert rows_in(group) == ["1"]
        opened.assert_not_called()
        group.add(INSERT, row("2"), 0, len(row("2")) - 4, 2)
        assert rows_in(group) == ["1", "2"]
        opened.assert_called_once()
        group.close()


def test_sets_of_gtids() -> None:
    text = f"{ORIGIN}:9-10:1-7:8"
    assert str(parse_gtids(text)) == f"{ORIGIN}:1-10"
    assert str(parse_gtids(f"{ORIGIN}:1-7:9-10,\n{ORIGIN}:20")) == f"{ORIGIN}:1-7:9-10:20"
    assert str(parse_gtids("0-1-7,5-2-8, 0-3-9")) == "0-3-9,5-2-8"
    holes = parse_gtids(f"{ORIGIN}:1-7:9-10")
    assert [number for number in range(12) if not holes.contains(ORIGIN, number)] == [0, 8, 11]
    assert parse_gtids(f"{ORIGIN}:1-10").includes(holes)
    assert not holes.includes(parse_gtids(f"{ORIGIN}:7-9"))
    assert not holes.includes(parse_gtids(f"{'a' * 8}-{ORIGIN[9:]}:1"))
    for wrong in (
        "",
        "1-7",
        f"{ORIGIN}",
        f"{ORIGIN}:7-1",
        f"{ORIGIN}:1:tag",
        f"{ORIGIN}:t-g:1",
        "0-1",
    ):
        with pytest.raises(ValueError, match="is not a set of GTIDs"):
            parse_gtids(wrong)


def test_gtids_in_events() -> None:
    assert gtid_of(MYSQL_GTID, mysql_gtid(77), 0) == (ORIGIN, 77)
    body = (9).to_bytes(8, "little") + (5).to_bytes(4, "little") + bytes(7)
    assert gtid_of(MARIADB_GTID, event(MARIADB_GTID, body), 0) == ("5", 9)
    entry = b"".join(number.to_bytes(size, "little") for number, size in [(5, 4), (1, 4), (9, 8)])
    listed = gtid_list(event(163, (1).to_bytes(4, "little") + entry), 0)
    assert str(listed) == "5-1-9"
    numbers = [1, 2, 1, 8, 9, 11]
    words = [number.to_bytes(8, "little") for number in numbers]
    previous = event(35, words[0] + uuid.UUID(ORIGIN).bytes + b"".join(words[1:]))
    assert str(previous_gtids(previous, 0)) == f"{ORIGIN}:1-7:9-10"


SERVER = "30cf96be-e8d5-11f1-9411-02fc00000001"
_TAGGED = "02{}00000002603d035902f902a103550322c50351022204f103000000020{}08100a"


@pytest.mark.parametrize(
    ("size", "rest", "tag", "number"),
    [
        ("74", "4040608626c7565", "blue", 1),
        ("70", "40406045f39", "_9", 1),
        ("76", "44106" + "0608626c7565", "blue", 200),
        ("78", "4031711" + "0608626c7565", "blue", 70_000),
        ("7c", "40f807c814a" + "0608626c7565", "blue", 5_000_000_000),
        ("84", "4ff0000000000000080" + "0608626c7565", "blue", 2**62),
    ],
)
def test_tagged_gtids_in_events(size: str, rest: str, tag: str, number: int) -> None:
    """As MySQL 9.7 logs them."""
    logged = event(TAGGED_GTID, bytes.fromhex(_TAGGED.format(size, rest)))
    assert gtid_of(TAGGED_GTID, logged, 0) == (f"{SERVER}:{tag}", number)


def test_a_tagged_gtid_of_another_form_is_data_loss() -> None:
    logged = event(TAGGED_GTID, bytes.fromhex("027400000604"))
    with pytest.raises(DataLossError, match="tagged GTID of a form that is not known"):
        gtid_of(TAGGED_GTID, logged, 0)


def test_sets_of_tagged_gtids() -> None:
    text = f"{SERVER}:1-5:_9:1:Blue:1:200:70000"
    wanted = parse_gtids(text)
    assert str(wanted) == f"{SERVER}:1-5,{SERVER}:_9:1,{SERVER}:blue:1:200:70000"
    assert parse_gtids(str(wanted)) == wanted
    assert wanted.contains(f"{SERVER}:blue", 200) and not wanted.contains(SERVER, 200)
    origin = SERVER.replace("-", "")
    logged = (
        f"0103000000000001{origin}000100000000000000010000000000000006000000000000{'00'}"
        f"{origin}045f390100000000000000010000000000000002000000000000{'00'}"
        f"{origin}0862"
        "6c75650300000000000000010000000000000002000000000000"
        "00c800000000000000c90000000000000070110100000000007111010000000000"
    )
    assert previous_gtids(event(35, bytes.fromhex(logged)), 0) == wanted


def test_statements_by_themselves_are_transactions() -> None:
    made = Transactions(PositionTracker(START, True), lambda *event: True, "MySQL")
    found = committed(
        mysql_gtid(1), query("CREATE TABLE t (id INT)"), mysql_gtid(2), BEGIN, COMMIT,
        gtid(True), query("DROP TABLE t"), made=made,
    )  # fmt: skip
    assert len(found) == 2


def test_gtids_that_transactions_own() -> None:
    one, other = (f"3e11fa47-71ca-11e1-9e33-c80aa942956{digit}" for digit in "23")
    assert owned_gtids("") == set()
    assert owned_gtids(f"{one}:23#4:25#7#8:blue:1#3,\n{other}:7#1") == {
        f"{one}:23#4", f"{one}:25#7#8", f"{one}:blue:1#3", f"{other}:7#1",
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_set_with_one_transaction_after_another(seed: int) -> None:
    """Also in another order than their numbers, on MySQL, and from an empty set."""
    chance = random.Random(seed)
    other = ORIGIN.replace("1", "2")
    numbers = [(chance.choice([ORIGIN, other]), chance.randrange(1, 30)) for _ in range(40)]
    found = known_gtids("", mariadb=False)
    assert found is not None and known_gtids(None, mariadb=False) is None
    for count, (origin, number) in enumerate(numbers, 1):
        found = found.with_one(origin, number, 0)
        assert found == parse_gtids(",".join(f"{one}:{n}" for one, n in numbers[:count]))
    last = known_gtids("0-1-7", mariadb=True)
    assert last is not None
    assert str(last.with_one("0", 8, 3).with_one("5", 1, 2)) == "0-3-8,5-2-1"
