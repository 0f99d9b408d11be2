"""Declarations of tables: checked columns, keys and options, as CREATE TABLE stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.file_formats import avro_rows, orc_values
from streamhouse.paimon.schema.file_formats.nanosecond_timestamps import check_type
from streamhouse.paimon.schema.options import bucket_rules, iceberg_metadata
from streamhouse.paimon.schema.options.exclusive_options import check_exclusive
from streamhouse.paimon.schema.options.option_columns import column_lists
from streamhouse.paimon.schema.options.table_options import check_table_options
from streamhouse.sql.options import renamed_options
from streamhouse.sql.plan import Column


@dataclass(frozen=True)
class TableDeclaration:
    """The columns, keys, options and comment of a new table, and the defaults of its columns."""

    columns: Sequence[Column]
    primary_key: Sequence[str] = ()
    partitioned_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)


def checked_declaration(full: str, declared: TableDeclaration) -> TableDeclaration:
    """The declaration of the table `full` with the options that Paimon stores.

    Keys and column defaults may be among the options of `declared`. Raises `TableError` for a
    column that is missing or doubled, `OptionError` for an option that is unknown or that does not
    fit.
    """
    columns = declared.columns
    options, defaults = renamed_options.defaults(renamed_options.current(dict(declared.options))[0])
    options = column_lists(options)
    check_table_options(options, f"table {full}")
    primary_key = _declared(full, "primary-key", "PRIMARY KEY", declared.primary_key, options)
    partitioned_by = _declared(
        full, "partition", "PARTITIONED BY", declared.partitioned_by, options
    )
    names = [column.name for column in columns]
    _check_columns(full, names, primary_key, partitioned_by)
    arrow = pa.schema((column.name, _arrow_type(full, column)) for column in columns)
    for arrow_field in arrow:
        check_type(f"table {full}", arrow_field.name, arrow_field.type)
    _check_key_types(full, arrow, primary_key, partitioned_by)
    avro_rows.check_columns(f"table {full}", arrow, options)
    types_by_name = {column.name: column.type for column in columns}
    options |= orc_values.implied_options(types_by_name, options)
    options |= iceberg_metadata.implied_options(primary_key, options)
    if orc_values.may_hold_orc(options):
        orc_values.check_keys(f"table {full}", types_by_name, [*primary_key, *partitioned_by])
    options |= bucket_rules.checked_bucket_options(
        f"table {full}", types_by_name, primary_key, partitioned_by, options
    )
    renamed_options.check_write_mode(options, bool(primary_key), f"table {full}")
    for column in defaults:
        if column not in names:
            raise TableError(f"table {full} has no column '{column}'; {nearest(column, names)}")
    check_exclusive(f"table {full}", options, options)
    return replace(
        declared,
        primary_key=primary_key,
        partitioned_by=partitioned_by,
        options=options,
        defaults=defaults,
    )


def _arrow_type(full: str, column: Column) -> pa.DataType:
    try:
        return types.arrow_type(types.parse(column.type))
    except TableError as error:
        raise TableError(f"table {full}, column '{column.name}': {error}") from None


def _declared(
    full: str, option: str, clause: str, keys: Sequence[str], options: dict[str, str]
) -> Sequence[str]:
    """The keys from a clause, or from the equivalent option, which is removed from `options`."""
    if option not in options:
        return keys
    if keys:
        raise OptionError(
            f"table {full}: both {clause} and the option '{option}' name columns; keep one of them"
        )
    return [name.strip() for name in options.pop(option).split(",") if name.strip()]


def _check_columns(
    full: str, names: Sequence[str], primary_key: Sequence[str], partitioned_by: Sequence[str]
) -> None:
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise TableError(f"table {full}: column '{duplicate}' is declared twice")
    for role, keys in (("primary key", primary_key), ("partition key", partitioned_by)):
        for key in keys:
            if key not in names:
                raise TableError(
                    f"table {full}: {role} '{key}' is not a column; {nearest(key, names)}"
                )
    missing = [key for key in partitioned_by if primary_key and key not in primary_key]
    if missing and set(partitioned_by) & set(primary_key):
        raise TableError(
            f"table {full}: partition key '{missing[0]}' is not part of the primary key; add it"
        )


def _check_key_types(
    full: str, schema: pa.Schema, primary_key: Sequence[str], partitioned_by: Sequence[str]
) -> None:
    for role, keys in (("primary key", primary_key), ("partition key", partitioned_by)):
        for key in keys:
            if pa.types.is_nested(schema.field(key).type):
                raise TableError(
                    f"table {full}: {role} '{key}' is an array, a map or a row, which Paimon does "
                    "not support; choose another column"
                )
