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
        queries = pa.array(list(found), pa.string())
        numbers = pa.array([batch for batch, _ in found.values()], pa.int64())
        rows = pa.record_batch({"query": queries, "batch": numbers})
        requests, user = requests_of(address), uuid.uuid4().hex
        requests.create(REQUESTS, (), {"bucket": "-1"})
        messages = sink_writer(requests, user, 0).write_all([rows])
        TableCommitter(requests.warehouse, requests.identifier, user).commit(0, messages)
    return {query: count for query, (_, count) in found.items()}
