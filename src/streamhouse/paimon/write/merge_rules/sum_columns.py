"""Columns with the merge functions `sum` and `product`: limits, and what cannot be retracted."""

from collections import defaultdict
from collections.abc import Sequence
from decimal import MAX_PREC, Context, Decimal
from itertools import accumulate, repeat
from typing import Any

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


_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


def summed_columns(table: Table) -> dict[str, int]:
    """The `sum` columns whose type has a limit, and the greatest value of each.

    That of a DECIMAL is unscaled.
    """
    options = table.options
    if not table.primary_key or options.get("merge-engine") not in MERGING_ENGINES:
        return {}
    limits = {}
    for field in table.arrow_schema:
        if merge_function(options, field.name) != "sum" or field.name in table.primary_key:
            continue
        if pa.types.is_decimal(field.type):
            limits[field.name] = 10**field.type.precision - 1
        elif field.type in _BITS:
            limits[field.name] = 2 ** (_BITS[field.type] - 1) - 1
    return limits


def check_sum(
    table: Table, name: str, key: tuple[Any, ...], values: Sequence[int], limit: int
) -> None:
    """Raise `TableError` if adding the values in this order exceeds the type of a column."""
    field = table.arrow_schema.field(name)
    sums = list(accumulate(values, initial=0))
    if pa.types.is_decimal(field.type):
        # A compaction may add any neighbouring values first. A DECIMAL that overflows becomes NULL
        # and stays NULL.
        fits = max(sums) - min(sums) <= limit
    else:
        fits = -limit - 1 <= sums[-1] <= limit
    if fits:
        return
    if abs(sums[-1]) > limit:
        problem = f"would be {_number_text(sums[-1], field.type)}"
    else:
        least, greatest = _number_text(min(sums), field.type), _number_text(max(sums), field.type)
        problem = f"would range from {least} to {greatest}"
    column = next(column for column in table.columns if column.name == name)
    row = ", ".join(f"{k} = {v!r}" for k, v in zip(table.primary_key, key, strict=True))
    raise TableError(
        f"table {table.identifier}: the sum in column '{name}' {problem} where {row}, which "
        f"exceeds {column.type}; nothing was written. Give the column a wider type (ALTER TABLE "
        f"{table.name} MODIFY {name} …), then try again"
    )


def values_by_key(
    tables: Sequence[pa.Table], keys: Sequence[str], name: str
) -> dict[tuple[Any, ...], list[int]]:
    """The values of a column by key, in order; DECIMAL unscaled, retracted values negated."""
    grouped: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for rows in tables:
        kinds = (
            rows.column(ROW_KIND).to_pylist()
            if ROW_KIND in rows.column_names
            else repeat("+I", rows.num_rows)
        )
        columns = (rows.column(key).to_pylist() for key in keys)
        values = rows.column(name).to_pylist()
        for key, value, kind in zip(zip(*columns, strict=True), values, kinds, strict=True):
            if value is not None:
                grouped[key].append(-_unscaled(value) if kind in ("-U", "-D") else _unscaled(value))
    return grouped


def absolute_values(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Absolute values as floating-point numbers, those of a DECIMAL unscaled."""
    numbers = pc.abs(pc.cast(column, pa.float64(), safe=False))
    return pc.multiply(numbers, 10.0 ** scale(column.type))


def scale(kind: pa.DataType) -> int:
    """Decimal places of a numeric type."""
    return int(kind.scale) if pa.types.is_decimal(kind) else 0


def _unscaled(value: Any) -> int:
    """The value as an integer, that of a DECIMAL unscaled."""
    if isinstance(value, int):
        return value
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _number_text(number: int, kind: pa.DataType) -> str:
    return f"{Decimal(number).scaleb(-scale(kind), Context(prec=MAX_PREC)):,f}"
