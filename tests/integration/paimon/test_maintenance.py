"""Maintenance beside a committing writer, with the real Java core."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import psutil
import pyarrow as pa
import pytest
from tests.integration.paimon.history_writer import write
from tests.java_reads import java_buckets, java_rows
from tests.waiting import DEADLINE_S, until

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance import backpressure
from streamhouse.paimon.maintenance.policy import Pace
from streamhouse.paimon.maintenance.service import Maintenance

QUICK = Pace(
    poll_seconds=0.02,
    background_poll_seconds=0.02,
    first_seconds=0.0,
    compact_seconds=0.2,
    prompt_seconds=0.2,
    append_seconds=0.2,
    expire_seconds=0.2,
    branches_pause=0.0,
)


def test_a_stream_of_commits_stays_small_and_exact(
    lake: Any, java: Sidecar, make_sale: Any
) -> None:
    name = lake.sales()
    maintenance = Maintenance(lake.options, lambda: [name], QUICK)
    maintenance.start()
    try:
        commits = 0
        while commits < 80 or maintenance.counts["compactions"] < 3:
            batch = make_sale(("China", 1, 0.5), ("Chad", 1, 1.0))
            assert lake.commit(name, commits, batch) == 1
            commits += 1
            time.sleep(0.03)
        until(lambda: max(bucket.files for bucket in java_buckets(java, name)) <= 10)
        until(lambda: java_rows(java, f"{name}$manifests").num_rows <= 15)
    finally:
        maintenance.stop()

    assert lake.commit(name, commits - 1, make_sale(("China", 1, 0.5))) == 0
    totals = {row["country"]: row["orders"] for row in java_rows(java, name).to_pylist()}
    assert totals == {"China": commits, "Chad": commits}
    kinds = [kind for _, kind in lake.snapshots(name)]
    assert kinds.count("APPEND") == commits
    assert [i for i, _ in lake.snapshots(name)] == list(range(1, len(kinds) + 1))
    assert maintenance.counts["failures"] == 0


def test_manifests_of_an_append_table_are_merged(lake: Any, java: Sidecar) -> None:
    schema = pa.schema([("order_id", pa.int64())])
    name = lake.create("orders", {"bucket": "-1"}, schema, [])
    for identifier in range(20):
        lake.commit(name, identifier, pa.record_batch([[identifier]], schema=schema))
    maintenance = Maintenance(lake.options, lambda: [name], QUICK)
    maintenance.start()
    try:
        until(lambda: maintenance.counts["merges"] == 1)
        assert maintenance.counts["compactions"] == 0
        for identifier in range(20, 110):
            lake.commit(name, identifier, pa.record_batch([[identifier]], schema=schema))
        until(lambda: maintenance.counts["compactions"] >= 1)
        until(lambda: java_rows(java, f"{name}$manifests").num_rows <= 16)
    finally:
        maintenance.stop()
    assert sorted(row["order_id"] for row in lake.rows(name)) == list(range(110))


def test_lookup_tables_show_their_changelog_at_once(lake: Any, make_sale: Any) -> None:
    name = lake.sales(**{"changelog-producer": "lookup"})
    maintenance = Maintenance(lake.options, lambda: [name], QUICK)
    maintenance.start()
    try:
        for identifier in range(2):
            lake.commit(name, identifier, make_sale(("China", 1, 1.0)))
            until(lambda: lake.snapshots(name)[-1][1] == "COMPACT")
    finally:
        maintenance.stop()
    builder = lake.table(name).new_read_builder().with_include_row_kind(True)
    splits = builder.new_incremental_scan(2, lake.latest(name), "changelog").plan().splits()
    rows = [row for batch in builder.new_read().read(splits) for row in batch.to_pylist()]
    assert [(row["rowkind"], row["orders"]) for row in rows] == [("-U", 1), ("+U", 2)]


def test_writers_that_wait_never_see_a_full_level_0(
    lake: Any, java: Sidecar, make_sale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most_s in ("WAIT_PER_FILE_S", "MAX_WAIT_S", "MAX_TOTAL_WAIT_S"):
        monkeypatch.setattr(backpressure, most_s, DEADLINE_S)
    name = lake.sales(**{"num-sorted-run.compaction-trigger": "3"})
    for identifier in range(4):
        # What an earlier run has left is counted, too.
        lake.commit(name, identifier, make_sale(("China", 1, 0.5)))
    maintenance = Maintenance(lake.options, lambda: [name], QUICK, warm=True)
    maintenance.start()
    most = 0
    try:
        until(lambda: maintenance.counts["compactions"] >= 1)
        for identifier in range(4, 44):
            lake.commit(name, identifier, make_sale(("China", 1, 0.5)))
            maintenance.pressure.added(name, 1)
            most = max(most, *(bucket.level0 for bucket in java_buckets(java, name)))
            maintenance.pressure.wait(name, lambda: False)
    finally:
        maintenance.stop()
    assert 3 <= most <= 6
    assert maintenance.counts["compactions"] >= 6
    assert java_rows(java, name).to_pylist()[0]["orders"] == 44


def test_a_table_is_maintained_once_a_query_writes_it(lake: Any, make_sale: Any) -> None:
    name = lake.sales()
    for identifier in range(6):
        lake.commit(name, identifier, make_sale(("China", 1, 1.0)))
    written: list[str] = []
    maintenance = Maintenance(lake.options, lambda: written, QUICK, reads=lambda: [name])
    maintenance.start()
    try:
        time.sleep(10 * QUICK.poll_seconds)
        assert maintenance.counts["compactions"] == 0
        written.append(name)
        until(lambda: maintenance.counts["compactions"] == 1)
    finally:
        maintenance.stop()


class _Stuck(Sidecar):
    """A sidecar in which the compaction of one table takes as long as the test wants."""

    def __init__(self, options: Any, table: str) -> None:
        super().__init__(options)
        self.stuck = table
        self.begun, self.end = threading.Event(), threading.Event()

    def compact(self, table: str, full: bool = False, *rest: Any, **more: Any) -> bool:
        if table == self.stuck:
            self.begun.set()
            assert self.end.wait(DEADLINE_S)
        return super().compact(table, full, *rest, **more)


def test_a_long_job_holds_up_no_table_whose_readers_wait(lake: Any, make_sale: Any) -> None:
    big = lake.sales("big", **{"full-compaction.delta-commits": "1"})
    prompt = [lake.sales(f"prompt{i}", **{"changelog-producer": "lookup"}) for i in range(3)]
    lake.commit(big, 0, make_sale(("China", 1, 1.0)))
    sidecar = _Stuck(lake.options, big)
    maintenance = Maintenance(lake.options, lambda: [big, *prompt], QUICK, sidecar)
    maintenance.start()
    try:
        assert sidecar.begun.wait(DEADLINE_S)
        for identifier in range(2):
            for name in prompt:
                lake.commit(name, identifier, make_sale(("China", 1, 1.0)))
            for name in prompt:
                until(lambda name=name: lake.snapshots(name)[-1][1] == "COMPACT")  # type: ignore[misc]
        assert lake.latest(big) == 1
        sidecar.end.set()
        until(lambda: lake.latest(big) == 2)
    finally:
        sidecar.end.set()
        maintenance.stop()
    assert maintenance.counts["failures"] == 0


def test_old_snapshots_go_once_that_is_allowed(lake: Any, make_sale: Any) -> None:
    few = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"}
    name = lake.sales(**few)
    for identifier in range(9):
        lake.commit(name, identifier, make_sale(("China", 1, 1.0)))
    allowed = threading.Event()
    maintenance = Maintenance(lake.options, lambda: [name], QUICK, may_expire=allowed.is_set)
    maintenance.start()
    try:
        until(lambda: maintenance.counts["compactions"] >= 1)
        assert len(lake.snapshots(name)) >= 9 and maintenance.counts["expired"] == 0
        allowed.set()
        until(lambda: len(lake.snapshot_ids(name)) == 3)
    finally:
        maintenance.stop()
    assert lake.rows(name) == [{"country": "China", "orders": 9, "revenue": 9.0}]
    assert lake.commit(name, 8, make_sale(("China", 1, 1.0))) == 0


def test_idle_tables_are_left_alone(lake: Any, make_sale: Any) -> None:
    name = lake.sales(**{"changelog-producer": "full-compaction"})
    lake.commit(name, 0, make_sale(("China", 1, 1.0)))
    maintenance = Maintenance(lake.options, lambda: [name], QUICK)
    maintenance.start()
    try:
        until(lambda: maintenance.counts["compactions"] == 1)
        time.sleep(0.6)
        assert lake.latest(name) == 2
        assert maintenance.counts["compactions"] == 1
    finally:
        maintenance.stop()


def test_a_failing_table_is_logged_and_others_go_on(
    lake: Any, make_sale: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = lake.sales()
    for identifier in range(6):
        lake.commit(name, identifier, make_sale(("China", 1, 1.0)))
    maintenance = Maintenance(lake.options, lambda: ["shop.gone", name], QUICK)
    with caplog.at_level(logging.INFO, "streamhouse.maintenance"):
        maintenance.start()
        try:
            until(lambda: maintenance.counts["compactions"] == 1)
            until(lambda: maintenance.counts["failures"] >= 2)
        finally:
            maintenance.stop()
    assert "table 'shop.gone'" in caplog.text
    assert "retry in 1 s" in caplog.text
    assert "retry in 2 s" in caplog.text


def test_a_killed_sidecar_is_started_again(
    lake: Any, make_sale: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = lake.sales()
    maintenance = Maintenance(lake.options, lambda: [name], QUICK)
    maintenance.start()
    try:
        for identifier in range(6):
            lake.commit(name, identifier, make_sale(("China", 1, 1.0)))
        until(lambda: maintenance.counts["compactions"] == 1)
        assert maintenance.pid is not None
        first = psutil.Process(maintenance.pid)
        first.kill()
        for identifier in range(6, 12):
            lake.commit(name, identifier, make_sale(("China", 1, 1.0)))
        until(lambda: maintenance.counts["compactions"] == 2)
        assert maintenance.pid not in (None, first.pid)
    finally:
        maintenance.stop()
    assert maintenance.pid is None
    # Of the connections that broke with the JVM, py4j has a stack trace each.
    assert {record.name.partition(".")[0] for record in caplog.records} <= {"streamhouse"}
    assert lake.rows(name) == [{"country": "China", "orders": 12, "revenue": 12.0}]


def test_one_commit_is_no_reason_to_start_a_jvm(lake: Any, make_sale: Any) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 1.0)))
    maintenance = Maintenance(lake.options, lambda: [name], QUICK)
    maintenance.start()
    until(lambda: maintenance.pressure.files(name) == 1)
    time.sleep(0.5)
    assert (maintenance.busy, maintenance.pid) == (0, None)
    maintenance.stop()


def test_starting_twice_is_an_error_and_a_stop_ends_all(lake: Any) -> None:
    maintenance = Maintenance(lake.options, lambda: [])
    maintenance.start()
    with pytest.raises(StreamhouseError, match="already running"):
        maintenance.start()
    maintenance.stop()
    maintenance.stop()
    maintenance.start()
    maintenance.stop()


def test_maintenance_covers_a_written_branch_and_its_table(lake: Any, java: Sidecar) -> None:
    name = lake.sales(**{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    branch = f"{name}$branch_trial"
    row = {"country": "China", "orders": 1, "revenue": 0.5}
    write(lake.options, name, "a", 0, [("+I", row)])
    java.call(name, lambda _, table: table.createTag("start", 1))
    java.call(name, lambda _, table: table.createBranch("trial", "start"))
    java.call(branch, lambda _, table: table.deleteTag("start"))
    maintenance = Maintenance(lake.options, lambda: [branch], QUICK)
    maintenance.start()
    try:
        for batch in range(12):
            write(lake.options, branch, "b", batch, [("+I", row)])
        until(lambda: maintenance.counts["compactions"] >= 1)
        until(lambda: max(bucket.level0 for bucket in java_buckets(java, branch)) <= 5)
        until(lambda: len(lake.snapshot_ids(branch)) == 2)
    finally:
        maintenance.stop()
    assert maintenance.counts["failures"] == 0
    assert java_rows(java, branch).to_pylist() == [{**row, "orders": 13, "revenue": 6.5}]
    # The first file was the table's before it was the branch's, which needs it no more.
    assert java_rows(java, name).to_pylist() == [row] == lake.rows(name)
    assert [one for one, _ in lake.snapshots(name)] == [1]
