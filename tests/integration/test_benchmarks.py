"""The benchmarks of tables, of lookups and of the server run; how fast is not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "paimon.py"
QUICK = ("--rows", "2000", "--runs", "1", "--commits", "5", "--pace", "50")


def test_each_figure_is_a_line_with_its_ratio_and_goal() -> None:
    command = [sys.executable, str(SCRIPT), "--json", *QUICK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["name"], one["goal"]) for one in figures] == [
        ("scan", 0.3),
        ("write", 0.3),
        ("commit", 0.33),
    ]
    assert all(one["ratio"] > 0 and one["unit"] for one in figures)


def test_lookups_print_a_line_a_figure() -> None:
    script = SCRIPT.with_name("lookup.py")
    few = ("--orders", "2000", "--members", "60000", "--partial-members", "5000", "--runs", "1")
    command = [sys.executable, str(script), "--json", *few, "--only", "full", "bucket", "partial"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["name"], one["goal"]) for one in figures] == [
        ("full", 0.25),
        ("bucket", 0.15),
        ("partial", 1.0),
    ]
    assert all(one["ratio"] > 0 and one["pipeline_s"] for one in figures)


@pytest.mark.timeout(480)
def test_promptness_prints_a_line_a_kind_of_table() -> None:
    script = SCRIPT.with_name("promptness.py")
    few = ("--seconds", "2", "--aside", "0", "--rows", "20", "--only", "lookup", "first-row")
    command = [sys.executable, str(script), "--json", *few]
    done = subprocess.run(command, capture_output=True, text=True, timeout=450)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["name"], one["goal"]) for one in figures] == [
        ("lookup", 1.0),
        ("first-row", 1.0),
    ]
    assert all(one["ratio"] > 0 and one["rows"] > 0 and not one["missing"] for one in figures)


def test_many_readers_of_a_server_get_every_change_once() -> None:
    script = SCRIPT.with_name("serve.py")
    command = [sys.executable, str(script), "--json", "--clients", "50", "--seconds", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    figures = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert [*figures] == ["every_change", "delay_p99", "server_memory", "rows_read_once"]
    assert all(one["goal"] == 1.0 and one["unit"] for one in figures.values())
    # How fast is not looked at; that nothing is lost, and nothing read for each reader, is.
    assert figures["every_change"]["ratio"] == 1.0
    assert figures["rows_read_once"]["ratio"] >= 1.0
