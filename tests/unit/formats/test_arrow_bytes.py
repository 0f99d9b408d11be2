from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.formats.arrow_bytes import bytes_of, values_of


@given(st.lists(st.none() | st.binary(max_size=4)), st.integers(0, 5), st.integers(0, 9))
def test_values_and_bytes_equal_those_of_arrow(
    values: list[bytes | None], first: int, length: int
) -> None:
    array = pa.array(values, pa.binary()).slice(first, length)
    assert values_of(array) == array.to_pylist()
    assert bytes_of(array) == b"".join(one for one in array.to_pylist() if one is not None)


def test_a_null_over_bytes_is_none() -> None:
    whole = pa.array([b"ab", b"c", b"d"], pa.binary())
    valid = pa.array([True, False, True]).buffers()[1]
    masked = pa.Array.from_buffers(pa.binary(), 3, [valid, *whole.buffers()[1:]])
    assert values_of(masked) == [b"ab", None, b"d"]
    assert bytes_of(masked) == b"abd"
