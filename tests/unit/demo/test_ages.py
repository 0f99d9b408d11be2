"""The percentiles of ages agree with numpy's over all of them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from streamhouse.demo.latency import Latencies


def test_percentiles_equal_those_of_all_values() -> None:
    random = np.random.default_rng(3)
    parts = [random.gamma(2.0, 150.0, size) for size in (1, 700, 12_000)]
    ages = Latencies(0, 1)
    for part in parts:
        ages.add(-part, 0)
    every = np.concatenate(parts)
    for metrics in (ages.percentiles(), ages.window()):
        assert metrics is not None
        assert metrics["p50"] == pytest.approx(np.percentile(every, 50), abs=1.5)
        assert metrics["p99"] == pytest.approx(np.percentile(every, 99), abs=5)
        assert metrics["max"] == round(every.max())
    recent = ages.recent()
    assert recent is not None
    assert recent["p50"] == pytest.approx(np.percentile(parts[-1], 50), abs=1.5)


def test_without_ages_there_are_no_percentiles() -> None:
    ages = Latencies(0, 1)
    assert ages.percentiles() is None and ages.window() is None and ages.recent() is None


def test_rows_of_the_first_seconds_count_as_recent_only() -> None:
    ages = Latencies(1.0, 5)
    ages.add(np.array([1000.0, 1999.0]), 3000)
    assert ages.percentiles() is None and ages.recent() is not None
    ages.add(np.array([2000.0]), 3000)
    assert ages.percentiles() == {"p50": 1000.0, "p99": 1000.0, "max": 1000.0}


def test_negative_ages_count_as_zero() -> None:
    ages = Latencies(0, 1)
    ages.add(np.array([3.0, -0.2]), 0)
    assert ages.percentiles() == {"p50": 0.0, "p99": 0.0, "max": 0.0}


def test_what_can_be_read_after_the_end_does_not_count() -> None:
    ages = Latencies(0, 1)
    ages.end()
    ages.add(np.array([0.0]), (time.time() + 60) * 1000)
    assert ages.percentiles() is None and ages.recent() is None
    ages.add(np.array([0.0]), 5)
    assert ages.percentiles() == {"p50": 5.0, "p99": 5.0, "max": 5.0}
