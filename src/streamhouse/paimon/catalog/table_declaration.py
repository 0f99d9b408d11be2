"""Declarations of tables: checked columns, keys and options, as CREATE TABLE stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.schema.file_formats import orc_values
from streamhouse.paimon.schema.options import iceberg_metadata
from streamhouse.paimon.schema.options.option_columns import column_lists
from streamhouse.paimon.schema.options.table_options import plain_values
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema
from streamhouse.paimon.schema.validation.schema_validation import check_schema
from streamhouse.sql.options import renamed_options
from streamhouse.sql.plan import Column


@dataclass(frozen=True)
class TableDeclaration:
    """The columns, keys, options and comment of a new table, and the defaults of its columns.

    `copied`: they are those of a stored table, which may have faults that are no obstacle.
    """

    columns: Sequence[Column]
    primary_key: Sequence[str] = ()
    partitioned_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    copied: bool = False


def checked_declaration(full: str, declared: TableDeclaration) -> TableDeclaration:
    """The declaration of the table `full` with the options that Paimon stores.

    Keys and column defaults may be among the options of `declared`. Raises `TableError` for a
    column that is missing or doubled, `OptionError` for an option that is unknown or that does not
    fit.
    """
    columns = declared.columns
    options, defaults = renamed_options.defaults(renamed_options.current(dict(declared.options))[0])
    options = plain_values(column_lists(options))
    primary_key = _declared(full, "primary-key", "PRIMARY KEY", declared.primary_key, options)
    partitioned_by = _declared(
        full, "partition", "PARTITIONED BY", declared.partitioned_by, options
    )
    types_by_name = {column.name: column.type for column in columns}
    options |= orc_values.implied_options(types_by_name, options)
    options |= iceberg_metadata.implied_options(primary_key, options)
    if not declared.copied:
        named = [(column.name, column.type) for column in columns]
        check_schema(DeclaredSchema(f"table {full}", named, primary_key, partitioned_by, options))
    for column in defaults:
        if column not in types_by_name:
            hint = nearest(column, types_by_name)
            raise TableError(f"table {full} has no column '{column}'; {hint}")
    return replace(
        declared,
        primary_key=primary_key,
        partitioned_by=partitioned_by,
        options=options,
        defaults=defaults,
    )


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
