"""TIMESTAMP and TIMESTAMP_LTZ of 7 to 9 digits, which are read and never written (decision 105).

Paimon stores them as INT96 in Parquet files. The Rust core writes INT64 nanoseconds instead, which
the Java core, and so Flink and every compaction, misreads as years far from those written. Arrow,
too, has only INT64 nanoseconds for them, which cover the years 1677 to 2262. The Rust core reads an
INT96 value outside this range as another time, without an error.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_database import open_database
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.sql.options.merge_functions import group_sequence_fields, sequence_fields
from streamhouse.types import parts

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

FIRST_US, LAST_US = -(2**63) // 1000 + 1, (2**63 - 1) // 1000 - 1
"""Range of INT64 nanoseconds, in microseconds since 1970: 1677-09-21 to 2262-04-11."""
_ROWS = 65_536
_MAX_CHECKED = 100_000
_checked: set[tuple[str | int, ...]] = set()
"""Paths of files, with ids of columns, whose values are known to fit; files never change."""


def nanosecond_columns(schema: pa.Schema) -> frozenset[str]:
    """The columns that are or contain a timestamp of 7 to 9 digits."""
    return frozenset(field.name for field in schema if _has_nanoseconds(field.type))


def _has_nanoseconds(data_type: pa.DataType) -> bool:
    if pa.types.is_timestamp(data_type):
        return bool(data_type.unit == "ns")
    return any(
        _has_nanoseconds(data_type.field(position).type) for position in range(data_type.num_fields)
    )


def check_type(where: str, column: str, kind: pa.DataType) -> None:
    """Raise `TableError` for a column with such timestamps, which cannot be written."""
    if _has_nanoseconds(kind):
        raise TableError(
            f"{where}: column '{column}' has timestamps with more than 6 fractional digits, which "
            "can be read but not written: Flink would read other times; use TIMESTAMP(6), or a "
            "BIGINT of nanoseconds"
        )


def check_files(table: Table, columns: Collection[str], splits: Sequence[bytes]) -> None:
    """Raise `StreamhouseError` if the Rust core would read wrong times from these splits.

    `columns` are those to read. The primary key and sequence fields are checked as well, since they
    decide how rows are merged.
    """
    sequence = [*sequence_fields(table.options), *group_sequence_fields(table.options)]
    checked = table.nanosecond_columns & {*columns, *table.primary_key, *sequence}
    ids = {number for name, number in column_ids(table).items() if name in checked}
    if not ids:
        return
    for split in splits:
        frame = SplitFrame.parse(split)
        for file, path in zip(frame.files, frame.paths(), strict=True):
            if path.endswith(".parquet") and (path, *sorted(ids)) not in _checked:
                ids_in_file = column_ids(table.version(file.schema_id))
                _check_file(
                    table, {name for name, number in ids_in_file.items() if number in ids}, path
                )
                if len(_checked) >= _MAX_CHECKED:
                    _checked.clear()
                _checked.add((path, *sorted(ids)))


def _check_file(table: Table, columns: Collection[str], path: str) -> None:
    # Not pyarrow: its INT96 values overflow, as those of the Rust core do.
    import duckdb

    if not columns:
        return
    with (
        _as_local(table, path) as file,
        open_database(threads=1) as con,
    ):
        selected = [duckdb.ColumnExpression(name) for name in columns]
        for batch in con.read_parquet(file).select(*selected).to_arrow_reader(_ROWS):
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                for timestamps in leaves(array):
                    _check_timestamps(table, name, path, timestamps)


@contextmanager
def _as_local(table: Table, path: str) -> Iterator[str]:
    if is_local(path):
        yield local_path(path)
        return
    with tempfile.NamedTemporaryFile(suffix=".parquet") as copy:
        with table.files.open_input(path) as file:
            shutil.copyfileobj(file, copy)
        copy.flush()
        yield copy.name


def _check_timestamps(table: Table, column: str, path: str, timestamps: pa.Array) -> None:
    """Raise `StreamhouseError` for a value outside the range of INT64 nanoseconds.

    DuckDB returns INT96 as microseconds. INT64 nanoseconds, which the Rust core wrote, always fit.
    """
    if timestamps.type.unit != "us":
        return
    first, last = bounds(timestamps)
    if first is not None and last is not None and (first < FIRST_US or last > LAST_US):
        raise StreamhouseError(
            f"table {table.identifier}: column '{column}' has a timestamp before 1677-09-22 or "
            f"after 2262-04-11 in {path}, which cannot be read with more than 6 fractional "
            "digits; leave the column out of the query, or have Flink write it as TIMESTAMP(6)"
        )


def leaves(array: Any) -> list[pa.Array]:
    """The timestamp arrays of a column, including those inside its arrays, maps and rows."""
    if pa.types.is_timestamp(array.type):
        return [array]
    return [leaf for _, part in parts(array) for leaf in leaves(part)]


def bounds(timestamps: pa.Array) -> tuple[int | None, int | None]:
    """The minimum and maximum as integers in the type's unit; None if there is no value."""
    extremes = pc.min_max(timestamps.view(pa.int64()))
    return extremes["min"].as_py(), extremes["max"].as_py()
