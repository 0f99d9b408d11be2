"""Each row is produced once and in order, also while the producer's queue is full."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.connectors.kafka.producing import produce_rows


class Queue:
    """A producer whose queue holds `size` records until there is room again."""

    def __init__(self, size: int) -> None:
        self.size, self.left = size, size
        self.records: list[tuple[Any, ...]] = []
        self.extras: list[dict[str, Any]] = []

    def produce(self, *arguments: Any, **extra: Any) -> None:
        if not self.left:
            raise BufferError
        self.left -= 1
        self.records.append(arguments)
        self.extras.append(extra)

    def make_room(self) -> None:
        self.left = self.size


def delivered(error: object, message: object) -> None:
    raise AssertionError


@given(
    st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary(), st.integers(-1, 3))),
    st.integers(1, 5),
)
def test_a_full_queue_neither_loses_nor_repeats_rows(
    given_rows: list[tuple[bytes | None, bytes | None, int]], size: int
) -> None:
    keys, values, partitions = ([row[part] for row in given_rows] for part in range(3))
    rows = pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    )
    queue = Queue(size)
    produce_rows(queue.produce, "t", rows, partitions, delivered, queue.make_room)  # type: ignore[arg-type]
    expected = [("t", value, key, at, delivered) for key, value, at in given_rows]
    assert queue.records == expected
    assert not any(queue.extras)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_timestamps_and_headers_belong_to_their_rows(size: int) -> None:
    headers = pa.array([[("h", b"1")], None, []], pa.map_(pa.string(), pa.binary()))
    rows = pa.record_batch(
        {
            "value": pa.array([b"a", b"b", b"c"]),
            "timestamp": pa.array([1, 2, None], pa.int64()),
            "headers": headers,
        }
    )
    queue = Queue(size)
    produce_rows(queue.produce, "t", rows, [0, 1, 2], delivered, queue.make_room)
    assert [(record[1], record[3]) for record in queue.records] == [(b"a", 0), (b"b", 1), (b"c", 2)]
    assert queue.extras == [
        {"timestamp": 1, "headers": [("h", b"1")]},
        {"timestamp": 2},
        {"headers": []},
    ]


def test_other_errors_are_raised() -> None:
    def produce(*arguments: Any) -> None:
        raise ValueError("no such topic")

    rows = pa.record_batch({"value": pa.array([b"a"])})
    with pytest.raises(ValueError, match="no such topic"):
        produce_rows(produce, "t", rows, [0], delivered, lambda: None)
