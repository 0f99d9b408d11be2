"""Replays bad records from their table, without a broker."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamhouse.connectors.bad_records import (
    DeadLetterReplays,
    Replay,
    create_tables,
    rows_of,
)
from streamhouse.connectors.kafka.options import parse
from streamhouse.connectors.kafka.positions import KafkaPosition
from streamhouse.connectors.kafka.records import RecordLayout
from streamhouse.connectors.kafka.source import KafkaSource
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix
from streamhouse.runtime.replay_requests import request_replay
from streamhouse.source import BAD_RECORDS
from streamhouse.sql.plan import Column

COLUMNS = (
    Column("id", "BIGINT"),
    Column("o", "BIGINT", metadata="offset"),
    Column("headers", "MAP<STRING, BYTES>", metadata="headers"),
    Column("at", "TIMESTAMP_LTZ(3)", metadata="timestamp"),
)


@pytest.fixture
def address(tmp_path: Path) -> TableAddress:
    made = TableAddress(Warehouse(str(tmp_path)).options, "late.bad")
    create_tables(made)
    create_tables(made)
    return made


def keep(address: TableAddress, query: str, batch: int, *values: bytes) -> None:
    """What a query's batch writes."""
    bad_records = pa.Table.from_pylist(
        [
            {
                "position": f"topic t, partition 0, offset {10 * batch + place}",
                "reason": "why", "key": None, "value": value, "timestamp": 5,
                "headers": [("h", b"x")],
            }
            for place, value in enumerate(values)
        ],
        BAD_RECORDS,
    )  # fmt: skip
    rows = rows_of(bad_records, "default.t", 1_000, query, batch)
    user = f"{query}{'0' * 32}"[:32]
    prefix = file_prefix(user, batch, "a" * 12)
    writer = TableWriter(address.warehouse, address.identifier, user, prefix)
    for part in rows.combine_chunks().to_batches():
        writer.write(part)
    messages = writer.prepare(batch)
    writer.close()
    TableCommitter(address.warehouse, address.identifier, user).commit(batch, messages)


def test_each_request_covers_what_no_earlier_one_did(address: TableAddress) -> None:
    warehouse = address.warehouse
    assert request_replay(warehouse, "late.bad") == {}
    keep(address, "q", 3, b'{"id": 1}', b"bad")
    keep(address, "other", 9, b"bad")
    own = DeadLetterReplays(address, "q")
    assert own.requested() == -1
    assert request_replay(warehouse, "late.bad") == {"q": 2, "other": 1}
    assert request_replay(warehouse, "late.bad") == {}
    keep(address, "q", 4, b'{"id": 2}')
    assert request_replay(warehouse, "late.bad") == {"q": 1}
    assert DeadLetterReplays(address, "q").requested() == 4
    assert [row["value"] for row in own.rows(Replay(3, 4))] == [b'{"id": 2}']


def test_a_source_reads_bad_records_as_the_original_messages(address: TableAddress) -> None:
    keep(address, "q", 3, b'{"id": 1}', b"bad")
    given = {
        "topic": "t", "properties.bootstrap.servers": "k:9092", "format": "json",
        "bad-records": "table", "bad-records.table": "late.bad",
    }  # fmt: skip
    options = parse(given, "t")
    source = KafkaSource(options, RecordLayout.of(COLUMNS, options, "t"))
    source.replay_from(DeadLetterReplays(address, "q"))
    position = KafkaPosition({"t": "x"}, {("t", 0): 5})
    before, after = position.offset(), {**position.offset(), "replayed": 3}
    assert KafkaPosition.parse(after) == position
    (partition,) = source.partitions(before, after)
    (rows,) = source.read(partition)
    (row,) = rows.to_pylist()
    assert (row["id"], row["o"], row["headers"], row["at"].timestamp()) == (
        1,
        30,
        [("h", b"x")],
        0.005,
    )
    (again,) = source.bad_records().to_pylist()
    assert again["position"] == "topic t, partition 0, offset 31" and again["value"] == b"bad"
    assert source.bad_records().num_rows == 0
    assert source.partitions(after, after) == []


def test_another_table_is_refused(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("d")
    warehouse.create_table("d", "t", [Column("a", "INT")], ())
    with pytest.raises(TableError, match="is not a dead-letter table"):
        request_replay(warehouse.options, "d.t")
    with pytest.raises(TableError, match="has no column 'source'"):
        create_tables(TableAddress(warehouse.options, "d.t"))
