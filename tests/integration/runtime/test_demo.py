"""The demo as a new user runs it, without a terminal, and with a kill."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.runtime.demo_runs import run_demo

KEYS = {
    "orders",
    "matched",
    "unmatched",
    "equal",
    "merge_ok",
    "freshness_ms",
    "restarts",
    "sidecar_kills",
    "recovery_s",
    "peak_rss_mb",
    "proved_from_snapshot",
    "minutes",
}


def demo(
    folder: Path, *arguments: str, timeout: float = 600, spark: bool = True
) -> dict[str, object]:
    result, _ = run_demo(folder, *arguments, timeout=timeout, spark=spark)
    page = {"page"} if "--page" in arguments else set()
    assert set(result) == KEYS | page | ({"produced"} if "kafka" in arguments else set())
    return result


@pytest.mark.parametrize("spark", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_demo_has_the_expected_sums_after_a_kill(
    installed_demo: Installed, tmp_path: Path, spark: bool
) -> None:
    installed_demo(tmp_path / "mariadb")
    rate = ("--seconds", "2", "--orders-per-second", "400", "--kill-every", "1")
    result = demo(tmp_path, *rate, "--page", spark=spark)
    assert str(result["page"]).startswith("http://127.0.0.1:")
    assert result["equal"] is True
    assert result["merge_ok"] is True
    assert result["unmatched"] == 0
    assert result["orders"] == result["matched"]
    assert isinstance(result["orders"], int) and result["orders"] > 1_000
    assert isinstance(result["restarts"], int) and result["restarts"] >= 1
    assert isinstance(result["peak_rss_mb"], int) and result["peak_rss_mb"] > 200


@pytest.mark.soak
def test_orders_from_kafka_come_out_even_over_a_kill(tmp_path: Path) -> None:
    rate = ("--seconds", "10", "--orders-per-second", "400", "--kill-every", "4")
    result = demo(tmp_path, *rate, "--orders", "kafka")
    assert result["equal"] is True
    assert result["unmatched"] == 0
    assert result["orders"] == result["matched"] == result["produced"]


@pytest.mark.soak
def test_two_minutes_of_freshness(tmp_path: Path) -> None:
    result = demo(tmp_path, "--seconds", "120", timeout=400)
    freshness = result["freshness_ms"]
    assert isinstance(freshness, dict)
    assert (freshness["p50"] < 1_500, freshness["p99"] < 4_000, result["equal"]) == (True,) * 3


@pytest.mark.soak
def test_twenty_kills(tmp_path: Path) -> None:
    result = demo(tmp_path, "--seconds", "420", "--kill-every", "8", timeout=900)
    assert result["equal"] is True
    assert isinstance(result["restarts"], int) and result["restarts"] >= 20
