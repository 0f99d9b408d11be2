"""Completes the rows of a table in MySQL to rows of its Paimon table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import Seconds, changed_pairs
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.metadata import metadata_values
from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.sync.mapping.computed_columns import computed_columns, with_types
from streamhouse.runtime.sync.options import METADATA, SyncOptions
from streamhouse.source import ROW_KIND
from streamhouse.types import arrow_type


class TargetRows:
    """Adds the computed and metadata columns to the rows of one table.

    An update that changes the target's key or partition becomes `-D` and `+I`: Paimon would keep
    the old row otherwise. `now_ms`: the time of the batch.
    """

    def __init__(
        self, options: SyncOptions, source: FollowedTable, target: Table, now_ms: int
    ) -> None:
        self._options, self._source, self._now_ms = options, source, now_ms
        kinds = {options.spelt(name): kind for name, kind in source.columns}
        self._computed = with_types(computed_columns(options), kinds)
        own = {options.spelt(column.name) for column in source.definition.key}
        keys = dict.fromkeys((*target.primary_key, *target.partition_keys))
        self._append = not target.primary_key
        self._keys_not_in_source = [name for name in keys if name not in own]

    def rows(self, batch: pa.RecordBatch, seconds: Seconds | None) -> pa.RecordBatch:
        """The rows with all columns; `seconds`: when each was changed, None in a snapshot."""
        spelt = self._options.spelt
        columns = {
            spelt(name): batch.column(name) for name in batch.schema.names if name != ROW_KIND
        }
        for column in self._computed:
            columns[column.name] = column.values(columns, batch.num_rows, self._now_ms)
        for name, own in self._options.metadata_names.items():
            values = metadata_values(name, self._source.names, batch, seconds)
            columns[own] = values.cast(arrow_type(METADATA[name]))
        kinds = batch.column(ROW_KIND)
        if self._append and not pc.all(pc.equal(kinds, "+I")).as_py():
            raise TableError(
                f"it has an update or a delete, and {self._source.target} has no primary key to "
                "find the row by; give --primary-keys and a new table, or exclude the table"
            )
        if seconds is not None and self._keys_not_in_source:
            kinds = split_key_updates(kinds, [columns[name] for name in self._keys_not_in_source])
        return pa.record_batch([*columns.values(), kinds], names=[*columns, ROW_KIND])


def split_key_updates(kinds: pa.Array, columns: Sequence[pa.Array]) -> pa.Array:
    """The kinds, with `-D` and `+I` for an update (two rows in a row) that changes a column."""
    befores = np.flatnonzero(np.asarray(pc.equal(kinds, "-U")))
    moved = changed_pairs(columns, befores)
    if not moved.any():
        return kinds
    values = np.array(kinds.to_pylist(), dtype=object)
    values[befores[moved]] = "-D"
    values[befores[moved] + 1] = "+I"
    return pa.array(values.tolist(), pa.string())
