"""Selects the columns of a MySQL table to read, and checks whether they can be followed."""

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError
from streamhouse.mysql.connection import Session, global_variables
from streamhouse.mysql.foreign_keys import check_no_foreign_keys
from streamhouse.mysql.keys import KeySpace
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import Server, TableDefinition, check_binlog_filter
from streamhouse.mysql.values.key_targets import check_declared
from streamhouse.mysql.values.types import UTC_NAMES, MySqlColumn, errors_of, quote, zone_offset
from streamhouse.sql.plan import Column
from streamhouse.sql.types import base, parts
from streamhouse.types import arrow_type

_ELEMENTS = {"set": ("STRING", "VARCHAR"), "vector": ("FLOAT", "DOUBLE")}
"""The families whose values can be declared as arrays, and the types of their elements."""

Selected = Sequence[tuple[MySqlColumn, pa.DataType]]
"""Columns with the Arrow types of their values."""


def selected_columns(
    options: MySqlOptions,
    available: Sequence[MySqlColumn],
    declared: Sequence[Column] | None,
    key: Sequence[MySqlColumn] = (),
) -> list[tuple[MySqlColumn, pa.DataType]]:
    """Find the declared columns (None: all) by name; `TableError` for those that cannot be read.

    `key`: the columns of the key, which the declared types must keep apart. Its TINYINT(1) columns
    read as numbers, others as BOOLEAN.
    """
    if declared is None:
        return [(column, column.exact if column in key else column.natural) for column in available]
    by_name = {column.name: column for column in available}
    selected = []
    for column in declared:
        if column.name not in by_name:
            raise TableError(
                f"MySQL table {options.name} has no column '{column.name}'; "
                f"{nearest(column.name, by_name)} (its columns: {', '.join(by_name)})"
            )
        source = by_name[column.name]
        target = _declared_type(source, column.type)
        if source in key:
            with errors_of(options.name):
                check_declared(source, target, column.type)
        selected.append((source, target))
    for source, _ in selected:
        _ = source.family  # raises `TableError` for a type that is not supported
    return selected


def _declared_type(column: MySqlColumn, declared: str) -> pa.DataType:
    elements = _ELEMENTS.get(column.family, ())
    if elements and base(declared) == "ARRAY":
        ((_, element),) = parts(declared)
        if base(element) in elements:
            return pa.list_(arrow_type(element))
    return arrow_type(declared)


def check_columns(session: Session, options: MySqlOptions, columns: Sequence[MySqlColumn]) -> None:
    """Raise `TableError` for columns whose text cannot be decoded exactly from the binlog."""
    for column in columns:
        if column.family not in ("string", "enum", "set"):
            continue
        if column.charset is None or column.charset == "binary":
            raise TableError(
                f"MySQL table {options.name}: column '{column.name}' ({column.column_type}) has "
                f"the character set {column.charset or 'binary'}, which cannot be decoded exactly; "
                f"run ALTER TABLE … MODIFY {quote(column.name)} … CHARACTER SET utf8mb4, or "
                "declare the table's columns without it"
            )
    uncertain = [column for column in columns if column.members_are_uncertain]
    if not uncertain:
        return
    name = "binlog_row_metadata"
    if global_variables(session, name).get(name, "").upper() != "FULL":
        raise TableError(
            f"MySQL table {options.name}: column '{uncertain[0].name}' "
            f"({uncertain[0].column_type}) may have members with characters that the server shows "
            "as '?'; set binlog_row_metadata = FULL, or declare the table's columns without it"
        )


def check_followable(
    session: Session,
    server: Server,
    options: MySqlOptions,
    table: TableDefinition,
    columns: Sequence[MySqlColumn],
    compares: bool = False,
) -> None:
    """Raise `TableError` if a table cannot be followed by its snapshot and the binlog.

    `columns`: those to read, with those of the key. `compares`: rows that foreign keys change
    without row events can be compared with the server's.
    """
    options = options.of(table.database, table.name)
    if not compares:
        check_no_foreign_keys(options.name, table.foreign_keys)
    check_binlog_filter(session, server, options)
    KeySpace(table)
    check_columns(session, options, columns)


def server_zone(session: Session, options: MySqlOptions, selected: Selected, option: str) -> str:
    """The time zone for converting between DATETIME and instants: that of the options, else UTC.

    Raises `OptionError` if a column needs that conversion and the server is in another zone: then
    the user has to set `option`.
    """
    if options.server_time_zone is not None:
        return options.server_time_zone
    converted = [column for column, target in selected if _needs_zone(column, target)]
    if not converted:
        return "UTC"
    names = session.rows("SELECT @@global.time_zone, @@system_time_zone")[0]
    name = str(names[1] if names[0] == "SYSTEM" else names[0])
    if name in (*UTC_NAMES, "+00:00"):
        return "UTC"
    if zone_offset(name) is not None:
        return name
    raise OptionError(
        f"the server's time zone is '{name}'; set {option} (such as 'Europe/Berlin'): column "
        f"'{converted[0].name}' needs it to be converted to its declared type"
    )


def _needs_zone(column: MySqlColumn, target: pa.DataType) -> bool:
    is_instant = column.family == "timestamp"
    if pa.types.is_timestamp(target):
        return column.family in ("datetime", "timestamp") and is_instant != (target.tz is not None)
    return is_instant
