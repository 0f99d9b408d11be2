"""Tables where a `-D` removes the record of its key (`remove-record-on-delete`); decision 121.

Paimon's Rust and Java cores both start the key's next record with the values that the `-D` has.
They also lose the removal if they merge it with later rows but without the earlier files. So `-D`
rows are written without values, later rows go into other files
(`paimon.write.merge_rules.retraction_file_split`), and compactions of such tables take all files of
a bucket.
"""

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.source import ROW_KIND
from streamhouse.sql.options.merge_functions import sequence_fields

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def without_values(table: Table, rows: Rows) -> Rows:
    """The rows with only their keys, row kind and sequence fields.

    Other columns are null, or if they are NOT NULL, zero or empty.
    """
    kept = {*table.primary_key, *table.partition_keys, ROW_KIND}
    kept |= set(sequence_fields(table.options))
    for index, field in enumerate(rows.schema):
        if field.name not in kept:
            value = pa.nulls(rows.num_rows, field.type)
            if not table.arrow_schema.field(field.name).nullable:
                value = pa.repeat(_zero(field.type), rows.num_rows)
            rows = rows.set_column(index, field, value)
    return rows


def removals_without_values(table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its `-D` rows `without_values`; other rows and the order are unchanged."""
    if ROW_KIND not in batch.schema.names:
        return batch
    removed = pc.equal(batch.column(ROW_KIND), "-D")
    if not pc.any(removed).as_py():
        return batch
    both = pa.concat_batches([without_values(table, batch), batch])
    of_second = ~removed.to_numpy(zero_copy_only=False)
    return both.take(pa.array(np.arange(batch.num_rows) + of_second * batch.num_rows))


def _zero(data_type: pa.DataType) -> pa.Scalar:
    values: tuple[object, ...] = (0, "", b"", False, [], {})
    for value in values:
        try:
            return pa.scalar(value, data_type)
        except (pa.ArrowException, TypeError, ValueError):
            continue
    raise TableError(f"a row with a NOT NULL column of type {data_type} cannot be deleted")
