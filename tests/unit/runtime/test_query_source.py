"""The sources of a query keep one offset each in the offset of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import DataLossError
from streamhouse.runtime.query_sources import QuerySources, SourceSplit, source_offsets
from streamhouse.source import Lag, Offset, Source

SCHEMA = pa.schema([pa.field("id", pa.int64())])


class Numbers(Source):
    """A source of the numbers from 1 on; `until` is the last one so far."""

    schema = SCHEMA

    def __init__(self, until: int, counted: bool = True) -> None:
        self.until = until
        self.acknowledged = 0
        self.closed = False
        self.counted = counted

    def rows(self, start: Offset, end: Offset) -> int | None:
        return end["at"] - start["at"] if self.counted else None

    def initial_offset(self) -> Offset:
        return {"at": 0}

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        most = self.until if max_rows is None else start["at"] + max_rows
        return {"at": min(self.until, most)}

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        return [(start["at"], end["at"])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        first, last = partition
        yield pa.record_batch([pa.array(range(first + 1, last + 1))], schema=SCHEMA)

    def committed(self, end: Offset) -> None:
        self.acknowledged = end["at"]

    def lag(self, offset: Offset) -> Lag:
        return Lag(seconds=float(self.until), rows=self.until - offset["at"])

    def close(self) -> None:
        self.closed = True


def of_two(first: Numbers, second: Numbers) -> QuerySources:
    return QuerySources([first, second], ["orders", "payments"], "shop.out")


def test_the_offset_of_one_source_is_recorded_by_itself() -> None:
    inputs = QuerySources([Numbers(3)], ["orders"], "shop.out")
    end = inputs.recorded(inputs.latest(inputs.offsets({})))
    assert end == {"of": "orders", "source": {"at": 3}}
    assert source_offsets(end) == ({"at": 3},)


def test_each_source_is_read_from_its_own_offset() -> None:
    orders, payments = Numbers(3), Numbers(5)
    inputs = of_two(orders, payments)
    first = inputs.recorded(inputs.latest(inputs.offsets({})))
    assert first == {"of": ["orders", "payments"], "source": [{"at": 3}, {"at": 5}]}
    inputs.committed(first)
    assert (orders.acknowledged, payments.acknowledged) == (3, 5)
    assert inputs.caught_up(first)
    payments.until = 7
    assert not inputs.caught_up(first)
    before = inputs.offsets(first)
    after = inputs.latest(before)
    # Nothing is new in the first source.
    assert inputs.splits(before, after, 2) == [SourceSplit(1, (5, 7))]
    assert inputs.rows(before, after) == 2
    inputs.close()
    assert orders.closed and payments.closed


def test_the_most_rows_of_a_batch_are_shared_by_the_sources() -> None:
    inputs = of_two(Numbers(100), Numbers(100))
    assert inputs.latest(inputs.offsets({}), 10) == ({"at": 5}, {"at": 5})
    assert inputs.latest(inputs.offsets({}), 1) == ({"at": 1}, {"at": 1})


def test_the_number_of_rows_is_unknown_if_one_source_does_not_know_it() -> None:
    inputs = of_two(Numbers(3), Numbers(3, counted=False))
    before = inputs.offsets({})
    assert inputs.rows(before, inputs.latest(before)) is None


def test_the_lag_is_the_longest_delay_and_all_unread_rows() -> None:
    inputs = of_two(Numbers(3), Numbers(5))
    assert inputs.lag({}) == Lag(seconds=5.0, rows=8)


@pytest.mark.parametrize("of", ["orders", ["payments", "orders"], ["orders", "refunds"]])
def test_offsets_of_other_sources_are_refused(of: Any) -> None:
    inputs = of_two(Numbers(3), Numbers(5))
    with pytest.raises(DataLossError, match="now reads orders and payments.*--from-scratch"):
        inputs.check({"of": of, "source": [{"at": 1}, {"at": 1}]})
    inputs.check({"of": ["orders", "payments"], "source": [{"at": 1}, {"at": 1}]})
    inputs.check({})
