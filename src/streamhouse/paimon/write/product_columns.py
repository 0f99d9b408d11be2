"""Columns that merges multiply (`product`): nothing can be taken back from them.

A merge without the rows before it, in memory or of new files alone, multiplies by what is to be
divided by: in the Rust core as in Paimon's `FieldProductAgg`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.merge_functions import MERGING_ENGINES, merge_function
from streamhouse.paimon.read.table import Table
from streamhouse.source import ROW_KIND


class Products:
    """The columns of a table that are products and take rows back (`ignore-retract` is not set)."""

    def __init__(self, table: Table) -> None:
        options = table.options
        self._table = table
        self._columns = [
            column.name
            for column in table.columns
            if options.get("merge-engine") in MERGING_ENGINES
            and column.name not in table.primary_key
            and merge_function(options, column.name) == "product"
            and options.get(f"fields.{column.name}.ignore-retract", "").lower() != "true"
        ]

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `TableError` for a `-U` or `-D` with a factor."""
        if not self._columns or ROW_KIND not in batch.schema.names:
            return
        back = batch.filter(pc.is_in(batch.column(ROW_KIND), value_set=pa.array(["-U", "-D"])))
        for name in self._columns:
            if back.num_rows > back.column(name).null_count:
                raise TableError(
                    f"table {self._table.identifier}: column '{name}' is merged by product, from "
                    f"which nothing can be taken back, and {back.num_rows} row(s) are removed or "
                    f"updated; ALTER TABLE: SET ('fields.{name}.ignore-retract' = 'true') keeps "
                    "the factors"
                )
