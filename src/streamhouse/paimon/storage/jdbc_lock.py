"""The lock of Paimon's JDBC catalog: a row of its database, which Flink and Spark take, too."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pymysql

from streamhouse.errors import CommitConflictError, ConnectError, OptionError
from streamhouse.options import duration_ms
from streamhouse.sql.options.store_options import is_object_store

_EXPIRES = "lock-acquire-timeout"
_POLL_S, _MAX_POLL_S = 0.01, 0.5
_TABLE = (
    "CREATE TABLE IF NOT EXISTS paimon_distributed_locks (lock_id VARCHAR(255) NOT NULL,"
    "acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL,"
    "expire_time_seconds BIGINT DEFAULT 0 NOT NULL,PRIMARY KEY (lock_id))"
)
_INSERT = "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES (?, ?)"
_DELETE = "DELETE FROM paimon_distributed_locks WHERE lock_id = ?"
_AGE = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "mysql": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
}
_DUPLICATE_KEY = (
    1062,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
)
"""The codes of the databases for a row whose key exists."""


def is_enabled(options: Mapping[str, str]) -> bool:
    """Whether commits to tables of a catalog take its lock, as in Paimon.

    That is a JDBC catalog with `lock.enabled`, whose default is `true` for object stores.
    """
    if options.get("metastore") != "jdbc":
        return False
    default = str(is_object_store(options["warehouse"])).lower()
    return options.get("lock.enabled", default).lower() == "true"


@contextmanager
def jdbc_lock(
    options: Mapping[str, str], location: str, wait_s: float, activity: str
) -> Iterator[None]:
    """Hold the catalog's lock of the table at `location`; `CommitConflictError` after `wait_s` s.

    A lock that is older than the catalog's `lock-acquire-timeout` (8 minutes) counts as left by a
    dead process. Raises `ConnectError` if the catalog's database fails.
    """
    database, _, table = location.rpartition("/")
    key = options.get("catalog-key", "jdbc")
    lock_id = f"{key}.{database.rpartition('/')[2].removesuffix('.db')}.{table}"
    expires_s = duration_ms(_EXPIRES, options.get(_EXPIRES, "8 min")) // 1000
    # Imported here, since it takes half a second.
    from pypaimon.catalog.jdbc_catalog import _DbApiConnection

    refused = f"refuses the lock '{lock_id}'"
    try:
        with database_errors("does not answer"):
            opened = _DbApiConnection(dict(options))
    except ValueError as error:
        raise OptionError(f"option 'uri': {error}") from None
    with contextlib.closing(opened) as connection:
        with database_errors(refused):
            if connection.protocol == "sqlite":
                connection.execute("PRAGMA busy_timeout = 30000")
            _execute(connection, _TABLE)
        deadline, pause = time.monotonic() + wait_s, _POLL_S
        while not _try_acquire(connection, lock_id, expires_s, refused):
            if time.monotonic() > deadline:
                raise CommitConflictError(
                    f"another process has been {activity} for more than {wait_s:g} s (it holds the "
                    f"lock '{lock_id}' of the catalog's database); end it and try again"
                )
            time.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_S)
        try:
            yield
        finally:
            with database_errors(refused):
                _execute(connection, _DELETE, lock_id)


@contextmanager
def database_errors(problem: str) -> Iterator[None]:
    """Raise errors of the catalog's database as `ConnectError`, which says the `problem`."""
    try:
        yield
    except (pymysql.Error, sqlite3.Error) as error:
        raise ConnectError(f"the catalog's database {problem}: {error}") from None


def _try_acquire(connection: Any, lock_id: str, expires_s: int, refused: str) -> bool:
    """Try to insert the lock's row; first delete one that has expired."""
    age = _AGE[connection.protocol]
    with database_errors(refused):
        _execute(connection, f"{_DELETE} AND {age} > expire_time_seconds", lock_id)
        try:
            _execute(connection, _INSERT, lock_id, expires_s)
        except (sqlite3.IntegrityError, pymysql.IntegrityError) as error:
            if getattr(error, "sqlite_errorcode", error.args[0]) not in _DUPLICATE_KEY:
                raise
            return False
    return True


def _execute(connection: Any, statement: str, *values: object) -> None:
    with connection.transaction():
        connection.execute(statement, values)
