"""The source of a query keeps its offset in the offset of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import DataLossError
from streamhouse.runtime.query_source import (
    check_offset,
    offset_of,
    source_caught_up,
    source_offset,
)
from streamhouse.source import Lag, Offset, Source


class Numbers(Source):
    """A source of the numbers from 1 on; `until` is the last one so far."""

    schema = pa.schema([pa.field("id", pa.int64())])

    def __init__(self, until: int) -> None:
        self.until = until

    def initial_offset(self) -> Offset:
        return {"at": 0}

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        return {"at": self.until}

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        return [(start["at"], end["at"])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        first, last = partition
        yield pa.record_batch([pa.array(range(first + 1, last + 1))], schema=self.schema)

    def lag(self, offset: Offset) -> Lag:
        return Lag(seconds=float(self.until), rows=self.until - offset["at"])


def test_the_offset_of_the_source_is_part_of_that_of_a_batch() -> None:
    source, end = Numbers(3), {"of": "orders", "source": {"at": 3}}
    assert source_offset(end) == offset_of(source, end) == {"at": 3}
    assert source_offset({}) == {} and offset_of(source, {}) == {"at": 0}
    assert source_caught_up(source, {"at": 3}) and not source_caught_up(Numbers(5), {"at": 3})


def test_offsets_of_another_source_are_refused() -> None:
    source = Numbers(3)
    with pytest.raises(DataLossError, match="has read refunds so far.*now reads orders"):
        check_offset(source, "orders", "shop.out", {"of": "refunds", "source": {"at": 1}})
    check_offset(source, "orders", "shop.out", {"of": "orders", "source": {"at": 1}})
    check_offset(source, "orders", "shop.out", {})
