"""The connector's options and offsets, without a server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.errors import OptionError
from streamhouse.mysql.options import KNOWN, parse
from streamhouse.mysql.position import (
    NO_BINLOG_STATE,
    BinlogIdentity,
    BinlogPosition,
    BinlogState,
    Skip,
)

BASE = {
    "hostname": "db",
    "username": "u",
    "password": "s3cret",
    "database-name": "shop",
    "table-name": "customers",
}

OFFSET = "scan.startup.specific-offset"
SPECIFIC = {"scan.startup.mode": "specific-offset"}


def test_the_defaults() -> None:
    options = parse(BASE)
    assert (options.port, options.chunk_size, options.startup_mode) == (3306, 8096, "initial")
    assert options.connect_timeout_ms == 30_000 and options.tls.mode == "preferred"
    assert "s3cret" not in repr(options)


def test_a_server_id_is_taken_from_the_range() -> None:
    options = parse(BASE | {"server-id": "5400-5402"})
    assert {options.server_id() for _ in range(100)} == {5400, 5401, 5402}
    assert parse(BASE | {"server-id": "7"}).server_id() == 7


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"hostnam": "x"}, "unknown option 'hostnam'; did you mean 'hostname'"),
        ({"port": "x"}, "'port': 'x' is not a whole number"),
        ({"server-id": "9-5"}, "such as '5400-5408'"),
        ({"server-time-zone": "Mars/Base"}, "'Mars/Base' is not a time zone"),
        ({"scan.startup.mode": "timestamp"}, "needs 'scan.startup.timestamp-millis'"),
        ({"scan.startup.timestamp-millis": "1"}, "needs 'scan.startup.mode' = 'timestamp'"),
        ({"scan.startup.specific-offset.skip-rows": "1"}, "needs 'scan.startup.mode'"),
        (SPECIFIC | {f"{OFFSET}.gtid-set": "1-7"}, "'1-7' is not a set of GTIDs; write one such"),
        (SPECIFIC | {f"{OFFSET}.gtid-set": "0-1-2", f"{OFFSET}.pos": "4"}, "leave out one of"),
        ({"scan.startup.mode": "newest"}, "is not one of initial, snapshot"),
        ({"scan.startup.mode": "specific-offset"}, "specific-offset.file' is missing"),
        ({"scan.startup.specific-offset.pos": "4"}, "needs 'scan.startup.mode'"),
        ({"scan.incremental.snapshot.chunk.size": "0"}, "is too small"),
        ({"connect.timeout": "soon"}, "is not a duration"),
        ({"jdbc.properties.useSSL": "maybe"}, "neither 'true' nor 'false'"),
    ],
)
def test_a_wrong_option_is_an_error(extra: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(BASE | extra)


def test_each_required_option_is_checked() -> None:
    assert set(BASE) < KNOWN
    for key in BASE:
        with pytest.raises(OptionError, match=f"option '{key}' is missing"):
            parse({name: value for name, value in BASE.items() if name != key})


def test_positions_are_ordered_by_number() -> None:
    assert BinlogPosition("binlog.999999", 900) < BinlogPosition("binlog.1000000", 4)
    assert BinlogPosition("b.000002", 4) > BinlogPosition("b.000001", 10_000)


# The first offset makes the adapter of its type.
@given(
    st.integers(4, 2**32),
    st.none() | st.lists(st.integers() | st.text(), min_size=1, max_size=3),
    st.booleans(),
)
def test_an_offset_survives_json(pos: int, key: list[int | str] | None, whole: bool) -> None:
    position = BinlogPosition("binlog.000007", pos)
    snapshot = {} if whole else {"1": None if key is None else tuple(key)}
    known = BinlogState(
        BinlogIdentity(1_700_000_000, 7),
        {"1:7831:": BinlogPosition("binlog.000006", 4)},
        Skip(
            "0-1-5", BinlogPosition("binlog.000007", 9), BinlogPosition("binlog.000007", 8), None, 3
        ),
    )
    for one in (NO_BINLOG_STATE, known):
        progress = DatabaseProgress(1, position, one, snapshot, rows=dict.fromkeys(snapshot, 7))
        again = json.loads(json.dumps(progress.to_offset()))
        assert DatabaseProgress.from_offset(again) == progress
