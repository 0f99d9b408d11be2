"""Handles of Paimon's Rust core, one of each per process and catalog.

Connections of a process do not survive a fork, so each process has its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

ERRORS = (ValueError, RuntimeError, OSError)
"""What the Rust core raises."""
CATALOG_ERRORS = (*ERRORS, KeyError)
"""What its catalog raises."""

_GONE = re.compile(r"not found|No such file|Snapshot \d+ does not exist", re.IGNORECASE)
_TRIES = 10
_CATALOG = "paimon"
_Key = tuple[int, tuple[tuple[str, str], ...]]
_catalogs: dict[_Key, Any] = {}
_contexts: dict[_Key, Any] = {}


def catalog(options: Mapping[str, str]) -> Any:
    """The catalog that these options open (`warehouse`, `s3.*`, …)."""
    key = _key(options)
    if key not in _catalogs:
        _catalogs[key] = PaimonCatalog(dict(options))
    return _catalogs[key]


def sql_context(options: Mapping[str, str]) -> Any:
    """A context for `query`, which others use, too: set nothing in it."""
    key = _key(options)
    if key not in _contexts:
        _contexts[key] = new_sql_context(options)
    return _contexts[key]


def new_sql_context(options: Mapping[str, str]) -> Any:
    """A context of the caller's own, in which `SET` may change how tables are read."""
    context = SQLContext()
    # Without a default database, lest it be made.
    context.register_catalog(_CATALOG, dict(options), "")
    return context


def query(
    context: Any,
    database: str,
    table: str,
    columns: Sequence[str],
    version: str = "",
    condition: str = "",
) -> list[pa.RecordBatch]:
    """Columns of a table or system table (`orders$files`).

    `version` is empty or a clause ` VERSION AS OF …`, `condition` empty or ` WHERE …`. Raises one
    of `ERRORS`; `is_gone` tells whether a file has expired.
    """
    items = ", ".join(quoted(name) for name in columns)
    path = ".".join(quoted(part) for part in (_CATALOG, database, table))
    text = f"SELECT {items} FROM {path}{version}{condition}"
    for left in reversed(range(_TRIES)):
        try:
            found: list[pa.RecordBatch] = context.sql(text)
            break
        except ERRORS as error:
            # Snapshot expiry removes files between their listing and their reading.
            if version or not left or not is_gone(error):
                raise
    return found


def is_gone(error: Exception) -> bool:
    """Whether a file or a snapshot was not there."""
    return _GONE.search(str(error)) is not None


def quoted(name: str) -> str:
    """A name in double quotes, as the SQL of the Rust core takes it."""
    return '"' + name.replace('"', '""') + '"'


def _key(options: Mapping[str, str]) -> _Key:
    return os.getpid(), tuple(sorted(options.items()))
