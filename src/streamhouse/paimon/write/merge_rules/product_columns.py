"""Columns with the merge function `product`, which cannot be retracted.

A merge without the earlier rows, in memory or of new files alone, multiplies by the value that it
should divide by. Both the Rust core and Paimon's `FieldProductAgg` do this.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.source import ROW_KIND
from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    ignores_retractions,
    merge_function,
)


class ProductColumns:
    """The product columns of a table that do not ignore retractions (`ignore-retract`)."""

    def __init__(self, table: Table) -> None:
        options = table.options
        self._table = table
        self._columns = [
            column.name
            for column in table.columns
            if options.get("merge-engine") in MERGING_ENGINES
            and column.name not in table.primary_key
            and merge_function(options, column.name) == "product"
            and not ignores_retractions(options, column.name)
        ]

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `TableError` if a `-U` or `-D` row has a value in such a column."""
        if not self._columns or ROW_KIND not in batch.schema.names:
            return
        retractions = batch.filter(
            pc.is_in(batch.column(ROW_KIND), value_set=pa.array(["-U", "-D"]))
        )
        for name in self._columns:
            if retractions.num_rows > retractions.column(name).null_count:
                raise TableError(
                    f"table {self._table.identifier}: column '{name}' is merged by product, which "
                    f"cannot be retracted, but {retractions.num_rows} row(s) are removed or "
                    f"updated; ALTER TABLE: SET ('fields.{name}.ignore-retract' = 'true') keeps "
                    "the factors"
                )
