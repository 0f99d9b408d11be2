"""Records that the Kinesis Producer Library has packed into one record."""

from __future__ import annotations

import pytest
from tests.kinesis_records import AggregatedRecord

from streamhouse.connectors.kinesis.rows import deaggregated

HALF = 2**127
LOWER, UPPER = range(HALF), range(HALF, 2 * HALF)


def test_aggregated_records_are_unpacked() -> None:
    aggregated = AggregatedRecord()
    for data in (b"one", b"", b"three"):
        aggregated.add(data)
    packed = aggregated.packed()
    assert deaggregated(packed) == [(1, b"one"), (2, b""), (3, b"three")]
    assert deaggregated(packed[:-1] + b"x") is None
    assert deaggregated(b'{"a": 1}') is None


@pytest.mark.parametrize(("keys", "expected"), [(LOWER, [1, 3]), (UPPER, [2, 4])])
def test_records_of_another_shard_are_left_out(keys: range, expected: list[int]) -> None:
    # The MD5 digest of "a" begins with 0x0c, that of "b" with 0x92.
    aggregated = AggregatedRecord()
    aggregated.add(b"first", partition_key="a")
    aggregated.add(b"second", partition_key="b")
    aggregated.add(b"third", str(HALF - 1), partition_key="b")
    aggregated.add(b"fourth", str(HALF), partition_key="a")
    found = deaggregated(aggregated.packed(), keys)
    assert found is not None
    assert [index for index, _ in found] == expected
