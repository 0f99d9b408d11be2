"""The table of bad records: what a source could not decode, with its place and the reason."""

from __future__ import annotations

import pyarrow as pa

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.sql.plan import Column

COLUMNS = (
    Column("source", "STRING"),
    Column("position", "STRING"),
    Column("reason", "STRING"),
    Column("key", "BYTES"),
    Column("value", "BYTES"),
    Column("time", "TIMESTAMP_LTZ(3)"),
)


def create_table(address: TableAddress) -> None:
    """Create the table if it does not exist, in a database that may not exist either."""
    database, name = split_identifier(address.identifier)
    warehouse = Warehouse(address.warehouse)
    warehouse.create_database(database, if_not_exists=True)
    warehouse.create_table(
        database, name, list(COLUMNS), (), options={"bucket": "-1"}, if_not_exists=True
    )


def rows_of(rejected: pa.Table, source: str, now_ms: int) -> pa.Table:
    """Rows of the table for records that were rejected; `now_ms`: the time of the batch."""
    count = rejected.num_rows
    time = pa.repeat(pa.scalar(now_ms, pa.int64()).cast(pa.timestamp("ms", "UTC")), count)
    columns = {
        "source": pa.repeat(pa.scalar(source), count),
        **{name: rejected.column(name) for name in ("position", "reason", "key", "value")},
        "time": time,
    }
    return pa.table({column.name: columns[column.name] for column in COLUMNS})
