"""Catalogs and SQL contexts of Paimon's Rust core, cached per process and catalog options.

Their connections do not survive a fork, so each process has its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

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
CATALOG = "paimon"
"""Its name in SQL contexts."""
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
    """The SQL context that the process shares: do not change its settings."""
    key = _key(options)
    if key not in _contexts:
        _contexts[key] = new_sql_context(options)
    return _contexts[key]


def new_sql_context(options: Mapping[str, str]) -> Any:
    """A SQL context for the caller alone, in which `SET` may change how tables are read."""
    context = SQLContext()
    # No default database: the core would create it.
    context.register_catalog(CATALOG, core_options(file_system_options(options)), "")
    return context


def is_gone(error: BaseException) -> bool:
    """Whether the reason of an error is a missing file or snapshot."""
    return _GONE.search(str(error)) is not None


def quoted(name: str) -> str:
    """A name in double quotes, as the SQL of the Rust core takes it."""
    return '"' + name.replace('"', '""') + '"'


def _check(options: Mapping[str, str]) -> None:
    """Check that the store answers; the core itself would try for minutes."""
    if is_object_store(options["warehouse"]):
        check_bucket(options, options["warehouse"])


def _key(options: Mapping[str, str], generation: int = 0) -> _Key:
    return os.getpid(), tuple(sorted(options.items())), generation
