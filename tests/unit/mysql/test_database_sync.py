"""The state of a sync: its table sets, offsets and lags, and the relay log that waits."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from streamhouse.connectors.json_records import from_json, to_json
from streamhouse.connectors.mysql_cdc.database import tables_planner
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import (
    DatabaseProgress,
    Stale,
    described_table,
)
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSets
from streamhouse.connectors.mysql_cdc.relay.files import FrameWriter, drop_old, held_bytes, segments
from streamhouse.connectors.mysql_cdc.relay.log import RelayLog
from streamhouse.connectors.mysql_cdc.relay.state import RelayView, UnreadChanges
from streamhouse.errors import TableError
from streamhouse.mysql.position import BinlogIdentity, BinlogPosition, BinlogState
from streamhouse.mysql.table import Server, Size, TableDefinition, check_logged
from streamhouse.mysql.values.types import MySqlColumn
from streamhouse.runtime.sync import planner as planner_module
from streamhouse.runtime.sync.planner import SyncPlanner, progress_of

KEY = MySqlColumn("id", "int", "int(11)", nullable=False)
NOTE = MySqlColumn("note", "varchar", "varchar(9)", charset="utf8mb4", collation="utf8mb4_bin")


def table(number: int, name: str = "t") -> FollowedTable:
    size = Size(10 * number)
    definition = TableDefinition(
        "shop", f"{name}{number}", (KEY, NOTE), (KEY,), "utf8mb4", size=size
    )
    columns = (("id", "INT"), ("note", "VARCHAR(9)"))
    return FollowedTable(str(number), definition, f"ods.t{number}", columns)


def at(pos: int) -> BinlogPosition:
    return BinlogPosition("binlog.000003", pos)


def test_a_table_set_is_never_written_twice(tmp_path: Path) -> None:
    table_sets = TableSets(tmp_path)
    assert table_sets.latest().tables == {}
    first = table_sets.add([table(0), table(1)], "UTC")
    second = table_sets.add([table(1), table(2)], "+08:00")
    again = TableSets(tmp_path)
    assert (again.get(1), again.latest()) == (first, second)
    assert (second.number, second.next_id, second.zone) == (2, 3, "+08:00")
    assert again.get(1).tables["1"] == table(1)
    assert again.latest().by_names()["shop", "t2"].target == "ods.t2"
    again.drop_before(2)
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["2"]


def test_targets_that_a_batch_has_not_read(tmp_path: Path) -> None:
    table_sets = TableSets(tmp_path)
    assert table_sets.unread_since(0) == set()
    table_sets.add([table(0)], "UTC")
    table_sets.add([table(0)], "UTC", ["ods.t0"])
    table_sets.add([table(0), table(1)], "UTC", ["ods.t1"])
    table_sets.add([table(0), table(1)], "UTC")
    again = TableSets(tmp_path)
    assert again.unread_since(1) == {"ods.t0", "ods.t1"}
    assert again.unread_since(2) == {"ods.t1"}
    assert again.unread_since(3) == again.unread_since(4) == set()


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("CSV", "has the storage engine CSV, .* use InnoDB"),
        (None, "cannot be opened by the server"),
    ],
)
def test_a_refused_storage_engine(engine: str | None, reason: str) -> None:
    check_logged("shop.t", "BASE TABLE", "InnoDB")
    with pytest.raises(TableError, match=rf"MySQL table shop\.t {reason}"):
        check_logged("shop.t", "BASE TABLE", engine)


def test_progress_survives_its_offset() -> None:
    known = BinlogState(BinlogIdentity(1_700_000_000, 1), {"x": at(3)})
    snapshot = {"0": None, "1": (7, "a")}
    progress = DatabaseProgress(4, at(120), known, snapshot)
    assert DatabaseProgress.from_offset(progress.to_offset()) == progress
    shards = [table(1), table(2), table(3)]
    definitions = [shards[0].definition, shards[1].definition, None]
    versions = {
        one.id: described_table(one, known) for one, known in zip(shards, definitions, strict=True)
    }
    progress = DatabaseProgress(0, at(120), known, {"3": (7,)}, versions)
    offset = json.loads(json.dumps(progress.to_offset()))
    again = DatabaseProgress.from_offset(offset)
    assert again == progress and again is not None and len(offset["schemas"]) == 2
    assert [again.versions[one.id].definition for one in shards[:2]] == definitions[:2]
    assert again.versions["3"].definition == TableDefinition("shop", "t3")
    progress = DatabaseProgress(4, at(120), known, versions={"1": table(1), "2": table(2)})
    offset = json.loads(json.dumps(progress.to_offset()))
    assert DatabaseProgress.from_offset(offset) == progress and len(offset["schemas"]) == 1
    assert DatabaseProgress.from_offset({}) is None
    whole = DatabaseProgress(4, at(120), BinlogState())
    assert whole.to_offset() == {"table_set": 4, "file": "binlog.000003", "pos": 120}


def has_read_all(table_sets: TableSets, progress: DatabaseProgress) -> bool:
    """Whether a sync that ends with its snapshot has nothing left to read."""
    planner: Any = SyncPlanner.__new__(SyncPlanner)
    planner._table_sets, planner._follower = table_sets, MagicMock()
    planner._follower.compared.return_value = {}
    planner._options = SimpleNamespace(startup_mode="snapshot")
    found: bool = planner.has_read_all(progress.to_offset())
    return found


def test_excluded_tables_have_no_unread_rows(tmp_path: Path) -> None:
    table_sets = TableSets(tmp_path)
    table_sets.add([table(0), table(1)], "UTC")
    done = DatabaseProgress(1, at(10), BinlogState())
    assert has_read_all(table_sets, done)
    table_sets.add([table(0)], "UTC")
    assert has_read_all(table_sets, done)
    for unread, expected in (("0", False), ("1", True)):
        stale = {f"ods.t{unread}": Stale("ALTER TABLE")}
        assert has_read_all(table_sets, replace(done, snapshot={unread: None})) is expected
        assert has_read_all(table_sets, replace(done, stale=stale)) is expected
    table_sets.add([table(0)], "UTC", ["ods.t1"])
    assert has_read_all(table_sets, done)
    table_sets.add([table(0)], "UTC", ["ods.t0"])
    assert not has_read_all(table_sets, done)
    table_sets.add([table(0), table(2)], "UTC")
    assert not has_read_all(table_sets, DatabaseProgress(4, at(10), BinlogState()))


def test_without_a_relay_log_the_end_of_the_binlog_counts(tmp_path: Path) -> None:
    table_sets = TableSets(tmp_path)
    table_sets.add([table(0)], "UTC")
    planner: Any = SyncPlanner.__new__(SyncPlanner)
    planner._table_sets, planner._relay, planner._stop_at = table_sets, None, at(10)
    planner._options = SimpleNamespace(startup_mode="initial")
    moved: list[bool] = []
    planner._moved = lambda progress, view: progress if moved else None
    progress = DatabaseProgress(1, at(10), BinlogState())
    assert planner.has_read_all(progress.to_offset())
    assert not planner.has_read_all(replace(progress, position=at(9)).to_offset())
    moved.append(True)
    assert not planner.has_read_all(progress.to_offset())


def test_lag_is_the_age_of_the_oldest_unread_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, changed = 100.0, dict[str, BinlogPosition]()
    log = SimpleNamespace(state=lambda: SimpleNamespace(changed=changed), silent_s=lambda: 0.0)
    for module in (planner_module, tables_planner):
        monkeypatch.setattr(module, "log_view", lambda folder: log)
    planner: Any = SyncPlanner.__new__(SyncPlanner)
    planner._table_sets, planner._relay = TableSets(tmp_path), None
    planner._tables = (None, {})
    planner._snapshot_rows, planner._changes = Counter(), Counter()
    planner._unread = defaultdict(lambda: UnreadChanges(lambda: now))
    planner._table_sets.add([table(0), table(1)], "UTC")

    def offset(pos: int, **more: Any) -> dict[str, Any]:
        return {"source": DatabaseProgress(1, at(pos), BinlogState(), **more).to_offset()}

    changed |= {"shop.t0": at(10), "shop.t1": at(20)}
    planner.observe(progress_of(offset(10)))
    now = 101.5
    changed |= {"shop.t1": at(30)}
    planner.observe(progress_of(offset(10)))
    assert [state.lag_s for state in planner.states(offset(10))] == [0.0, 1.5]
    now = 102.0
    planner.observe(progress_of(offset(20)))
    planner.count({"0": 5}, {"1": 2})
    states = planner.states(offset(20, snapshot={"0": (3,)}))
    assert [(s.table, s.complete, s.snapshot_rows, s.changes, s.lag_s) for s in states] == [
        ("shop.t0", False, 5, 0, None),
        ("shop.t1", True, 0, 2, 0.5),
    ]
    planner.observe(progress_of(offset(30)))
    planner._table_sets.add([table(0), table(1), table(2)], "UTC")
    states = planner.states(offset(30))
    assert [state.complete for state in states] == [True, True, False]
    assert [state.lag_s for state in states] == [0.0, 0.0, None]


def test_a_complete_relay_log_drops_nothing_that_is_needed(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path, 10)
    writer.begin(at(4))
    for end in (100, 200, 300):
        writer.append(at(end), [b"x" * 50])
        writer.commit(at(end))
    writer.close()
    assert held_bytes(tmp_path) > 150
    drop_old(tmp_path, at(150), None)
    assert [segment.start for segment in segments(tmp_path)] == [at(100), at(200), at(300)]
    drop_old(tmp_path, None, None)
    assert len(segments(tmp_path)) == 3


def test_a_relay_log_follows_more_tables(tmp_path: Path) -> None:
    log = RelayLog(tmp_path, [("shop", "a")], at(4), 1000, Server(True, ""))
    log.follow([("shop", "b")])
    log.close()
    assert set(log.state.changed) == {"shop.a", "shop.b"}
    view = RelayView(tmp_path)
    assert view.state() is None


@pytest.mark.parametrize("name", ["t", "größe`"])
def test_a_table_survives_its_file(tmp_path: Path, name: str) -> None:
    one = table(3, name)
    assert from_json(FollowedTable, to_json(one)) == one
    assert one.writer("UTC").schema.names == ["id", "note"]


def test_another_server_has_other_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = replace(table(0), definition=replace(table(0).definition, hidden_in=(("b.1", 7),)))
    table_sets = TableSets(tmp_path)
    table_sets.add([hidden, table(1)], "UTC")
    planner: Any = SyncPlanner.__new__(SyncPlanner)
    planner._table_sets, planner._tables = table_sets, (None, {})
    planner._binlog, planner._options = None, SimpleNamespace(name="shop")
    monkeypatch.setattr(
        tables_planner, "position_on_other_server", lambda *_: (at(4), BinlogState())
    )
    progress = DatabaseProgress(1, at(10), BinlogState())
    progress = replace(progress, versions={"7": replace(hidden, id="7")})
    moved = planner._moved(progress, None)
    versions = {"0": table(0), "7": replace(table(0), id="7")}
    assert (moved.position, moved.moved, moved.versions) == (at(4), True, versions)
    assert moved.at(hidden) == table(0)
