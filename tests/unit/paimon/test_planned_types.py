"""A column that was widened since a query was planned has the type of the plan."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamhouse.errors import SchemaChangeError
from streamhouse.paimon.schema.evolution import with_planned_types
from streamhouse.source import ROW_KIND

PLANNED = pa.schema([("v", pa.int32()), ("f", pa.float32()), ("n", pa.int32())])


def widened(v: float, f: float, n: int) -> pa.RecordBatch:
    wide = [pa.array([v], pa.float64()), pa.array([f], pa.float64()), pa.array([n], pa.int64())]
    return pa.record_batch([*wide, pa.array(["+I"])], names=["w", "f", "n", ROW_KIND])


def test_values_of_the_old_type_have_it_again() -> None:
    rows = with_planned_types(widened(5.0, 0.5, 1 << 40), PLANNED)
    assert rows.schema.names == ["w", "f", "n", ROW_KIND]
    # Wide whole numbers are the same in every expression.
    assert rows.schema.types == [pa.int32(), pa.float32(), pa.int64(), pa.string()]
    assert rows.to_pylist() == [{"w": 5, "f": 0.5, "n": 1 << 40, ROW_KIND: "+I"}]


@pytest.mark.parametrize("row", [(5.5, 0.5, 1), (1e12, 0.5, 1), (5.0, 0.1, 1)])
def test_a_value_that_only_the_wider_type_holds_is_an_error(row: tuple[float, float, int]) -> None:
    with pytest.raises(SchemaChangeError, match="has a value that does not fit"):
        with_planned_types(widened(*row), PLANNED)
