"""METADATA columns of `mysql-cdc` tables, with Flink CDC's keys."""

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.connectors.base import Metadata
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import Seconds
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

DATABASE, TABLE, TIME, KIND = "database_name", "table_name", "op_ts", "row_kind"
METADATA = (
    Metadata(DATABASE, "STRING", "the database of the row"),
    Metadata(TABLE, "STRING", "the table of the row"),
    Metadata(
        TIME,
        "TIMESTAMP_LTZ(3)",
        "when the server executed the change, in whole seconds; 1970-01-01 for rows of the "
        "snapshot",
    ),
    Metadata(KIND, "STRING", "`+I`, `-U`, `+U` or `-D`"),
)


def declared_schema(columns: Sequence[Column], stored: pa.Schema) -> pa.Schema:
    """The schema of declared columns; `stored`: that of those that are no METADATA."""
    return pa.schema([
        stored.field(column.name)
        if column.metadata is None
        else pa.field(column.name, arrow_type(column.type))
        for column in columns
    ])  # fmt: skip


def declared_rows(
    rows: pa.RecordBatch,
    columns: Sequence[Column],
    schema: pa.Schema,
    names: tuple[str, str],
    seconds: Seconds | None,
) -> pa.RecordBatch:
    """Rows of the table `names` with all declared columns of a `schema`, then the row kind.

    Adds METADATA, and nulls in the columns that the table lacks. `seconds`: when the changes were
    executed (since 1970, UTC); None for a snapshot.
    """
    own = rows.schema.names
    if own == [*schema.names, ROW_KIND]:
        return rows
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        if column.metadata is not None:
            arrays.append(metadata_values(column.metadata, names, rows, seconds).cast(field.type))
        elif column.name in own:
            arrays.append(rows.column(column.name))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    kind = rows.schema.field(ROW_KIND)
    return pa.record_batch([*arrays, rows.column(ROW_KIND)], schema=schema.append(kind))


def metadata_values(
    key: str, names: tuple[str, str], rows: pa.RecordBatch, seconds: Seconds | None
) -> pa.Array:
    """The values of a METADATA column, for rows with their kinds of the table `names`."""
    if key == KIND:
        return rows.column(ROW_KIND)
    if key == TIME:
        times = pa.array([0] * rows.num_rows if seconds is None else seconds, pa.int64())
        return times.cast(pa.timestamp("s", "UTC"))
    return pa.repeat(pa.scalar(names[key == TABLE]), rows.num_rows)
