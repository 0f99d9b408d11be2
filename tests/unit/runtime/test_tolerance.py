"""How audits and repairs compare floating-point values."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from streamhouse.runtime.audit import view_audit
from streamhouse.runtime.audit.row_differences import deviation, equal

EQUAL = [
    (1.0, 1.004),
    (1e15, 1e15 + 500),
    (math.inf, math.inf),
    (math.nan, math.nan),
]
DIFFERENT = [
    (1.0, 1.006),
    (math.inf, 5.0),
    (5.0, -math.inf),
    (math.inf, -math.inf),
    (math.nan, 5.0),
    (5.0, math.nan),
    (math.inf, math.nan),
]


@pytest.mark.parametrize(("actual", "expected"), EQUAL)
def test_values_within_the_tolerance_areequal(actual: float, expected: float) -> None:
    assert equal(actual, expected)
    assert _wrong_rows(actual, expected) == 0


@pytest.mark.parametrize(("actual", "expected"), DIFFERENT)
def test_other_values_differ(actual: float, expected: float) -> None:
    assert not equal(actual, expected)
    assert _wrong_rows(actual, expected) == 1


def _wrong_rows(actual: float, expected: float) -> int:
    old, new = (pa.table({"k": [1], "total": [value]}) for value in (actual, expected))
    return deviation(old, new, ("k",), [], None).counts[1]


def test_rows_of_a_view_with_nan_differ_by_their_other_values_alone() -> None:
    row = {"x": math.nan, "y": 0.3}
    assert view_audit._equal(row, row | {"y": 0.1 + 0.2})
    assert not view_audit._equal(row, row | {"y": 0.31})
    assert not view_audit._equal(row, row | {"x": 0.0})
