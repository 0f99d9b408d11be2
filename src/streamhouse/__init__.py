"""Streamhouse: real-time data views on PySpark and Apache Paimon, from a SQL script."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamhouse.runtime.batch.dml import Changed
    from streamhouse.runtime.execute import execute
    from streamhouse.runtime.sync.run import sync_mysql_database, sync_mysql_table
    from streamhouse.spark import register

__all__ = [
    "Changed",
    "__version__",
    "execute",
    "register",
    "sync_mysql_database",
    "sync_mysql_table",
]

__version__ = "0.1.0"

_MODULES = {
    "Changed": "runtime.batch.dml",
    "execute": "runtime.execute",
    "register": "spark",
    "sync_mysql_database": "runtime.sync.run",
    "sync_mysql_table": "runtime.sync.run",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: many commands need no Spark, and its import is slow.
    if name in _MODULES:
        return getattr(import_module(f"streamhouse.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'streamhouse' has no attribute '{name}'")
