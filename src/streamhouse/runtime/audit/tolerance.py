"""Equality of the values of a view: floating-point sums depend on the order of addition."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

ABSOLUTE = 0.005
_RELATIVE = 1e-12


def equal(a: Any, b: Any) -> bool:
    """Whether two values are equal; finite floats also if they differ by `ABSOLUTE` or 1 in 10^12.

    NaN equals NaN.
    """
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a):
            return math.isnan(b)
        return math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=ABSOLUTE)
    return bool(a == b)


def differs_sql(kind: pa.DataType, a: str, b: str) -> str:
    """A DuckDB condition over two columns of a type: whether their values are not `equal`."""
    if not pa.types.is_floating(kind):
        return f"{a} IS DISTINCT FROM {b}"
    # DuckDB's NaN equals NaN and is greater than infinity.
    close = f"abs({a} - {b}) <= greatest({ABSOLUTE}, {_RELATIVE} * greatest(abs({a}), abs({b})))"
    finite = f"isfinite({a}) AND isfinite({b})"
    return f"({a} IS DISTINCT FROM {b} AND NOT coalesce({finite} AND {close}, false))"
