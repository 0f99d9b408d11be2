"""Requests that queries read bad records or late rows again."""

import uuid
from collections.abc import Mapping

import pyarrow as pa

from streamhouse.connectors.bad_records import COLUMNS, REQUESTS, requests_of, waiting
from streamhouse.connectors.paimon.connector import sink_writer
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.runtime.views.late_changes import COLUMNS as LATE_COLUMNS


def request_replay(warehouse: Mapping[str, str], table: str) -> dict[str, int]:
    """Request that bad records, or late rows, are read again; returns how many, by query.

    Skips records that an earlier request covers. Raises `TableError` for any other table.
    """
    address = TableAddress(dict(warehouse), table)
    names = set(address.open().arrow_schema.names)
    late = {column.name for column in LATE_COLUMNS} <= names
    if not late and not {column.name for column in COLUMNS} <= names:
        raise TableError(
            f"table {table} is not a dead-letter table; name one that is the "
            "'bad-records.table' of a source, or a table of late rows, <target>__late"
        )
    found = waiting(address, "_" if late else "")
    if found:
        requests_of(address).create(REQUESTS, (), {"bucket": "-1"})
        _write(requests_of(address), {query: batch for query, (batch, _) in found.items()})
    return {query: count for query, (_, count) in found.items()}


def _write(address: TableAddress, batches: Mapping[str, int]) -> None:
    user = uuid.uuid4().hex
    writer = sink_writer(address, user, 0)
    queries = pa.array(list(batches), pa.string())
    numbers = pa.array(list(batches.values()), pa.int64())
    messages = writer.write_all([pa.record_batch({"query": queries, "batch": numbers})])
    TableCommitter(address.warehouse, address.identifier, user).commit(0, messages)
