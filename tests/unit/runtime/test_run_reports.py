"""When a run reports its progress, and its texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.cli.run_output import JsonOutput, TextOutput, progress_text
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.monitoring.metrics import CountedBatch, QueryMetrics
from streamhouse.runtime.monitoring.run_reports import RunReports
from streamhouse.runtime.monitoring.status import QueryStatus
from streamhouse.runtime.query_description import QueryDescription
from streamhouse.runtime.run_output import Outcome, RunOutput
from streamhouse.source import Lag


@dataclass
class Query:
    """A query that has done some rows."""

    target: str
    metrics: QueryMetrics = field(default_factory=QueryMetrics)
    behind: Lag | None = None

    @property
    def description(self) -> QueryDescription:
        address = TableAddress({}, self.target)
        return QueryDescription("p", self.target, self.target, address, Path("c"), ("s",))

    @property
    def progress(self) -> Any:
        return self

    def lag(self) -> Lag | None:
        if self.behind is None:
            raise OSError("no lag")
        return self.behind


class Heard(RunOutput):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, float, Sequence[QueryStatus]]] = []

    def starting(self) -> None:
        self.said.append(("starting", 0, ()))

    def progress(self, seconds: float, queries: Sequence[QueryStatus]) -> None:
        self.said.append(("progress", seconds, queries))

    def ended(self, outcome: Outcome, queries: Sequence[QueryStatus]) -> None:
        self.said.append((outcome, 0, queries))


def test_progress_is_reported_every_ten_seconds_from_the_start_of_the_queries() -> None:
    now = 100.0
    listener = Heard()
    reports = RunReports(listener, clock=lambda: now)
    reports.step()
    reports.starting()
    reports.starting()
    now = 105.0
    query = Query("shop.spending", behind=Lag(seconds=1.0))
    reports.running([query])
    for step in range(250):
        now = 105.0 + step / 10
        reports.step()
    query.metrics.count_batch(CountedBatch(3000), 0.1)
    reports.end("caught up")
    assert [(what, seconds) for what, seconds, _ in listener.said] == [
        ("starting", 0),
        ("progress", 10.0),
        ("progress", 20.0),
        ("caught up", 0),
    ]
    assert listener.said[1][2][0].lag == Lag(seconds=1.0)
    assert listener.said[-1][2][0].rows == 3000


def test_a_script_without_queries_reports_no_end() -> None:
    listener = Heard()
    RunReports(listener).end("caught up")
    assert listener.said == []


def test_an_unknown_lag_does_not_end_the_run() -> None:
    now = 0.0
    listener = Heard()
    reports = RunReports(listener, clock=lambda: now)
    reports.running([Query("t")])
    now = 11.0
    reports.step()
    assert listener.said[0][2][0].lag is None


def _query(target: str, rows: int = 1200, lag: Lag | None = None) -> QueryStatus:
    return QueryStatus(name=target, target=target, rows=rows, rows_per_second=100.0, lag=lag)


@pytest.mark.parametrize(
    ("lag", "words"),
    [
        (None, "100 rows/s"),
        (Lag(seconds=0.25, rows=25), "100 rows/s, 0.2 s behind, 25 rows to read"),
        (Lag(seconds=0.0, rows=0), "100 rows/s, not behind"),
        (Lag(seconds=2.0, snapshots=3), "100 rows/s, 2.0 s behind, 3 snapshots to read"),
        (Lag(waiting_rows=1), "100 rows/s, 1 row visible after a compaction"),
    ],
)
def test_a_few_queries_are_named_with_their_lag(lag: Lag | None, words: str) -> None:
    text = progress_text(10.2, [_query("shop.spending", lag=lag)])
    assert text == f"after 10 s: 1,200 rows into shop.spending ({words})"


def test_many_queries_are_summed_up() -> None:
    queries = [_query(f"shop.t{n}", lag=Lag(seconds=n / 2)) for n in range(5)]
    assert progress_text(20.0, queries) == (
        "after 20 s: 6,000 rows into 5 tables (500 rows/s); "
        "behind: shop.t4 2.0 s, shop.t3 1.5 s, shop.t2 1.0 s"
    )
    queries = [_query(f"shop.t{n}") for n in range(5)]
    assert progress_text(20.0, queries).endswith("; none is behind")


def test_the_end_names_each_target_once(capsys: pytest.CaptureFixture[str]) -> None:
    ended = [_query("shop.a", 2), _query("shop.b", 1), _query("shop.a", 3)]
    TextOutput().ended("caught up", ended)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "caught up: 5 rows into shop.a, 1 row into shop.b\n",
    )
    TextOutput().ended("caught up", [replace(ended[0], bad_records=2, late_rows=1), ended[1]])
    end = "1 row into shop.b; 2 bad records skipped; 1 late row kept aside\n"
    assert capsys.readouterr().err.endswith(end)


def test_json_is_one_object_a_line_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput()
    output.starting()
    output.running(1)
    output.notice("a notice")
    output.progress(10.04, [_query("shop.a", lag=Lag(seconds=0.5, rows=50))])
    rows = pa.table({"k": [1], "at": pa.array([None], pa.timestamp("us"))})
    output.rows(rows.to_reader())
    changed = pa.record_batch({"rowkind": ["-U", "+U"], "k": [1, 2]})
    output.changes(changed)
    output.ended("stopped", [_query("shop.a")])
    output.failed("no")
    captured = capsys.readouterr()
    lag = {"seconds": 0.5, "rows": 50, "snapshots": None, "bytes": None, "waiting_rows": None}
    query = {"name": "shop.a", "target": "shop.a", "rows": 1200, "rows_per_second": 100.0,
             "bad_records": 0, "late_rows": 0}  # fmt: skip
    lines = [json.loads(line) for line in captured.out.splitlines()]
    assert lines[1].pop("took_s") < 5
    assert (captured.err, lines) == (
        "",
        [
            {"event": "starting"},
            {"event": "running", "queries": 1},
            {"event": "notice", "text": "a notice"},
            {"event": "progress", "seconds": 10.0, "queries": [{**query, "lag": lag}]},
            {"event": "row", "row": {"k": 1, "at": None}},
            {"event": "change", "rowkind": "-U", "row": {"k": 1}},
            {"event": "change", "rowkind": "+U", "row": {"k": 2}},
            {"event": "stopped", "rows": {"shop.a": 1200}, "bad_records": 0, "late_rows": 0},
            {"event": "failed", "error": "no"},
        ],
    )
