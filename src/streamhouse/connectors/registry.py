"""Finds connectors by name: `mysql-cdc` is the folder `mysql_cdc` with a `connector.py`.

Only the connectors that a script names are imported.
"""

import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module

from streamhouse import connectors
from streamhouse.close_matches import nearest
from streamhouse.connectors.base import Connector
from streamhouse.errors import OptionError, UnsupportedSqlError
from streamhouse.secret_references import resolve_secrets
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.syntax import TextPosition
from streamhouse.sql.types import base
from streamhouse.sql.views.stored_view import is_view


@cache
def names() -> tuple[str, ...]:
    """The names of all connectors, sorted."""
    modules = pkgutil.iter_modules(connectors.__path__)
    return tuple(sorted(module.name.replace("_", "-") for module in modules if module.ispkg))


@cache
def connector(name: str) -> Connector:
    """The connector of that name.

    Raises `OptionError` with the most similar name if there is none, or for what its folder lacks.
    """
    if name not in names():
        raise OptionError(f"unknown connector '{name}'; {nearest(name, names())}")
    path = f"{connectors.__name__}.{name.replace('-', '_')}.connector"
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        raise OptionError(
            f"connector '{name}' has a folder, but no module {path}; add it, and define CONNECTOR"
        ) from error
    loaded = getattr(module, "CONNECTOR", None)
    if not isinstance(loaded, Connector):
        raise OptionError(
            f"connector '{name}': {path} defines no CONNECTOR, or one that is not an instance of "
            "Connector; write CONNECTOR = C(), where C is its subclass of Connector"
        )
    for required in ("name", "summary", "capabilities"):
        if not hasattr(loaded, required):
            raise OptionError(
                f"connector '{name}': set {type(loaded).__name__}.{required} in {path}"
            )
    if loaded.name != name:
        raise OptionError(
            f"connector '{name}': {type(loaded).__name__}.name is '{loaded.name}' in {path}; "
            f"write '{name}', as its folder is named, or rename the folder"
        )
    return loaded


def declared(table: TableInfo) -> TableInfo:
    """The table with its connector's capabilities; unchanged if there is no such connector."""
    if table.connector not in names():
        return table
    kind = connector(table.connector)
    return replace(table, capabilities=kind.capabilities_of(table.options))


def check_declaration(table: TableInfo, where: str) -> list[str]:
    """Check a declared table; returns notices about options that have no effect.

    Raises `OptionError` for an unknown connector or option, or a value that is not allowed.
    """
    try:
        kind = connector(table.connector)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from error
    options = table_options(table)
    ignored = {key: why for key in options if (why := kind.no_effect(key)) is not None}
    effective = {key: value for key, value in options.items() if key not in ignored}
    _check_metadata(kind, table, where)
    kind.check(table, effective, where)
    return [f"{where}: option '{key}' has no effect here: {why}" for key, why in ignored.items()]


def check_sink(table: TableInfo, position: TextPosition) -> None:
    """Raise `UnsupportedSqlError` for the target of an INSERT that no statement can write.

    That is a view, which its own query writes, or a table whose connector has no sink.
    """
    if is_view(table):
        raise UnsupportedSqlError.at(
            position,
            f"{table.name[-1]} is a materialized view, which only its query writes; change the "
            "tables that it reads",
        )
    if not table.capabilities.sink:
        sinks = [n for n in names() if n != "paimon" and connector(n).capabilities.sink]
        raise UnsupportedSqlError.at(
            position,
            f"INSERT into a {table.connector} table, whose connector has no sink; the target must "
            f"be a Paimon table, or a table of one of these connectors: {', '.join(sinks)}",
        )


def _check_metadata(kind: Connector, table: TableInfo, where: str) -> None:
    """Raise `OptionError` for a METADATA column that the connector cannot fill."""
    types = {entry.key: entry.type for entry in kind.metadata}
    for column in table.columns:
        if column.metadata is None:
            continue
        if not types:
            raise OptionError(
                f"{where}: connector '{kind.name}' has no metadata; leave out METADATA column "
                f"'{column.name}'"
            )
        if column.metadata not in types:
            raise OptionError(
                f"{where}: column '{column.name}': connector '{kind.name}' has no metadata key "
                f"'{column.metadata}'; {nearest(column.metadata, types)}"
            )
        wanted = types[column.metadata]
        if base(column.type) != base(wanted):
            raise OptionError(
                f"{where}: METADATA column '{column.name}' is {column.type}; declare it as {wanted}"
            )


def table_options(table: TableInfo) -> Mapping[str, str]:
    """The options of a declared table that its connector reads, secrets by reference."""
    return {key: value for key, value in table.options.items() if key != "connector"}


def effective_options(table: TableInfo, hint: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options of a table, overridden by a hint, with the secrets that they refer to."""
    return resolve_secrets(
        {**table_options(table), **(hint or {})}, f"table {'.'.join(table.name[1:])}"
    )
