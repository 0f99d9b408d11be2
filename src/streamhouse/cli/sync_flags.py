"""The flags of `streamhouse sync`, for `with_flags`."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

from streamhouse.cli.arguments import (
    DEFAULT_MASTER,
    DEFAULT_WAREHOUSE,
    ConfArgument,
    MasterArgument,
    OptionsArgument,
    WarehouseArgument,
)
from streamhouse.cli.flags import Flag
from streamhouse.options import table_of

_TABLE = table_of(__package__, "sync_flags.toml")
_KINDS: Mapping[str, tuple[Any, Any]] = {
    "text": (str, ""),
    "optional": (str | None, None),
    "path": (Path | None, None),
    "switch": (bool, False),
    "repeated": (list[str] | None, None),
    "required": (str, Parameter.empty),
    "required-list": (list[str], Parameter.empty),
}
"""The type and the default of the flags of each kind."""


def _shared(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flag(entry: Mapping[str, Any]) -> Flag:
    kind, default = _KINDS[entry.get("kind", "text")]
    default, hidden = entry.get("default", default), entry.get("hidden", False)
    return Flag(entry.get("metavar"), entry["help"], kind=kind, default=default, hidden=hidden)


def _flags(section: str) -> dict[str, Flag | Parameter]:
    return {name: _flag(entry) for name, entry in _TABLE[section].items()}


_TARGET = _flags("target")
_TABLE_NAME = _TARGET.pop("table")
_TARGET["warehouse"] = _shared("warehouse", WarehouseArgument, DEFAULT_WAREHOUSE)
_OF_TABLES = _flags("tables")
_OF_RUNS = {
    **_flags("runs"),
    "master": _shared("master", MasterArgument, DEFAULT_MASTER),
    "conf": _shared("conf", ConfArgument, None),
    "option": _shared("option", OptionsArgument, None),
}
RUN_FLAGS = frozenset({"warehouse", "catalog_conf", "eager_init", *_OF_RUNS})
"""Flags that are no arguments of `sync_table_options` and `sync_database_options`."""
DATABASE_FLAGS: Mapping[str, Flag | Parameter] = {
    **_TARGET,
    **_flags("databases"),
    **_OF_TABLES,
    **_OF_RUNS,
}
TABLE_FLAGS: Mapping[str, Flag | Parameter] = {
    "database": _TARGET["database"],
    "table": _TABLE_NAME,
    **_TARGET,
    **_OF_TABLES,
    **_OF_RUNS,
}
