"""Curves: their definition, and what they are for."""

from __future__ import annotations

import datetime
import decimal
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamhouse.procedures.sorting.space_filling_curves import Curve, hilbert_axes, interleaved


def places(strategy: str, *axes: int) -> dict[int, tuple[int, ...]]:
    """Every point of a grid with `axes` bits each, by its place on the curve."""
    bits = axes[0]
    points = list(itertools.product(range(1 << bits), repeat=len(axes)))
    columns = [np.array(column, dtype=np.uint64) for column in zip(*points, strict=True)]
    if strategy == "hilbert":
        columns = hilbert_axes(columns, bits)
    found = interleaved(columns, bits)
    return dict(zip(found.tolist(), points, strict=True))


def test_z_order_is_the_bits_in_turn() -> None:
    curve = places("zorder", 2, 2)
    assert [curve[place] for place in range(8)] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("axes", [(4, 4), (3, 3, 3), (2, 2, 2, 2)])
def test_a_hilbert_curve_visits_all_points_in_single_steps(axes: tuple[int, ...]) -> None:
    curve = places("hilbert", *axes)
    assert sorted(curve) == list(range(1 << sum(axes)))
    for place in range(len(curve) - 1):
        steps = [abs(a - b) for a, b in zip(curve[place], curve[place + 1], strict=True)]
        assert sum(steps) == 1


def ordered(strategy: str, columns: list[str], rows: pa.Table) -> pa.Table:
    """The rows as the procedure orders them."""
    curve = Curve.of(strategy, columns, rows)
    (batch,) = rows.combine_chunks().to_batches()
    rows = rows.append_column("position", pa.array(curve.positions(batch)))
    keys = [(name, "ascending") for name in ("position", *columns)]
    return rows.take(pc.sort_indices(rows, sort_keys=keys, null_placement="at_start"))


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [3, None, -7, 3, 12]),
    (pa.float64(), [0.5, -1.0, None, 2.25]),
    (pa.string(), ["b", "", None, "a", "ab"]),
    (pa.binary(), [b"b", None, b"\xff", b"a"]),
    (pa.bool_(), [True, None, False]),
    (pa.date32(), [datetime.date(2026, 1, 2), None, datetime.date(1969, 1, 1)]),
    (pa.timestamp("ms"), [datetime.datetime(2026, 1, 2, 3), None, datetime.datetime(2026, 1, 2)]),
    (pa.decimal128(10, 2), [decimal.Decimal("1.50"), None, decimal.Decimal("-2.00")]),
]


@pytest.mark.parametrize("strategy", ["order", "zorder", "hilbert"])
@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda one: str(one)[:12])
def test_one_column_is_sorted_with_nulls_first(
    strategy: str, kind: pa.DataType, values: list[Any]
) -> None:
    rows = pa.table({"a": pa.array(values, kind)})
    found = ordered(strategy, ["a"], rows).column("a").to_pylist()
    nulls = [value for value in values if value is None]
    assert found == nulls + sorted(value for value in values if value is not None)


def test_a_column_without_values_is_no_trouble() -> None:
    rows = pa.table({"a": pa.array([None, None], pa.int64()), "b": pa.array([2, 1])})
    found = ordered("hilbert", ["a", "b"], rows)
    assert found.column("b").to_pylist() == [1, 2]


@pytest.mark.parametrize(("strategy", "most"), [("zorder", 10), ("hilbert", 10), ("order", 17)])
def test_pieces_of_a_curve_are_small_in_both_columns(strategy: str, most: int) -> None:
    """Of 16 files that a grid is cut into, a filter on either column reads about 4."""
    rng = np.random.default_rng(7)
    rows = pa.table({"a": rng.integers(0, 1_000_000_000, 8192), "b": rng.random(8192)})
    done = ordered(strategy, ["a", "b"], rows)
    pieces = [done.slice(start, 512)
              for start in range(0, 8192, 512)]  # fmt: skip
    for name in ("a", "b"):
        middle = np.median(rows.column(name).to_numpy())
        read = 0
        for piece in pieces:
            values = piece.column(name).to_numpy()
            read += int(values.min() <= middle <= values.max())
        assert read < most
