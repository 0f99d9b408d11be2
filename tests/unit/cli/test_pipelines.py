"""`streamhouse pipelines`: what runs in a warehouse."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamhouse.cli.commands.pipelines import lag_text
from streamhouse.cli.main import build
from streamhouse.runtime.monitoring.process import own
from streamhouse.runtime.monitoring.status import QueryStatus, Status, Statuses
from streamhouse.source import Lag


def run(*arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(build(["pipelines"]), ["pipelines", *arguments])
    return ended.exit_code, ended.output


@pytest.fixture
def lake(tmp_path: Path) -> str:
    statuses = Statuses({"warehouse": str(tmp_path)})
    now = time.time_ns() // 1_000_000
    query = QueryStatus(
        name="d.t", target="d.t", sources=("d.s",), rows_per_second=1234.5, rows=99_000,
        batches=12, last_batch_ms=now, took_ms=250.0, lag=Lag(0.25, snapshots=1),
    )  # fmt: skip
    status = Status("revenue", "running", own(), now, now, queries=(query,))
    statuses.write(status)
    statuses.write(replace(status, name="old", state="failed", error="the table [a] is gone"))
    return str(tmp_path)


def test_pipelines_are_listed_with_state_and_progress(lake: str) -> None:
    code, output = run("--warehouse", lake)
    assert code == 0
    running = next(line for line in output.splitlines() if "revenue" in line)
    for word in ("running", "d.t", "1,234", "0.2 s", "12", "250 ms"):
        assert word in running
    failed = next(line for line in output.splitlines() if "old" in line)
    assert "failed" in failed and "the table [a] is gone" in failed and " 0 " in failed


def test_json_has_all_details(lake: str) -> None:
    code, output = run("--warehouse", lake, "--json")
    assert code == 0
    old, revenue = json.loads(output)["pipelines"]
    assert (old["name"], old["state"], revenue["state"]) == ("old", "failed", "running")
    (query,) = revenue["queries"]
    assert query["lag"] == {"seconds": 0.25, "rows": None, "snapshots": 1, "bytes": None} | {
        "waiting_rows": None
    }
    assert old["queries"][0]["lag"] is None and old["queries"][0]["rows_per_second"] == 0
    assert revenue["started"].endswith("Z") and revenue["startable"] is False


def test_an_empty_list_says_how_to_start_a_pipeline(tmp_path: Path) -> None:
    code, output = run("--warehouse", str(tmp_path))
    assert code == 0 and "streamhouse run" in output
    assert run("--warehouse", str(tmp_path), "--json")[1].strip() == '{"pipelines": []}'
    code, output = run("--warehouse", str(tmp_path / "none"))
    assert code == 1 and "there is no warehouse" in output


@pytest.mark.parametrize(
    ("lag", "words"),
    [
        (None, ""),
        (Lag(), ""),
        (Lag(seconds=61.04, rows=5), "61.0 s"),
        (Lag(rows=1_000), "1,000 rows"),
        (Lag(snapshots=0), "0 snapshots"),
        (Lag(bytes=7), "7 bytes"),
    ],
)
def test_the_text_of_a_lag(lag: Lag | None, words: str) -> None:
    assert lag_text(None if lag is None else vars(lag)) == words


def test_ended_pipelines_can_be_forgotten(lake: str) -> None:
    code, output = run("--warehouse", lake, "--forget", "old", "--json")
    assert code == 0 and "pipeline 'old' is forgotten" in output
    reported = next(line for line in output.splitlines() if line.startswith("{"))
    (left,) = json.loads(reported)["pipelines"]
    assert left["name"] == "revenue"
    code, output = run("--warehouse", lake, "--forget", "revenue")
    assert code == 1 and "'revenue' is running; stop it first" in output
    code, output = run("--warehouse", lake, "--forget", "revenu")
    assert code == 1 and "did you mean 'revenue'?" in output
