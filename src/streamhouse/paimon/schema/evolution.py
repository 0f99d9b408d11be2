"""Schema evolution: identifies columns by their ids across the versions of a table's schema.

A long-running query is planned with the column names of one version (`planned`, a schema id), and
reads and writes tables of later versions. A renamed column is the same column. A dropped column
stays dropped, even if another column of the same name was added later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from streamhouse.errors import SchemaChangeError
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.source import ROW_KIND

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def name_mapping(table: Table, planned: int | None, names: Sequence[str]) -> dict[str, str | None]:
    """The current name of each column of the version `planned`; None if it was dropped."""
    if planned is None or planned == table.schema_id:
        return {name: name for name in names}
    ids = column_ids(table.version(planned))
    names_by_id = {number: name for name, number in column_ids(table).items()}
    return {name: names_by_id.get(ids[name]) if name in ids else name for name in names}


def current_columns(table: Table, planned: int | None, names: Sequence[str]) -> list[str]:
    """The current names, if all columns are needed; `SchemaChangeError` if one was dropped."""
    current_names = []
    for name, current in name_mapping(table, planned, names).items():
        if current is None:
            raise SchemaChangeError(
                f"column '{name}' of table {table.identifier}, which the query reads, has been "
                f"dropped; its columns are now {', '.join(table.arrow_schema.names)}: change the "
                "query and restart it; it resumes where it stopped"
            )
        current_names.append(current)
    return current_names


def with_current_names(rows: _Rows, table: Table, planned: int | None) -> _Rows:
    """Rename the columns of rows from their names in the version `planned` to their current names.

    A column that was dropped since is left out if all its values are null; otherwise raises
    `SchemaChangeError`.
    """
    if planned is None or planned == table.schema_id:
        return rows
    names = name_mapping(table, planned, [n for n in rows.schema.names if n != ROW_KIND])
    fields, arrays = [], []
    for field, array in zip(rows.schema, rows.columns, strict=True):
        current = ROW_KIND if field.name == ROW_KIND else names[field.name]
        if current is not None:
            fields.append(field.with_name(current))
            arrays.append(array)
        elif array.null_count < len(array):
            raise SchemaChangeError(
                f"column '{field.name}' of table {table.identifier}, which the query writes, has "
                "been dropped; leave it out of the query and restart it; it resumes where it "
                "stopped, and nothing is lost"
            )
    return type(rows).from_arrays(arrays, schema=pa.schema(fields))


def with_current_columns(rows: pa.Table, table: Table, planned: int | None) -> pa.Table:
    """As `with_current_names`, but they get all current columns, in the table's order.

    Columns that were added since are null; others are cast to their current types.
    """
    if planned is None or planned == table.schema_id:
        return rows
    renamed = with_current_names(rows, table, planned)
    schema = table.read_schema(row_kind=ROW_KIND in rows.column_names)
    return converted(renamed, schema, {name: name for name in renamed.column_names})


def with_planned_types(rows: _Rows, planned: pa.Schema) -> _Rows:
    """Rows with the types that their columns had when the query was planned.

    A type that was widened since can give other texts, quotients and keys. Widened whole numbers do
    not, and stay. Raises `SchemaChangeError` for a value that fits only the wider type.
    """
    for index, (field, wide) in enumerate(zip(planned, rows.schema, strict=False)):
        whole = pa.types.is_integer(field.type) and pa.types.is_integer(wide.type)
        if field.type == wide.type or whole or pa.types.is_nested(field.type):
            continue
        try:
            column = rows.column(index).cast(field.type)
            fits = column.cast(wide.type).equals(rows.column(index))
        except pa.ArrowInvalid:
            fits = False
        if not fits:
            raise SchemaChangeError(
                f"column '{wide.name}' has a value that does not fit {field.type}, its type when "
                "the query was planned; it was widened since. Restart the query; it resumes where "
                "it stopped, unless its results so far depend on the type"
            )
        rows = rows.set_column(index, field.with_name(wide.name), column)
    return rows


def renamed_to(table: Table, name: str) -> str | None:
    """How a former column was changed, for error messages; None if the table never had it.

    For example, "it was dropped".
    """
    for schema_id in range(table.schema_id - 1, -1, -1):
        earlier = table.find_version(schema_id)
        ids = {} if earlier is None else column_ids(earlier)
        if name in ids:
            names_by_id = {number: current for current, number in column_ids(table).items()}
            current = names_by_id.get(ids[name])
            return "it was dropped" if current is None else f"it was renamed to '{current}'"
    return None


def read_changes(
    table: Table, columns: Sequence[str] | None, splits: Sequence[bytes]
) -> Iterator[pa.RecordBatch]:
    """Read rows with their row kinds from files of several schema versions.

    The Rust core loses the row kinds of files that were written with another schema version than
    the one it reads with. So each file is read with its own version, and its rows are converted to
    the table's columns.
    """
    names = table.arrow_schema.names if columns is None else list(columns)
    schema = table.read_schema(names, row_kind=True)
    ids = column_ids(table)
    for schema_id, group in _by_version(splits):
        if schema_id == table.schema_id:
            yield from table.read_version(names, None, group, True)
            continue
        earlier = table.version(schema_id)
        names_by_id = {number: name for name, number in column_ids(earlier).items()}
        names_in_file = {name: names_by_id[ids[name]] for name in names if ids[name] in names_by_id}
        # A file without any wanted column still has rows: reading its key gives their number.
        file_columns = list(names_in_file.values()) or [earlier.primary_key[0]]
        for batch in earlier.read_version(file_columns, None, group, True):
            yield converted(batch, schema, names_in_file)


def has_values(table: Table, columns: Sequence[str], splits: Sequence[bytes]) -> bool:
    """Whether files have values of a column; each row is read as it is, before any merge."""
    ids = column_ids(table)
    # Rows as they were written.
    frames = [replace(SplitFrame.parse(split), streaming=True) for split in splits]
    for schema_id, group in _by_version([frame.serialize() for frame in frames]):
        version = table.version(schema_id)
        in_file = {number: name for name, number in column_ids(version).items()}
        names = [in_file[ids[name]] for name in columns if ids[name] in in_file]
        if names and any(
            column.null_count < len(column)
            for batch in version.read_merged(names, None, group, row_kind=True)
            for column in batch.select(names).columns
        ):
            return True
    return False


def column_ids(table: Table) -> dict[str, int]:
    """The id of each column by its name; a renamed column keeps its id."""
    return {field["name"]: int(field["id"]) for field in table.schema["fields"]}


def converted(rows: _Rows, schema: pa.Schema, names: Mapping[str, str] | None = None) -> _Rows:
    """The rows with exactly the columns of a schema, cast where its type differs.

    `names` are those in the rows, of columns with another one; a column that is not among them is
    null. By default they are the same.
    """
    arrays = []
    for field in schema:
        same = names is None or field.name == ROW_KIND
        name = field.name if same else names.get(field.name)  # type: ignore[union-attr]
        if name is None:
            arrays.append(pa.nulls(rows.num_rows, field.type))
        else:
            column = rows.column(name)
            arrays.append(column if column.type == field.type else column.cast(field.type))
    return type(rows).from_arrays(arrays, schema=schema)


def _by_version(splits: Sequence[bytes]) -> list[tuple[int, list[bytes]]]:
    """Group consecutive splits by schema version; a split with several versions is divided."""
    groups: list[tuple[int, list[bytes]]] = []
    for split in splits:
        frame = SplitFrame.parse(split)
        for version in dict.fromkeys(file.schema_id for file in frame.files):
            files = tuple(file for file in frame.files if file.schema_id == version)
            whole = len(files) == len(frame.files)
            serialized = split if whole else replace(frame, files=files).serialize()
            if groups and groups[-1][0] == version:
                groups[-1][1].append(serialized)
            else:
                groups.append((version, [serialized]))
    return groups
