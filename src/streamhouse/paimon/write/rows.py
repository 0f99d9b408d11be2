"""Converts rows to a table's schema: the order, types and defaults of columns, and row kinds."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse import arrow_batches as batches_of
from streamhouse.close_matches import nearest
from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.source import ROW_KIND, ROW_KINDS

VALUE_KIND = "_VALUE_KIND"
"""The trailing int8 column in which the Rust core expects a row's kind."""


def to_table(batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    """The batch in the table's schema, by column name; `TableError` if it does not fit.

    Zoned timestamps go into zoneless columns as their UTC wall clock, and the reverse; both are
    truncated to the column's precision. A `rowkind` column that the table does not have becomes
    the row kinds. Missing and null values become the column's default, as with the Java core.
    """
    schema = table.arrow_schema
    check_columns(batch.schema.names, table)
    if table.defaults:
        batch = _with_defaults(batch, table)
    kinds = ROW_KIND in batch.schema.names and ROW_KIND not in schema.names
    arrays = [
        _truncated(column(batch, field, table.identifier), table.precisions.get(field.name))
        for field in schema
    ]
    codes = _kinds(batch.column(ROW_KIND), table) if kinds else None
    if codes is None or not table.primary_key:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    arrays.append(codes)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.append(pa.field(VALUE_KIND, pa.int8())))


def gathered(
    arrow_batches: Iterable[pa.RecordBatch], rows: int, size: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches of at least `rows` rows except for the last.

    With `size`, a batch may have fewer rows if it has at least that many bytes.
    """
    for group in batches_of.gathered(arrow_batches, rows, size):
        yield group[0] if len(group) == 1 else pa.concat_batches(group)


def check_columns(names: Iterable[str], table: Table) -> None:
    """Raise `TableError` for the first name that is neither a column nor the row kind."""
    columns = table.arrow_schema.names
    for name in names:
        if name not in columns and name != ROW_KIND:
            hint = nearest(name, columns)
            raise TableError(f"table {table.identifier} has no column '{name}'; {hint}")


def column(batch: pa.RecordBatch, field: pa.Field, table: str) -> pa.Array:
    """One column in its type in the table named `table`; `TableError` if it does not fit."""
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        if not field.nullable:
            raise TableError(
                f"table {table}: column '{field.name}' is NOT NULL and has no value in "
                f"the rows written (their columns: {', '.join(batch.schema.names)})"
            )
        return pa.nulls(batch.num_rows, field.type)
    array = batch.column(index)
    if not field.nullable and array.null_count:
        raise TableError(f"table {table}: column '{field.name}' is NOT NULL, got a null")
    return array if array.type == field.type else _cast(array, field, table)


def _with_defaults(batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    for name, text in table.defaults.items():
        field = table.arrow_schema.field(name)
        default = pa.scalar(text).cast(field.type)
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.repeat(default, batch.num_rows))
        elif batch.column(name).null_count:
            filled = _cast(batch.column(name), field, table.identifier).fill_null(default)
            batch = batch.set_column(batch.schema.get_field_index(name), name, filled)
    return batch


def _cast(array: pa.Array, field: pa.Field, table: str) -> pa.Array:
    try:
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(field.type):
            return _cast_timestamp(array, field.type)
        # Casting a struct also truncates its timestamps, so the cast cannot be a safe one.
        nested = pa.types.is_nested(field.type)
        return array.cast(field.type, safe=not nested)
    except pa.ArrowException as error:
        raise TableError(
            f"table {table}: column '{field.name}' is {field.type} and cannot take "
            f"{array.type}: {error}; cast it in the query"
        ) from error


def _cast_timestamp(array: pa.Array, timestamp_type: pa.TimestampType) -> pa.Array:
    """Arrow stores the UTC instant whatever the zone, so a change of zone changes only the type."""
    units = ("s", "ms", "us", "ns")
    if units.index(timestamp_type.unit) < units.index(array.type.unit):
        array = pc.floor_temporal(
            array.cast(pa.timestamp(array.type.unit)), unit=_UNIT_NAMES[timestamp_type.unit]
        )
    return (
        array.cast(pa.timestamp(array.type.unit))
        .cast(pa.timestamp(timestamp_type.unit))
        .cast(timestamp_type)
    )


def _truncated(array: pa.Array, precision: int | None) -> pa.Array:
    """A timestamp truncated to `precision` digits, where its Arrow type has more."""
    if precision is None or precision % 3 == 0:
        return array
    zoneless, step = array.cast(pa.timestamp(array.type.unit)), 10 ** (-precision % 3)
    truncated = pc.floor_temporal(zoneless, multiple=step, unit=_UNIT_NAMES[array.type.unit])
    return truncated.cast(array.type)


_UNIT_NAMES = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def _kinds(array: pa.Array, table: Table) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    codes = pc.index_in(array, value_set=pa.array(ROW_KINDS, array.type))
    if codes.null_count:
        invalid = array.filter(pc.is_null(codes))[0].as_py()
        raise TableError(
            f"table {table.identifier}: row kind {invalid!r} is not one of {', '.join(ROW_KINDS)}"
        )
    if not table.primary_key and pc.any(pc.not_equal(codes, 0)).as_py():
        raise TableError(
            f"table {table.identifier} has no primary key and accepts only inserts (+I); create "
            "it with a primary key to write updates and deletes"
        )
    return codes.cast(pa.int8())
