"""The lag of a reader of a MySQL table, from its relay log."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.mysql.test_relay_files import FILE, SHOP, connected
from tests.waiting import DEADLINE_S

from streamhouse.connectors.mysql_cdc.database.declared_tables import ONE, DeclaredTablePlanner
from streamhouse.connectors.mysql_cdc.database.discovery import FoundTable
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.relay.state import UnreadChanges
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.mysql.position import NO_BINLOG_STATE, BinlogPosition
from streamhouse.mysql.table import Size, TableDefinition
from streamhouse.source import Lag, SourceState

NAMES = ("shop", "orders")


@pytest.fixture
def source(tmp_path: Path) -> MySqlSource:
    """A source that has a relay log; it would connect to a server if it were made as usual.

    Its one table has 500 rows by the server's estimate.
    """
    definition = TableDefinition(*NAMES, size=Size(500))
    made: Any = MySqlSource.__new__(MySqlSource)
    made._options = SimpleNamespace(name=".".join(SHOP), chunk_size=100, has_snapshot=True)
    planner = made._planner = DeclaredTablePlanner.__new__(DeclaredTablePlanner)
    planner._relay, planner._stop_at, planner._filter = tmp_path, None, None
    planner._options, planner._unread = made._options, defaultdict(UnreadChanges)
    planner.found = {NAMES: FoundTable(NAMES, definition)}
    planner.is_one, planner._tables = True, {NAMES: FollowedTable(ONE, definition)}
    found: MySqlSource = made
    return found


def at(position: int, file: str = FILE, **more: Any) -> dict[str, Any]:
    progress = DatabaseProgress(0, BinlogPosition(file, position), NO_BINLOG_STATE)
    known = {ONE: FollowedTable(ONE, TableDefinition(*NAMES))}
    return {**replace(progress, versions=known).to_offset(), **more}


def test_the_lag_is_the_bytes_up_to_the_last_change_of_the_table(
    source: MySqlSource, tmp_path: Path
) -> None:
    clock = [100.0]
    planner: Any = source._planner
    planner._unread = defaultdict(lambda: UnreadChanges(lambda: clock[0]))
    server, kept = connected(tmp_path)
    kept.keep(server.transaction("orders", b"1"))
    first = server.at
    kept.keep(server.transaction("other", b"x"))
    assert source.lag(at(first)) == Lag(seconds=0.0, bytes=0)
    assert source.lag(at(4)) == Lag(seconds=0.0, bytes=first - 4)
    clock[0] += 3
    kept.keep(server.transaction("orders", b"2"))
    assert source.lag(at(4)) == Lag(seconds=3.0, bytes=server.at - 4)
    clock[0] += 2
    assert source.lag(at(first)) == Lag(seconds=2.0, bytes=server.at - first)
    assert source.lag(at(server.at)) == Lag(seconds=0.0, bytes=0)
    kept.close()


def test_bytes_across_binlog_files_are_unknown(source: MySqlSource, tmp_path: Path) -> None:
    server, kept = connected(tmp_path)
    kept.keep(server.rotation("binlog.000002"))
    kept.keep(server.transaction("orders", b"1"))
    lag = source.lag(at(4))
    assert lag is not None and lag.bytes is None and lag.seconds is not None
    kept.close()


def test_the_lag_is_the_rows_that_are_left_of_the_snapshot(source: MySqlSource) -> None:
    assert source.lag(source.initial_offset()) == Lag(rows=500)
    assert source.lag(source.initial_offset()).state == SourceState(
        snapshotting=True, tables=1, tables_left=1, splits_left=5
    )
    assert source.lag(at(4, snapshot={ONE: [7]}, rows={ONE: 200})) == Lag(rows=300)
    assert source.lag(at(4, snapshot={ONE: [9]}, rows={ONE: 600})) == Lag(rows=0)


def test_the_lag_is_unknown_without_a_log(source: MySqlSource, tmp_path: Path) -> None:
    assert not source.lag(at(4)).known
    connected(tmp_path)[1].close()
    assert not source.lag(at(4)).known
    assert source.lag(at(4)).state == SourceState(
        False, (FILE, 4), tables=1, tables_left=0, splits_left=0
    )


def test_times_are_those_of_the_last_change_of_the_table(
    source: MySqlSource, tmp_path: Path
) -> None:
    server, kept = connected(tmp_path)
    kept.keep(server.transaction("orders", b"1"))
    begun = time.time_ns() // 1_000_000
    kept.keep(server.transaction("orders", b"2"))
    end = server.at
    first = source.lag(at(end)).state
    assert first is not None and first.received_ms is not None
    arrived = first.received_ms
    assert begun <= arrived <= time.time_ns() // 1_000_000
    time.sleep(0.002)
    kept.keep(server.transaction("other", b"x"))
    state = source.lag(at(end)).state
    assert state == SourceState(False, (FILE, end), 1000, arrived, 1, 0, 0)
    kept.close()


@pytest.mark.parametrize("unread", [True, False])
def test_the_lag_grows_while_the_server_sends_nothing(
    source: MySqlSource, tmp_path: Path, unread: bool
) -> None:
    server, kept = connected(tmp_path)
    kept.keep(server.transaction("orders", b"1"))
    position = at(4 if unread else server.at)
    last = time.time() - 40
    os.utime(tmp_path / "state", (last, last))
    lag = source.lag(position)
    assert lag is not None and lag.seconds is not None and 40 <= lag.seconds < 40 + DEADLINE_S
    assert (lag.bytes is None) == (not unread)
    kept.heard()
    lag = source.lag(position)
    assert lag is not None and lag.seconds is not None and lag.seconds < 40
    kept.close()
