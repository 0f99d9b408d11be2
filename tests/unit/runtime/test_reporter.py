"""A running script writes its status, and never waits for it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.clock import Clock

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.maintenance.service import Maintenance
from streamhouse.runtime.monitoring.metrics import CountedBatch, QueryMetrics
from streamhouse.runtime.monitoring.process import Process, own
from streamhouse.runtime.monitoring.reporter import AT_LEAST_EVERY_S, EVERY_S, Reporter
from streamhouse.runtime.monitoring.status import Status, Statuses
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.source import Lag


@dataclass
class OneQuery:
    """A query that tells what it is given."""

    address: TableAddress
    pipeline: str = "p"
    target: str = "d.t"
    metrics: QueryMetrics = field(default_factory=QueryMetrics)
    behind: Lag | None = None
    asked: int = 0
    checkpoint: Path = Path("d.t")

    @property
    def description(self) -> QueryDescription:
        return QueryDescription(
            self.pipeline,
            self.target,
            self.target,
            self.address,
            self.checkpoint,
            ("c", "d", "s"),
            looks_up=("d.k",),
        )

    @property
    def progress(self) -> Any:
        return self

    def lag(self) -> Lag | None:
        self.asked += 1
        if self.behind is None:
            raise StreamhouseError("the table is gone")
        return self.behind


@dataclass
class MaintenancePolicy:
    """Maintenance that tells what it is given."""

    busy: int
    failures: int
    last_error: tuple[float, str] | None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"warehouse": str(tmp_path)}


@pytest.fixture
def query(options: dict[str, str]) -> OneQuery:
    return OneQuery(TableAddress(options, "d.t"))


@pytest.fixture
def other() -> Iterator[Process]:
    """A process that lives."""
    program = [sys.executable, "-c", "input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        found = Process.of(process.pid)
        assert found is not None
        yield found
        process.kill()


def reported(options: dict[str, str], name: str = "p") -> Status:
    found = Statuses(options).read(name)
    assert found is not None
    return found


def test_it_reports_its_queries(options: dict[str, str], query: OneQuery, clock: Clock) -> None:
    reporter = Reporter("SELECT 1", restarts=2, clock=clock)
    reporter.begin([query], tuple)
    first = reported(options)
    assert (first.name, first.state, first.restarts) == ("p", "running", 2)
    assert first.process == own()
    assert Statuses(options).masked_script("p") == "SELECT 1"
    query.metrics.count_batch(CountedBatch(100), 0.25)
    query.behind = Lag(seconds=1.23456, snapshots=2)
    clock.now += EVERY_S
    reporter.step()
    assert reported(options).queries[0].batches == 1
    query.metrics.count_batch(CountedBatch(100), 0.5)
    reporter.step()
    assert reported(options).queries[0].batches == 1, "told twice within a short time"
    clock.now += EVERY_S
    reporter.step()
    (found,) = reported(options).queries
    assert (found.name, found.target, found.sources, found.lookups) == (
        "d.t", "d.t", ("d.s",), ("d.k",),
    )  # fmt: skip
    assert (found.batches, found.rows, found.took_ms) == (2, 200, 500)
    assert found.rows_per_second > 0 and found.last_batch_ms is not None
    assert found.lag == Lag(seconds=1.23, snapshots=2)


def test_an_unchanged_status_is_written_rarely(
    options: dict[str, str], query: OneQuery, clock: Clock, tmp_path: Path
) -> None:
    reporter = Reporter("", clock=clock)
    reporter.begin([query], tuple)
    file = tmp_path / ".pipelines/p/status.json"
    before = file.stat().st_ino
    clock.now += EVERY_S
    reporter.step()
    assert file.stat().st_ino == before
    clock.now += AT_LEAST_EVERY_S
    reporter.step()
    assert file.stat().st_ino != before


def test_of_many_queries_a_few_are_updated_each_time(options: dict[str, str], clock: Clock) -> None:
    address = TableAddress(options, "d.t")
    queries = [OneQuery(address, target=f"d.t{n}", behind=Lag(seconds=n)) for n in range(10)]
    reporter = Reporter("", clock=clock)
    reporter.begin(queries, tuple)
    for _ in range(5):
        clock.now += EVERY_S
        reporter.step()
    assert [query.asked for query in queries] == [2] * 10
    assert [one.lag for one in reported(options).queries] == [Lag(seconds=n) for n in range(10)]


def test_an_error_is_reported_without_secrets(
    options: dict[str, str], query: OneQuery, clock: Clock
) -> None:
    reporter = Reporter("", clock=clock)
    reporter.begin([query], tuple)
    reporter.failed("refused: password=hidden", "d.t")
    reporter.close()
    found = reported(options)
    assert (found.state, found.error) == ("failed", "refused: password=***")
    assert found.queries[0].last_error == found.error
    assert found.ended_ms is not None and found.error_ms is not None


def test_a_successful_end_is_reported(
    options: dict[str, str], query: OneQuery, clock: Clock
) -> None:
    reporter = Reporter("", clock=clock)
    reporter.begin([query], tuple)
    query.metrics.count_batch(CountedBatch(7), 0.1)
    reporter.close()
    found = reported(options)
    assert (found.state, found.error, found.queries[0].rows) == ("stopped", None, 7)


def test_maintenance_is_reported(options: dict[str, str], query: OneQuery, clock: Clock) -> None:
    policies = [
        MaintenancePolicy(1, 2, (5.0, "old")),
        MaintenancePolicy(3, 4, (6.0, "token: hidden")),
    ]
    reporter = Reporter("", clock=clock)
    reporter.begin([query], lambda: cast(list[Maintenance], policies))
    found = reported(options).maintenance
    assert found is not None
    assert (found.busy, found.failures) == (4, 6)
    assert (found.last_error, found.last_error_ms) == ("token: ***", 6_000)


def test_a_restarted_process_keeps_its_error(
    options: dict[str, str], query: OneQuery, clock: Clock
) -> None:
    reporter = Reporter("", clock=clock)
    reporter.begin([query], tuple)
    reporter.restarting("Spark's JVM has died")
    before = reported(options)
    assert (before.state, before.error) == ("running", "Spark's JVM has died")
    # It is the same process, and so is its number.
    Reporter("", restarts=1, clock=clock).begin([query], tuple)
    after = reported(options)
    assert (after.error, after.error_ms, after.restarts) == (before.error, before.error_ms, 1)
    assert after.began_ms == before.began_ms


def test_a_second_script_of_one_name_gets_another_name(
    options: dict[str, str], query: OneQuery, clock: Clock, other: Process
) -> None:
    now = time.time_ns() // 1_000_000
    Statuses(options).write(Status("p", "running", other, now, now))
    Reporter("", clock=clock).begin([query], tuple)
    assert reported(options).process == other
    assert reported(options, "p-2").process == own()


def test_a_requested_name_is_not_changed(
    options: dict[str, str], query: OneQuery, clock: Clock, other: Process
) -> None:
    now = time.time_ns() // 1_000_000
    Statuses(options).write(Status("n", "running", other, now, now))
    reporter = Reporter("", "n", clock=clock)
    with pytest.raises(StreamhouseError, match=f"'n' is already running \\(process {other.pid}"):
        reporter.announce(options)
    reporter.failed("it is taken")
    assert reported(options, "n").state == "running"
    named = Reporter("", "m", clock=clock)
    named.announce(options)
    assert (reported(options, "m").state, reported(options, "m").queries) == ("running", ())
    named.begin([query], tuple)
    assert [one.name for one in reported(options, "m").queries] == ["d.t"]
    assert Statuses(options).names() == ["m", "n"]


def test_a_script_of_definitions_has_no_status(
    options: dict[str, str], clock: Clock, tmp_path: Path
) -> None:
    reporter = Reporter("", clock=clock)
    reporter.announce(options)
    reporter.step()
    reporter.close()
    assert list(tmp_path.iterdir()) == []


def test_one_place_however_its_warehouse_is_written(
    tmp_path: Path, query: OneQuery, clock: Clock
) -> None:
    again = TableAddress({"warehouse": f"file://{tmp_path}", "s3.region": "x"}, "d.u")
    reporter = Reporter("", clock=clock)
    reporter.begin([query, OneQuery(again, target="d.u")], tuple)
    assert [one.name for one in reported({"warehouse": str(tmp_path)}).queries] == ["d.t", "d.u"]


def test_a_folder_that_cannot_be_written_holds_nothing_up(
    options: dict[str, str], query: OneQuery, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / ".pipelines").write_text("in the way")
    reporter = Reporter("", clock=clock)
    reporter.begin([query], tuple)
    clock.now += EVERY_S
    reporter.step()
    reporter.failed("x")
    assert (tmp_path / ".pipelines").read_text() == "in the way"


def test_a_status_is_one_line_of_json(
    options: dict[str, str], query: OneQuery, clock: Clock, tmp_path: Path
) -> None:
    Reporter("", clock=clock).begin([query], tuple)
    text = (tmp_path / ".pipelines/p/status.json").read_text()
    assert json.loads(text)["queries"][0]["sources"] == ["d.s"]
