"""The benchmarks of tables, lookups and the server run; no speed is checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def metrics(script: str, *arguments: str) -> list[dict[str, Any]]:
    """What a benchmark prints: one object a figure."""
    command = [sys.executable, str(BENCHMARKS / script), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.soak
@pytest.mark.usefixtures("quick_spark")
def test_each_figure_is_a_line_with_its_ratio_and_goal() -> None:
    quick = ("--rows", "2000", "--runs", "1", "--commits", "5", "--pace", "50")
    found = metrics("paimon.py", *quick)
    assert [(item["name"], item["goal"]) for item in found] == [
        ("scan", 0.3),
        ("write", 0.3),
        ("commit", 0.33),
    ]
    assert all(item["ratio"] > 0 and item["unit"] for item in found)


@pytest.mark.soak
def test_lookups_print_a_line_a_figure() -> None:
    goals = {"partial": 1.0, "full": 0.25, "bucket": 0.15}
    few = ("--orders", "2000", "--members", "60000", "--partial-members", "5000", "--runs", "1")
    found = metrics("lookup.py", *few, "--only", *goals)
    assert {item["name"]: item["goal"] for item in found} == goals
    assert all(item["ratio"] > 0 and item["pipeline_s"] for item in found)


@pytest.mark.soak
def test_upserts_of_mysql_print_a_line() -> None:
    (found,) = metrics("jdbc.py", "--rows", "2000", "--runs", "1")
    assert (found["name"], found["goal"]) == ("jdbc_upsert", 0.8)
    assert found["ratio"] > 0


@pytest.mark.soak
@pytest.mark.usefixtures("quick_spark")
def test_mysql_figures_are_a_line_each() -> None:
    few = ("--rows", "20000", "--changes", "4000", "--seconds", "5", "--tables", "4", "--runs", "1")
    found = metrics("mysql_cdc.py", *few)
    assert [(item["name"], item["goal"]) for item in found] == [
        ("snapshot", 2.5),
        ("catch_up", 3.0),
        ("freshness", 1.0),
        ("sync", 1.0),
    ]
    assert all(item["ratio"] > 0 and item["unit"] for item in found)
    assert all(item.get("server_cpu_s", item.get("server_cores", 0)) > 0 for item in found)
    assert found[1]["rows"] == 4000 and found[2]["changes"] > 0


@pytest.mark.soak
def test_the_snapshot_of_a_skewed_table_is_copied_in_little_memory() -> None:
    (found,) = metrics("mysql_cdc.py", "--only", "memory", "--memory-rows", "400000")
    assert (found["name"], found["goal"]) == ("memory", 1.0)
    assert found["ratio"] >= 1.0


@pytest.mark.soak
def test_inserts_print_a_line_a_way() -> None:
    found = metrics(
        "insert_values.py", "--rows", "300", "--runs", "1", "--only", "parse", "execute"
    )
    assert [(item["name"], item["goal"]) for item in found] == [("parse", 1.0), ("execute", 1.0)]
    assert all(item["ratio"] > 0 and item["unit"] for item in found)


@pytest.mark.soak
def test_promptness_prints_a_line_a_kind_of_table() -> None:
    few = ("--seconds", "2", "--aside", "0", "--rows", "20", "--only", "lookup", "first-row")
    found = metrics("promptness.py", *few)
    assert [(item["name"], item["goal"]) for item in found] == [
        ("lookup", 1.0),
        ("first-row", 1.0),
    ]
    assert all(item["ratio"] > 0 and item["rows"] > 0 and not item["missing"] for item in found)


def test_many_readers_of_a_server_get_every_change_once() -> None:
    found = {
        metric["name"]: metric
        for metric in metrics("serve.py", "--clients", "50", "--seconds", "4")
    }
    assert [*found] == ["every_change", "delay_p99", "server_memory", "rows_read_once"]
    assert all(one["goal"] == 1.0 and one["unit"] for one in found.values())
    # How fast is not looked at; that nothing is lost, and nothing read for each reader, is.
    assert found["every_change"]["ratio"] == 1.0
    assert found["rows_read_once"]["ratio"] >= 1.0


@pytest.mark.soak
@pytest.mark.usefixtures("quick_spark")
def test_a_sync_prints_its_figure() -> None:
    (found,) = metrics("mysql_sync.py", "--tables", "4", "--runs", "1")
    assert (found["name"], found["goal"], found["tables"]) == ("sync", 1.0, 4)
    assert found["ratio"] > 0 and found["freshness_s"] > 0 and found["peak_mb"] > 0


@pytest.mark.soak
def test_a_cluster_prints_a_line_for_each_number_of_executors() -> None:
    found = metrics("cluster.py", "--rows", "20000", "--runs", "1", "--executors", "1", "2")
    assert [(item["name"], item["goal"]) for item in found] == [
        ("cluster_1", 0.7),
        ("cluster_2", 0.7),
    ]
    assert all(item["ratio"] > 0 and item["unit"] and item["sum_is_right"] for item in found)
