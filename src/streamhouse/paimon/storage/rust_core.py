"""Catalogs and SQL contexts of Paimon's Rust core, cached per process and catalog options.

Their connections do not survive a fork, so each process has its own.
"""

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
_Key = tuple[int, tuple[tuple[str, str], ...]]
_catalogs: dict[_Key, Any] = {}
_contexts: dict[_Key, Any] = {}


def catalog(options: Mapping[str, str]) -> Any:
    """The catalog that these options open (`warehouse`, `s3.*`, …)."""
    key = _key(options)
    if key not in _catalogs:
        if is_object_store(options["warehouse"]):
            # The core itself would try for minutes to reach a store that does not answer.
            check_bucket(options, options["warehouse"])
        _catalogs[key] = PaimonCatalog(core_options(file_system_options(options)))
    return _catalogs[key]


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


def _key(options: Mapping[str, str]) -> _Key:
    return os.getpid(), tuple(sorted(options.items()))
