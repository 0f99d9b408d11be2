"""The distribution of ages agrees with numpy's over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from streamhouse.demo.latency import AgeHistogram


def test_percentiles_equal_those_of_all_values() -> None:
    random = np.random.default_rng(3)
    parts = [random.gamma(2.0, 150.0, size) for size in (1, 700, 12_000)]
    ages = AgeHistogram()
    for part in parts:
        ages.add(part)
    every = np.concatenate(parts)
    metrics = ages.percentiles()
    assert metrics is not None
    assert metrics["p50"] == pytest.approx(np.percentile(every, 50), abs=1.5)
    assert metrics["p99"] == pytest.approx(np.percentile(every, 99), abs=5)
    assert metrics["max"] == round(every.max())


def test_an_empty_histogram_has_no_percentiles() -> None:
    ages = AgeHistogram()
    ages.add(np.array([]))
    assert ages.percentiles() is None


def test_negative_ages_count_as_zero() -> None:
    ages = AgeHistogram()
    ages.add(np.array([-3.0, 0.2]))
    assert ages.percentiles() == {"p50": 0.0, "p99": 0.0, "max": 0.0}
