"""The driver reports to the planner what tasks have preloaded, for one batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamhouse.runtime.streaming.dimensions.versions import report_loaded, reported_loaded

END = {"batch": 7, "coming": {"dim_0": {"snapshot": 3}, "dim_1": {"snapshot": 4}}}


def reports(*loaded: list[str] | None) -> list[dict[str, Any]]:
    return [{"loaded": one} for one in loaded]


@pytest.mark.parametrize(
    ("preloaded", "expected"),
    [
        ([["dim_0", "dim_1"]], ["dim_0", "dim_1"]),
        ([["dim_0", "dim_1"], ["dim_1"]], ["dim_1"]),
        ([["dim_0"], ["dim_1"]], []),
        # A task that joins nothing has nothing to load.
        ([["dim_1"], None], ["dim_1"]),
        ([["dim_0", "dim_1"], []], []),
    ],
)
def test_what_all_tasks_have_loaded(
    tmp_path: Path, preloaded: list[list[str] | None], expected: list[str]
) -> None:
    report_loaded(tmp_path, END, reports(*preloaded))
    assert list(reported_loaded(tmp_path, END)) == expected


def test_it_counts_for_the_batch_after(tmp_path: Path) -> None:
    assert list(reported_loaded(tmp_path, END)) == []
    report_loaded(tmp_path, END, reports(["dim_0"]))
    assert list(reported_loaded(tmp_path, {**END, "batch": 8})) == []
    assert list(reported_loaded(tmp_path, {"batch": 7})) == []
    assert list(reported_loaded(None, END)) == []
    report_loaded(tmp_path, {**END, "batch": 8}, reports([]))
    assert list(reported_loaded(tmp_path, END)) == []
    assert [file.name for file in tmp_path.iterdir()] == ["loaded.json"]


def test_a_run_that_ends_meanwhile_gets_no_report(tmp_path: Path) -> None:
    report_loaded(tmp_path / "gone", END, reports(["dim_0"]))
    report_loaded(tmp_path, {"batch": 7}, reports([]))
    assert list(tmp_path.iterdir()) == []
