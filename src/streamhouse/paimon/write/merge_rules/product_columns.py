"""Columns with values that cannot be retracted: of `product`, and Infinity and NaN of `sum`.

Infinity minus Infinity would be NaN for ever. A merge without the earlier rows, in memory or of new
files alone, multiplies by the value that it should divide by. Both the Rust core and Paimon's
`FieldProductAgg` do this.
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
    """Those columns of a table that do not ignore retractions (`ignore-retract`)."""

    def __init__(self, table: Table) -> None:
        options = table.options
        self._table = table
        functions = {
            field.name: (merge_function(options, field.name), field.type)
            for field in table.arrow_schema
            if options.get("merge-engine") in MERGING_ENGINES
            and field.name not in table.primary_key
            and not ignores_retractions(options, field.name)
        }
        self._columns = [name for name, (word, _) in functions.items() if word == "product"]
        self._sums = [
            name
            for name, (word, kind) in functions.items()
            if word == "sum" and pa.types.is_floating(kind)
        ]

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `TableError` if a `-U` or `-D` row has such a value."""
        if not (self._columns or self._sums) or ROW_KIND not in batch.schema.names:
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
        for name in self._sums:
            if pc.any(pc.invert(pc.is_finite(retractions.column(name)))).as_py():
                raise TableError(
                    f"table {self._table.identifier}: Infinity or NaN cannot be subtracted from "
                    f"the sum in column '{name}' again, which would be NaN for ever; nothing was "
                    "written"
                )
