"""Batches that a thread reads ahead: their order, errors, and the end of the thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamhouse.arrow_batches import read_ahead


class Source:
    """Ten batches of one row; `broken` fails after the third. It records its threads."""

    def __init__(self, broken: bool = False) -> None:
        self._broken = broken
        self.threads: list[threading.Thread] = []
        self.closed_by: threading.Thread | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(10):
                if self._broken and number == 3:
                    raise ValueError("the file is gone")
                self.threads.append(threading.current_thread())
                yield pa.record_batch({"n": [number]})
        finally:
            self.closed_by = threading.current_thread()


def numbers(batches: Iterator[pa.RecordBatch], count: int = 99) -> list[int]:
    found = []
    for batch in batches:
        found += batch.column(0).to_pylist()
        if len(found) == count:
            break
    return found


def test_batches_keep_their_order_and_are_read_by_one_thread() -> None:
    source = Source()
    assert numbers(read_ahead(source.read)) == list(range(10))
    assert set(source.threads) == {source.closed_by}
    assert source.closed_by is not threading.current_thread()


def test_several_iterators_are_read_at_once() -> None:
    sources = [Source(), Source(), Source()]
    found = numbers(read_ahead(*(source.read for source in sources)))
    assert sorted(found) == sorted([*range(10)] * 3)
    assert len({source.closed_by for source in sources}) == 3
    with pytest.raises(ValueError, match="the file is gone"):
        numbers(read_ahead(Source().read, Source(broken=True).read))


def test_an_error_is_raised_after_the_batches_before_it() -> None:
    batches = read_ahead(Source(broken=True).read)
    found = [next(batches).column(0)[0].as_py() for _ in range(3)]
    with pytest.raises(ValueError, match="the file is gone"):
        next(batches)
    assert found == [0, 1, 2]


def test_a_reader_that_stops_early_ends_the_thread() -> None:
    source = Source()
    batches = read_ahead(source.read)
    assert numbers(batches, 2) == [0, 1]
    batches.close()
    assert source.closed_by is not None and not source.closed_by.is_alive()
    assert len(source.threads) < 10
