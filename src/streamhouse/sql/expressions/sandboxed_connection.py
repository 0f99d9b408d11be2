"""Sandboxed DuckDB connections for users' SQL: no files, no network, no Python variables.

The connections of a process share one empty in-memory database, since opening a database takes
30 ms and a connection to it 0.1 ms. Only temporary tables are private to a connection.
"""

import atexit
import os

import duckdb

from streamhouse.duckdb_database import open_database
from streamhouse.sql.functions.builtin_udfs import register

_databases: dict[int, duckdb.DuckDBPyConnection] = {}
"""By process id: a forked process must neither use nor close its parent's database."""


def sandboxed() -> duckdb.DuckDBPyConnection:
    """A new connection in UTC. Callers create only temporary tables in it, and close it."""
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
    """Close this process's database; DuckDB would otherwise report its functions as leaked."""
    if pid == os.getpid() and pid in _databases:
        _databases.pop(pid).close()


def _database() -> duckdb.DuckDBPyConnection:
    database = _databases.get(os.getpid())
    if database is None:
        database = open_database(threads=1, async_threads=0)
        # Otherwise DuckDB would look for files of that name when it binds an unknown relation.
        database.execute("SET enable_external_access = false")
        register(database)
        _databases[os.getpid()] = database
        atexit.register(_close, os.getpid())
    return database
