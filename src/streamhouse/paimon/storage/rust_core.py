"""Catalogs and SQL contexts of Paimon's Rust core, cached per process and catalog options.

Their connections do not survive a fork, so each process has its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.paimon.storage.object_store.s3_client import check_bucket, core_options
from streamhouse.sql.options.catalog_options import file_system_options
from streamhouse.sql.options.store_options import is_object_store

ERRORS = (ValueError, RuntimeError, OSError)
"""The exceptions that the Rust core raises."""
CATALOG_ERRORS = (*ERRORS, KeyError)
"""The exceptions that its catalog raises."""

_GONE = re.compile(
    r"\bNotFound \(|entity not found|No such file|NoSuchKey|Snapshot \d+ does not exist"
    r"|\b(?:file|object|location|path)\b[^'\"]* not found",
    re.IGNORECASE,
)
"""Not any `not found`: the core says so of columns that options name, too."""
_TRIES = 10
_CATALOG = "paimon"
_Key = tuple[int, tuple[tuple[str, str], ...], int]
_CACHE = {
    "local-cache.enabled": "true",
    "local-cache.max-size": "64 mb",
    "local-cache.whitelist": "meta",
}
"""The core keeps snapshots, schemas and manifests in memory. Manifests never change; the others do
if a table is rolled back or created again, and the core does not notice that."""
_catalogs: dict[_Key, Any] = {}
_contexts: dict[_Key, Any] = {}
_generation = 0


def catalog(options: Mapping[str, str], caches: bool = False) -> Any:
    """The catalog that these options open (`warehouse`, `s3.*`, …).

    If it `caches` metadata, the caller must call `forget_metadata` when a table was rolled back or
    created again, and open its tables anew.
    """
    key = _key(options, _generation + 1 if caches else 0)
    if key not in _catalogs:
        _check(options)
        cache = _CACHE if caches else {}
        _catalogs[key] = PaimonCatalog(core_options(file_system_options(options)) | cache)
    return _catalogs[key]


def metadata_generation() -> int:
    """A number that changes when `forget_metadata` is called."""
    return _generation


def forget_metadata() -> None:
    """Forget the metadata that catalogs have cached."""
    global _generation
    for key in [key for key in list(_catalogs) if key[2]]:
        _catalogs.pop(key, None)
    _generation += 1


def sql_context(options: Mapping[str, str]) -> Any:
    """The SQL context for `query` that the process shares: do not change its settings."""
    key = _key(options)
    if key not in _contexts:
        _contexts[key] = new_sql_context(options)
    return _contexts[key]


def new_sql_context(options: Mapping[str, str]) -> Any:
    """A SQL context for the caller alone, in which `SET` may change how tables are read."""
    context = SQLContext()
    # No default database: the core would create it.
    context.register_catalog(_CATALOG, core_options(file_system_options(options)), "")
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

    `version` is empty or a clause ` VERSION AS OF …`, `condition` empty or ` WHERE …`. Without a
    version, tries up to 10 times if files expire meanwhile. Raises `DataLossError` if a file has
    expired, else `StreamhouseError`.
    """
    items = ", ".join(quoted(name) for name in columns)
    path = ".".join(quoted(part) for part in (_CATALOG, database, table))
    text = f"SELECT {items} FROM {path}{version}{condition}"
    for attempts_left in reversed(range(_TRIES)):
        try:
            batches: list[pa.RecordBatch] = context.sql(text)
            break
        except ERRORS as error:
            # Snapshot expiry may delete files after they were listed and before they are read.
            if version or not attempts_left or not is_gone(error):
                raise _read_error(f"{database}.{table}", error) from error
    return batches


def is_gone(error: BaseException) -> bool:
    """Whether the reason of an error is a missing file or snapshot."""
    return _GONE.search(str(error)) is not None


def _read_error(identifier: str, error: Exception) -> StreamhouseError:
    """The error of a read: `DataLossError` if a file expired meanwhile."""
    text = " ".join(str(error).split())
    if is_gone(error):
        return DataLossError(
            f"table {identifier}: a file that it reads expired meanwhile; try again: {text}"
        )
    return StreamhouseError(f"table {identifier} cannot be read: {text}")


def quoted(name: str) -> str:
    """A name in double quotes, as the SQL of the Rust core takes it."""
    return '"' + name.replace('"', '""') + '"'


def _check(options: Mapping[str, str]) -> None:
    """Check that the store answers; the core itself would try for minutes."""
    if is_object_store(options["warehouse"]):
        check_bucket(options, options["warehouse"])


def _key(options: Mapping[str, str], generation: int = 0) -> _Key:
    return os.getpid(), tuple(sorted(options.items())), generation
