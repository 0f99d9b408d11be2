"""Selects the columns of a MySQL table to read, and their Arrow types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.types import MySqlColumn
from streamhouse.errors import OptionError, TableError
from streamhouse.options import nearest
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

Selected = Sequence[tuple[MySqlColumn, pa.DataType]]
"""Columns with the Arrow types of their values."""


def selected_columns(
    options: MySqlOptions, available: Sequence[MySqlColumn], declared: Sequence[Column] | None
) -> list[tuple[MySqlColumn, pa.DataType]]:
    """Find the declared columns (None: all) by name; `TableError` for those that cannot be read."""
    if declared is None:
        return [(column, column.natural) for column in available]
    by_name = {column.name: column for column in available}
    selected = []
    for column in declared:
        if column.name not in by_name:
            raise TableError(
                f"MySQL table {options.name} has no column '{column.name}'; "
                f"{nearest(column.name, by_name)} (its columns: {', '.join(by_name)})"
            )
        selected.append((by_name[column.name], arrow_type(column.type)))
    for source, _ in selected:
        _ = source.family  # raises `TableError` for a type that is not supported
    return selected


def server_zone(session: Session, selected: Selected, option: str) -> str:
    """The time zone for converting between DATETIME and instants, which is UTC.

    Raises `OptionError` if a column needs that conversion and the server is in another zone: then
    the user has to set `option`.
    """
    converted = [
        column
        for column, target in selected
        if column.family in ("datetime", "timestamp") and target != column.natural
    ]
    if not converted:
        return "UTC"
    names = session.rows("SELECT @@global.time_zone, @@system_time_zone")[0]
    name = str(names[1] if names[0] == "SYSTEM" else names[0])
    if name in ("UTC", "GMT", "+00:00", "Etc/UTC"):
        return "UTC"
    raise OptionError(
        f"the server's time zone is '{name}'; set {option} (such as 'Europe/Berlin'): column "
        f"'{converted[0].name}' needs it to be converted to its declared type"
    )
