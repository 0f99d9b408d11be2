"""Streamhouse: real-time data views on PySpark and Apache Paimon, from a SQL script."""

from __future__ import annotations

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


def __getattr__(name: str) -> Any:
    # Imported on first use: many commands need no Spark, and its import is slow.
    if name == "register":
        from streamhouse.spark import register

        return register
    if name == "Changed":
        from streamhouse.runtime.batch.dml import Changed

        return Changed
    if name == "execute":
        from streamhouse.runtime.execute import execute

        return execute
    if name in ("sync_mysql_database", "sync_mysql_table"):
        from streamhouse.runtime.sync import run

        return getattr(run, name)
    raise AttributeError(f"module 'streamhouse' has no attribute '{name}'")
