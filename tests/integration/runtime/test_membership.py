"""The membership warehouse as a new user runs it: equal results after a kill and a repair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Installed
from tests.integration.runtime.demo_runs import run_demo

KEYS = {
    "orders",
    "changes",
    "queries",
    "equal",
    "audited",
    "compared",
    "wrong",
    "act_ok",
    "freshness_ms",
    "restarts",
    "sidecar_kills",
    "recovery_s",
    "peak_rss_mb",
    "minutes",
}


def demo(folder: Path, *arguments: str, timeout: float, spark: bool = True) -> dict[str, Any]:
    result, errors = run_demo(folder, "membership", *arguments, timeout=timeout, spark=spark)
    assert set(result) == KEYS
    assert result["wrong"] == [], errors
    assert (result["equal"], result["audited"], result["act_ok"]) == (True, True, True)
    return result


@pytest.mark.parametrize(
    "kills", [(), pytest.param(("--kill-every", "1"), marks=pytest.mark.soak)], ids=["no", "one"]
)
def test_every_figure_is_equal(
    installed_demo: Installed, tmp_path: Path, kills: tuple[str, ...]
) -> None:
    installed_demo(tmp_path / "mariadb")
    rate = ("--changes-per-second", "20", "--seed", "7")
    result = demo(tmp_path, "--seconds", "2", *kills, *rate, timeout=840, spark=bool(kills))
    assert result["queries"] >= 6
    assert (result["restarts"] >= 1) == bool(kills)
    assert result["orders"] > 5_000
    assert result["changes"] > 300
    assert result["compared"] >= 14


@pytest.mark.soak
def test_two_minutes_of_freshness(tmp_path: Path) -> None:
    result = demo(tmp_path, "--seconds", "120", timeout=900)
    assert result["freshness_ms"]["p50"] < 5_000
    assert result["peak_rss_mb"] < 8_192


@pytest.mark.soak
def test_twenty_kills(tmp_path: Path) -> None:
    result = demo(tmp_path, "--seconds", "900", "--kill-every", "12", timeout=2_400)
    assert result["restarts"] >= 20
