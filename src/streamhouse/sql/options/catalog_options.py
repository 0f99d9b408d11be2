"""Options of CREATE CATALOG: those of Paimon's file system catalog, in all its releases."""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.errors import OptionError
from streamhouse.options import boolean, check_known, choice

TABLE_DEFAULT = "table-default."
"""`table-default.<option>`: the default of a table option for tables created in the catalog."""
DEFAULT_DATABASE = "default-database"
_FILE_SYSTEMS = ("s3.", "fs.", "oss.")
_EFFECTIVE = ("type", "warehouse", "metastore", DEFAULT_DATABASE, "table.type")

_CACHE = "schemas and manifests are cached as needed"
_LOCK = "commits are always locked"
_CASE = "names keep their case"

WITHOUT_EFFECT: Mapping[str, str] = {
    "allow-upper-case": _CASE,
    "cache-enabled": _CACHE,
    "cache.deletion-vectors.max-num": _CACHE,
    "cache.expiration-interval": _CACHE,
    "cache.expire-after-access": _CACHE,
    "cache.expire-after-write": _CACHE,
    "cache.manifest.max-memory": _CACHE,
    "cache.manifest.small-file-memory": _CACHE,
    "cache.manifest.small-file-threshold": _CACHE,
    "cache.partition.max-num": _CACHE,
    "cache.snapshot.max-num-per-table": _CACHE,
    "case-sensitive": _CASE,
    "client-pool-size": "there is no server to connect to",
    "disable-create-table-in-default-db": "tables can be created in every database",
    "file-io.allow-cache": _CACHE,
    "file-io.populate-meta": _CACHE,
    "format-table.enabled": "there are no format tables",
    "lineage-meta": "lineage is stored in a side table of each target",
    "lock-acquire-timeout": _LOCK,
    "lock-check-max-sleep": _LOCK,
    "lock.enabled": _LOCK,
    "lock.type": _LOCK,
    "log.system.auto-register": "the log system was removed in Paimon 1.4",
    "log.system.auto-register-timeout": "the log system was removed in Paimon 1.4",
    "resolving-file-io.enabled": "tables are in the warehouse",
    "sync-all-properties": "there is no metastore to copy options to",
}
"""Options without effect here, and why."""


def check_catalog(options: Mapping[str, str], where: str) -> list[str]:
    """Check the options of CREATE CATALOG; `OptionError` for unknown keys and wrong values.

    Returns a notice for each option that has no effect here.
    """
    own = [key for key in options if not key.startswith((*_FILE_SYSTEMS, TABLE_DEFAULT))]
    check_known(own, (*_EFFECTIVE, *WITHOUT_EFFECT), where)
    choice("metastore", options.get("metastore", "filesystem"), ["filesystem"])
    choice("table.type", options.get("table.type", "managed"), ["managed"])
    if key := next((key for key in ("case-sensitive", "allow-upper-case") if key in options), None):
        boolean(key, options[key])
    ineffective = (key for key in own if key in WITHOUT_EFFECT)
    return [f"option '{key}' has no effect here: {WITHOUT_EFFECT[key]}" for key in ineffective]


def of_warehouse(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the warehouse itself: its path, and those of its file system."""
    return {k: v for k, v in options.items() if k == "warehouse" or k.startswith(_FILE_SYSTEMS)}


def table_defaults(options: Mapping[str, str]) -> dict[str, str]:
    """The table defaults that CREATE CATALOG sets, without their prefix."""
    return {
        key.removeprefix(TABLE_DEFAULT): value
        for key, value in options.items()
        if key.startswith(TABLE_DEFAULT)
    }


def default_database(options: Mapping[str, str], otherwise: str) -> str:
    """The database for names without one; `OptionError` if the option is empty."""
    name = options.get(DEFAULT_DATABASE, otherwise).strip()
    if not name:
        raise OptionError(f"option '{DEFAULT_DATABASE}' is empty; name a database")
    return name
