"""DuckDB connections for texts of users: without files, network or Python's variables.

The connections of a process share one empty database in memory, since opening a database takes
30 ms and opening a connection of it 0.1 ms. Only temporary tables are a connection's own.
"""

from __future__ import annotations

import atexit
import os

import duckdb

from streamhouse.sql.functions.arrow import register

_databases: dict[int, duckdb.DuckDBPyConnection] = {}
"""By process id: a fork must not use, nor close, the database of its parent."""


def sealed() -> duckdb.DuckDBPyConnection:
    """A new connection, in UTC; make only temporary tables in it, and close it."""
    try:
        return _connection()
    except duckdb.Error:
        # An internal error of DuckDB makes the whole database unusable.
        _databases.pop(os.getpid(), None)
        return _connection()


def _connection() -> duckdb.DuckDBPyConnection:
    connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _close(pid: int) -> None:
    """Close the database of this process, whose functions DuckDB would tell to be leaked."""
    if pid == os.getpid() and pid in _databases:
        _databases.pop(pid).close()


def _database() -> duckdb.DuckDBPyConnection:
    found = _databases.get(os.getpid())
    if found is None:
        found = duckdb.connect(
            ":memory:", config={"threads": 1, "python_enable_replacements": "false"}
        )
        # A name of no relation would otherwise be looked for in files when a query is bound.
        found.execute("SET enable_external_access = false")
        register(found)
        _databases[os.getpid()] = found
        atexit.register(_close, os.getpid())
    return found
