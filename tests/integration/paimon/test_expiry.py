"""Snapshots expire by the table's options, but never those that a reader needs."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.paimon.conftest import Lake, sale
from tests.java_reads import java_rows
from tests.waiting import DEADLINE_S

from streamhouse.errors import DataLossError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.java import sidecar as sidecar_module
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.java.unfinished_compactions import remove_leftovers
from streamhouse.paimon.maintenance.expiry import expire, is_due
from streamhouse.paimon.read.table import Table

FEW = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "snapshot.time-retained": "1 h",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Sidecar]]:
    """One lake and one sidecar for all tests here; each makes a table of its own."""
    lake = Lake(tmp_path_factory.mktemp("expiry") / "lake")
    with Sidecar(lake.options) as sidecar:
        yield lake, sidecar


def made(lake: Lake, name: str, commits: int, **options: str) -> Table:
    """A table of summed sales, with so many commits of one order each."""
    full = lake.sales(name, **{**FEW, **options})
    for identifier in range(commits):
        assert lake.commit(full, identifier, sale(("China", 1, 0.5))) == 1
    return Warehouse(lake.options).table(full)


def orders(table: Table, snapshot: int | None = None) -> int:
    return sum(n for b in table.read(["orders"], snapshot=snapshot) for n in b[0].to_pylist())


def test_snapshots_go_by_the_options(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    table = made(lake, "plain", 6)
    assert java.compact(table.identifier, full=True)
    before = orders(table)
    files = {path.name for path in Path(table.location).rglob("bucket-*/*")}

    assert is_due(table)
    assert expire(java, table) == 5
    assert not is_due(table)
    assert expire(java, table) == 0

    assert (table.earliest_snapshot_id(), table.latest_snapshot_id()) == (6, 7)
    assert orders(table) == before == 6
    assert java_rows(java, table.identifier).to_pylist() == lake.rows(table.identifier)
    assert {path.name for path in Path(table.location).rglob("bucket-*/*")} == files
    with pytest.raises(DataLossError, match="snapshot 3 is gone, 6 to 7 are left"):
        orders(table, snapshot=3)


def test_nothing_expires_too_early(
    shared: tuple[Lake, Sidecar], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, java = shared
    kept = {"snapshot.num-retained.max": "100", "snapshot.time-retained": "1 h"}
    table = made(lake, "young", 4, **kept)
    assert not is_due(table)
    assert expire(java, table) == 0
    assert not table.snapshots.names_earliest()
    monkeypatch.setattr("streamhouse.paimon.maintenance.expiry._MANY_SNAPSHOTS", 4)
    assert expire(java, table) == 0
    assert table.earliest_snapshot_id() == 1
    assert table.snapshots.names_earliest(), "no look for it lists the snapshots any more"


def test_a_consumer_a_tag_and_a_branch_keep_what_they_need(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    table = made(lake, "needed", 8)
    lake.catalog.get_table(table.identifier).create_tag("third", 3)
    java.call(table.identifier, lambda jvm, java_table: java_table.createBranch("side", "third"))
    Consumers(table).hold("somebody", 6)
    assert java.compact(table.identifier, full=True)

    assert expire(java, table) == 5
    assert table.earliest_snapshot_id() == 6
    assert orders(table, snapshot=6) == 6
    tagged = table.copy({"scan.tag-name": "third"})
    assert orders(tagged) == 3
    assert java_rows(java, f"{table.identifier}$branch_side").num_rows == 1

    Consumers(table).hold("somebody", 8)
    assert expire(java, table) == 2
    Consumers(table).drop("somebody")
    assert expire(java, table) == 0
    assert orders(tagged) == 3
    assert orders(table) == 8


def test_a_replay_is_recognised_after_everything_else_has_expired(
    shared: tuple[Lake, Sidecar],
) -> None:
    lake, java = shared
    table = made(lake, "replayed", 0, **{"snapshot.num-retained.max": "1"})
    name = table.identifier
    for identifier in range(3):
        # Held at what is the newest before the batch, as queries do.
        Consumers(table).hold(query_consumer("u"), lake.latest(name))
        assert lake.commit(name, identifier, sale(("China", 1, 0.5))) == 1
    for identifier in range(5):
        assert lake.commit(name, identifier, sale(("Chad", 1, 0.5)), user="other") == 1
    expire(java, table)
    assert lake.commit(name, 2, sale(("China", 1, 0.5))) == 0
    assert orders(table) == 8

    # The rule is needed: without the consumer the batch would be counted twice.
    Consumers(table).drop(query_consumer("u"))
    assert expire(java, table) > 0
    assert lake.commit(name, 2, sale(("China", 1, 0.5))) == 1


def test_consumers_of_dead_queries_are_dropped(
    shared: tuple[Lake, Sidecar], tmp_path: Path
) -> None:
    lake, java = shared
    table = made(lake, "dead", 5)
    consumers = Consumers(table)
    living = tmp_path / "pipeline" / "living"
    living.mkdir(parents=True)
    (living / "metadata").write_text('{"id": "a"}')
    consumers.hold("streamhouse-a", 4, living)
    consumers.hold("streamhouse-gone", 1, tmp_path / "pipeline" / "gone")
    consumers.hold("streamhouse-elsewhere", 2, tmp_path / "unmounted" / "pipeline" / "far")
    consumers.hold("streamhouse-old", 1)
    path = Path(table.location) / "consumer"
    week_ago = time.time() - 8 * 24 * 3600
    os.utime(path / "consumer-streamhouse-old", (week_ago, week_ago))
    os.utime(path / "consumer-streamhouse-a")

    assert consumers.drop_expired() == ["streamhouse-gone", "streamhouse-old"]
    assert expire(java, table) == 1
    assert [one.id for one in consumers.all()] == ["streamhouse-a", "streamhouse-elsewhere"]
    seen = java_rows(java, f"{table.identifier}$consumers").to_pylist()
    assert sorted(row["next_snapshot_id"] for row in seen) == [2, 4]


def test_consumers_of_readers_expire_by_the_option(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    table = made(lake, "readers", 5, **{"consumer.expiration-time": "1 h"})
    Consumers(table).hold("slow", 1)
    Consumers(table).hold("live", 4)
    path = Path(table.location) / "consumer/consumer-slow"
    long_ago = time.time() - 7200
    os.utime(path, (long_ago, long_ago))
    assert expire(java, table) == 3
    assert [one.id for one in Consumers(table).all()] == ["live"]


def test_a_consumer_never_moves_back(shared: tuple[Lake, Sidecar]) -> None:
    lake, _ = shared
    consumers = Consumers(made(lake, "monotone", 1))
    assert consumers.hold("x", 0) == 1
    assert consumers.hold("x", 7) == 7
    assert consumers.hold("x", 3) == 7
    found = consumers.get("x")
    assert found is not None and found.next_snapshot == 7


def test_old_partitions_are_dropped_by_a_user_of_its_own(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    schema = pa.schema([pa.field("day", pa.string()), pa.field("id", pa.int64())])
    options = {
        "bucket": "-1",
        "partition.expiration-time": "7 d",
        "partition.timestamp-formatter": "yyyy-MM-dd",
    }
    name = lake.create("days", options, schema, [], ["day"])
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    lake.commit(name, 0, pa.record_batch([["2020-01-01", today], [1, 2]], schema=schema))
    table = Warehouse(lake.options).table(name)
    expire(java, table)
    assert [row["id"] for row in lake.rows(name)] == [2]
    last = table.snapshot(2)
    assert (last.commit_user, last.commit_kind) == ("streamhouse-expiry", "OVERWRITE")
    expire(java, table)
    assert table.latest_snapshot_id() == 2


def test_tags_are_made_and_dropped_by_the_options(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    tagging = {
        "tag.automatic-creation": "process-time",
        "tag.creation-period": "hourly",
        "tag.num-retained-max": "3",
    }
    table = made(lake, "tagged", 1, **tagging)
    expire(java, table)
    assert len(table.rust.list_tags()) == 1
    java.call(table.identifier, _short_tag)
    assert {tag.name() for tag in table.rust.list_tags()} > {"short"}
    time.sleep(0.05)
    expire(java, table)
    assert "short" not in {tag.name() for tag in table.rust.list_tags()}


def _short_tag(jvm: Any, table: Any) -> None:
    table.createTag("short", 1, jvm.java.time.Duration.ofMillis(1))


_KILLED = """
import os, signal, sys
from streamhouse.paimon.java import sidecar as sidecar_module
from streamhouse.paimon.java.sidecar import Sidecar
sidecar = Sidecar({"warehouse": sys.argv[1]})
def die(*arguments):
    os.kill(sidecar.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
sidecar_module._commit = die
sidecar.compact("shop.killed", full=True)
"""


def test_files_of_a_killed_compaction_are_removed(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    table = made(lake, "killed", 3)
    written = {path.name for path in Path(table.location).rglob("bucket-*/*")}
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(lake.folder)], timeout=DEADLINE_S)
    assert ended.returncode == -9
    left = {path.name for path in Path(table.location).rglob("bucket-*/*")} - written
    assert len(left) == 1 and left.pop().startswith("compact-")

    assert java.compact(table.identifier, full=True)
    live = {path.name for split in Path(table.location).rglob("compact-*") for path in [split]}
    assert len(live) == 2
    assert remove_leftovers(java, table, 3600) == 1
    assert remove_leftovers(java, table, 3600) == 0
    assert orders(table) == 3
    assert java_rows(java, table.identifier).to_pylist() == lake.rows(table.identifier)
    assert not list(Path(table.location).glob(".compaction-*"))


@pytest.mark.parametrize(
    ("name", "commits", "options"),
    [("alive", 3, {}), ("upgraded", 1, {"changelog-producer": "lookup"})],
    ids=["rewritten", "moved to another level, with a changelog"],
)
def test_files_of_a_compaction_that_runs_or_was_committed_stay(
    shared: tuple[Lake, Sidecar],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    commits: int,
    options: dict[str, str],
) -> None:
    lake, java = shared
    table = made(lake, name, commits, **options)
    commit = sidecar_module._commit

    def looked_at(*arguments: Any) -> bool:
        assert remove_leftovers(java, table, 3600) == 0
        assert commit(*arguments)
        raise RuntimeError("killed after the commit")

    monkeypatch.setattr(sidecar_module, "_commit", looked_at)
    with pytest.raises(RuntimeError, match="killed after"):
        java.compact(table.identifier, full=True)
    assert list(Path(table.location).glob(".compaction-*"))
    written = set(Path(table.location).rglob("compact-*"))
    assert written
    assert remove_leftovers(java, table, 3600) == 0
    assert set(Path(table.location).rglob("compact-*")) == written
    assert not list(Path(table.location).glob(".compaction-*"))
    assert orders(table) == commits
