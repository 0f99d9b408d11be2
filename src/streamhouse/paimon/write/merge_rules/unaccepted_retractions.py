"""Retractions (`-U`, `-D`) written to tables that do not accept them.

These are tables with `merge-engine` = `first-row` or `partial-update`, and tables whose keys can
move between partitions. Paimon's Rust core refuses to write a retraction to them, so the first
update of a source would end the query. As in Paimon's Flink connector, a `-U` whose row is only
replaced is dropped. Any other retraction that no table option covers raises an error that lists
the possible options.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.read.key_set import as_mask
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.options import bucket_options
from streamhouse.source import ROW_KIND, with_kinds
from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    group_sequence_fields,
    ignores_retractions,
    merge_function,
)


def must_drop_before_images(table: Table) -> bool:
    """Whether a `-U` must not reach the table when a `+U` of its key follows."""
    options = table.options
    return (
        bool(table.primary_key)
        and "sequence.field" in options
        and options.get("merge-engine", "deduplicate") == "deduplicate"
        and options.get("changelog-producer", "none") != "input"
    )


class BeforeImageFilter:
    """Drops a `-U` from a stream of batches if the next row is a `+U` of the same key.

    Other `-U` rows stay: they remove a row whose key or partition has changed.
    """

    def __init__(self, table: Table) -> None:
        self._keys = table.primary_key
        self._held: pa.RecordBatch | None = None

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can be written now; a `-U` at the end is held until the next row."""
        if self._held is not None:
            batch, self._held = pa.concat_batches([self._held, with_kinds(batch)]), None
        if ROW_KIND not in batch.schema.names:
            return batch
        kinds = batch.column(ROW_KIND)
        if batch.num_rows and kinds[-1].as_py() == "-U":
            self._held, batch = batch.slice(batch.num_rows - 1), batch.slice(0, batch.num_rows - 1)
        if batch.num_rows < 2:
            return batch
        before = as_mask(pc.equal(batch.column(ROW_KIND), "-U"))
        after = as_mask(pc.equal(batch.column(ROW_KIND), "+U"))
        replaced = before[:-1] & after[1:]
        if not replaced.any():
            return batch
        for key in self._keys:
            column = batch.column(key)
            replaced &= as_mask(pc.equal(column.slice(0, len(column) - 1), column.slice(1)))
        return batch.filter(pa.array(np.append(~replaced, True)))

    def rest(self) -> pa.RecordBatch | None:
        """The `-U` that is still held at the end of the stream; None if there is none."""
        held, self._held = self._held, None
        return held


_IGNORE = "ignore-delete"
_REMOVE = "partial-update.remove-record-on-delete"
_DYNAMIC = "dynamic-partition-overwrite"
_REPLACING = ("last_value", "last_non_null_value")
"""Merge functions that replace the earlier value completely."""
_ROW, _LATER = "__row", "__row_max"


def takes_upserts(table: Table) -> bool:
    """Whether a `-U` must not reach the table when a `+U` of its key follows."""
    options = table.options
    if table.crosses_partitions:
        return not _keeps_replaced(table)
    if not table.primary_key or _engine(table) not in ("first-row", "partial-update"):
        return False
    if any(key.endswith("aggregate-function") for key in options):
        return False
    # With `input` the changelog is what was written, and sequence groups can be retracted.
    return not (options.get("changelog-producer") == "input" and group_sequence_fields(options))


def check_moves(table: Table) -> None:
    """Raise `TableError` if a row that moves to another partition would stay in its old one."""
    if bucket_options.leaves_moved_rows(table.primary_key, table.partition_keys, table.options):
        raise TableError(
            f"table {table.identifier} has the primary key ({', '.join(table.primary_key)}) "
            f"without its partition ({', '.join(table.partition_keys)}), and '{_IGNORE}' = 'true' "
            "keeps a moved row in its old partition as well, so a key could have several rows; "
            "create a table with the partition in its primary key, or without "
            f"'{_IGNORE}', and INSERT the rows there"
        )


def check_overwrite(
    table: Table, options: Mapping[str, str], partition: Mapping[str, object] | None
) -> None:
    """Raise `TableError` for an overwrite that would lose rows because keys cross partitions.

    The Rust core looks up keys among the rows that the overwrite replaces. If a key is in another
    partition, that partition counts as written to, so its other rows would be replaced as well.
    Merge engines that keep an older row would keep one that is replaced.
    """
    if not table.crosses_partitions:
        return
    replaces_all = not partition and options.get(_DYNAMIC, "true").lower() == "false"
    if _engine(table) == "deduplicate" and replaces_all:
        return
    workaround = "TRUNCATE the table and INSERT its rows"
    if _engine(table) == "deduplicate":
        workaround += (
            f", or replace all of them in one snapshot: /*+ OPTIONS('{_DYNAMIC}' = 'false') */"
        )
    raise TableError(
        f"table {table.identifier} has the primary key ({', '.join(table.primary_key)}) without "
        f"its partition ({', '.join(table.partition_keys)}), and an overwrite would replace rows "
        f"of other partitions as well; {workaround}"
    )


class RetractionFilter:
    """Drops retractions from batches, or turns them into rows that the table accepts.

    Where keys cross partitions, the Rust core accepts no row kinds: it removes a key's row in the
    other partition itself.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._ignores = table.options.get(_IGNORE, "").lower() == "true"
        self._removes = table.options.get(_REMOVE, "").lower() == "true"
        self._retracts_groups = _engine(table) == "partial-update" and bool(
            group_sequence_fields(table.options)
        )
        self._crosses = table.crosses_partitions
        self._upserting = takes_upserts(table)

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to write; `TableError` for a retraction that the table cannot apply."""
        if ROW_KIND not in batch.schema.names:
            return batch
        if self._upserting and not self._ignores:
            batch = self._without_replaced(batch)
        kinds = batch.column(ROW_KIND)
        retracted = pc.is_in(kinds, value_set=pa.array(["-U", "-D"]))
        if self._ignores:
            batch = batch.filter(pc.invert(retracted))
        elif pc.any(retracted).as_py() and (self._crosses or not self._retracts_groups):
            if self._crosses:
                raise self._crossing_error(batch.filter(retracted))
            if not self._removes:
                raise self._retraction_error(batch.filter(retracted))
            removed = pc.if_else(retracted, pa.scalar("-D", kinds.type), kinds)
            batch = batch.set_column(batch.schema.get_field_index(ROW_KIND), ROW_KIND, removed)
        return batch.drop_columns([ROW_KIND]) if self._crosses else batch

    def _without_replaced(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without each `-U` whose key has a `+I` or `+U` later in the batch."""
        kinds, keys = batch.column(ROW_KIND), list(self._table.primary_key)
        before = pc.equal(kinds, "-U")
        if not pc.any(before).as_py():
            return batch
        numbers = pa.array(np.arange(batch.num_rows))
        rows = pa.Table.from_batches([batch.select(keys)]).append_column(_ROW, numbers)
        upserted = pc.is_in(kinds, value_set=pa.array(["+I", "+U"]))
        later = rows.filter(upserted).group_by(keys).aggregate([(_ROW, "max")])
        pairs = rows.filter(before).join(later, keys)
        replaced = pairs.filter(pc.less(pairs.column(_ROW), pairs.column(_LATER))).column(_ROW)
        return batch.filter(pc.invert(pc.is_in(numbers, value_set=replaced.combine_chunks())))

    def _retraction_error(self, rows: pa.RecordBatch) -> TableError:
        key = {name: rows.column(name)[0].as_py() for name in self._table.primary_key}
        engine = _engine(self._table)
        remedies = "SET ('ignore-delete' = 'true') keeps such rows"
        if engine == "partial-update":
            remedies += f", SET ('{_REMOVE}' = 'true') removes them"
        return TableError(
            f"table {self._table.identifier} has 'merge-engine' = '{engine}', which cannot "
            f"retract rows, but {rows.num_rows} row(s) are removed, the first with the key {key}; "
            f"ALTER TABLE: {remedies}"
        )

    def _crossing_error(self, rows: pa.RecordBatch) -> TableError:
        table = self._table
        key = {name: rows.column(name)[0].as_py() for name in table.primary_key}
        can_ignore = self._upserting and _engine(table) != "deduplicate"
        remedy = ", or SET ('ignore-delete' = 'true') to keep such rows" if can_ignore else ""
        return TableError(
            f"table {table.identifier} has the primary key ({', '.join(table.primary_key)}) "
            f"without its partition ({', '.join(table.partition_keys)}), so Paimon's core can only "
            f"upsert its rows, but {rows.num_rows} row(s) are retracted, the first with the key "
            f"{key}; create the table with the partition in its primary key{remedy}"
        )


def _engine(table: Table) -> str:
    return table.options.get("merge-engine", "deduplicate").lower()


def _keeps_replaced(table: Table) -> bool:
    """Whether a row replaced without a `-U` still affects its key, such as a value in a sum."""
    if _engine(table) not in MERGING_ENGINES:
        return False
    options, keys = table.options, (*table.primary_key, *table.partition_keys)
    return any(
        merge_function(options, column.name) not in _REPLACING
        for column in table.columns
        if column.name not in keys and not ignores_retractions(options, column.name)
    )
