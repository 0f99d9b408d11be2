"""The Nexmark demo as a new user runs it, without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.runtime.demo_runs import run_demo

KEYS = {"events", "equal", "freshness_ms", "restarts", "sidecar_kills", "recovery_s", "peak_rss_mb",
        "minutes"}  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "kills"),
    [("2", ()), pytest.param("20", ("--kill-every", "6"), marks=pytest.mark.soak)],
)
def test_the_views_are_equal(tmp_path: Path, seconds: str, kills: tuple[str, ...]) -> None:
    arguments = ("nexmark", "--seconds", seconds, "--events-per-second", "500", *kills)
    result, errors = run_demo(tmp_path, *arguments, timeout=600, spark=bool(kills))
    assert set(result) == KEYS
    assert result["equal"] is True, errors
    assert result["events"] > 500
    assert (result["restarts"] >= 1) is bool(kills)
