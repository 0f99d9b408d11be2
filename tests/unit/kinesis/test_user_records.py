"""Positions of user records, and records read from the dead-letter table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.kinesis_records import AggregatedRecord

from streamhouse.connectors.kinesis.rows import (
    Record,
    RecordRows,
    UserRecord,
    from_bad_record,
    user_records,
)
from streamhouse.formats.base import FormatChoice
from streamhouse.sql.plan import Column

COLUMNS = (
    Column("n", "BIGINT"),
    Column("shard", "STRING", metadata="shard-id"),
    Column("number", "STRING", metadata="sequence-number"),
    Column("at", "TIMESTAMP_LTZ(3)", metadata="timestamp"),
)


def packed(*payloads: bytes) -> bytes:
    aggregated = AggregatedRecord()
    for payload in payloads:
        aggregated.add(payload)
    return aggregated.packed()


@pytest.fixture
def records() -> list[UserRecord]:
    records = [
        Record(5, 1_000, b'{"n": 1}'),
        Record(6, 2_000, packed(b'{"n": 2}', b'{"n": "x"}', b'{"n": 3}')),
        Record(7, 3_000, packed(b"no json")),
    ]
    return list(user_records("shardId-0", records))


def test_each_user_record_has_a_position(records: list[UserRecord]) -> None:
    assert [record.position("s, t") for record in records] == [
        "stream s, t, shardId-0, record 5",
        "stream s, t, shardId-0, record 6, part 1",
        "stream s, t, shardId-0, record 6, part 2",
        "stream s, t, shardId-0, record 6, part 3",
        "stream s, t, shardId-0, record 7, part 1",
    ]
    for one in records:
        row = {"position": one.position("s, t"), "value": one.data, "timestamp": one.arrival_ms}
        assert from_bad_record(row) == one


def test_rows_of_records_without_the_bad_ones(records: list[UserRecord]) -> None:
    rows = RecordRows(COLUMNS, FormatChoice.of({}, "json"))
    found, bad = rows.decode(records)
    assert [one.index for one in bad] == [2, 4]
    assert found.schema.equals(rows.schema)
    assert [(row["n"], row["shard"], row["number"]) for row in found.to_pylist()] == [
        (1, "shardId-0", "5"), (2, "shardId-0", "6"), (3, "shardId-0", "6"),
    ]  # fmt: skip
    assert found.column("at").cast(pa.int64()).to_pylist() == [1_000, 2_000, 2_000]
    nothing, bad = rows.decode([])
    assert nothing.num_rows == 0 and not bad


def test_a_null_in_a_column_that_is_not_null_is_bad() -> None:
    rows = RecordRows((Column("n", "BIGINT", nullable=False),), FormatChoice.of({}, "json"))
    records = [Record(5, 1_000, b'{"n": 1}'), Record(6, 2_000, b"{}")]
    found, (bad,) = rows.decode(list(user_records("shardId-0", records)))
    assert found.to_pylist() == [{"n": 1}]
    assert bad.index == 1 and "'n' is BIGINT NOT NULL, but null or missing" in bad.reason
