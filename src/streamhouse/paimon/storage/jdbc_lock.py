"""The lock of Paimon's JDBC catalog: a row of its database, which Flink and Spark take, too."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pymysql

from streamhouse.errors import CommitConflictError, ConnectError, OptionError
from streamhouse.options import duration_ms
from streamhouse.sql.options.store_options import is_object_store

_EXPIRES = "lock-acquire-timeout"
_POLL_S, _MAX_POLL_S = 0.01, 0.5
_SQLITE, _MYSQL = "jdbc:sqlite:", "jdbc:mysql:"
_DUPLICATE_KEY = 1062
_SQLITE_DUPLICATE_KEY = sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE
_ID_LENGTH = 255
_TABLE = (
    "CREATE TABLE IF NOT EXISTS paimon_distributed_locks (lock_id VARCHAR({}) NOT NULL,"
    "acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL,"
    "expire_time_seconds BIGINT DEFAULT 0 NOT NULL,PRIMARY KEY (lock_id))"
)
_INSERT = "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES ({0}, {0})"
_DELETE = "DELETE FROM paimon_distributed_locks WHERE lock_id = {}"
_AGE = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "mysql": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
}


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
    dead process.
    """
    database, _, table = location.rpartition("/")
    key = options.get("catalog-key", "jdbc")
    lock_id = f"{key}.{database.rpartition('/')[2].removesuffix('.db')}.{table}"
    expires_s = duration_ms(_EXPIRES, options.get(_EXPIRES, "8 min")) // 1000
    with contextlib.closing(_Lock(options, lock_id)) as lock:
        deadline, pause = time.monotonic() + wait_s, _POLL_S
        while not lock.try_acquire(expires_s):
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
            lock.release()


class _Lock:
    """A lock: a row of the table of locks in the catalog's database."""

    def __init__(self, options: Mapping[str, str], lock_id: str) -> None:
        self._id = lock_id
        uri = options.get("uri", "")
        self._connection: Any
        try:
            if uri.startswith(_SQLITE):
                self._kind, self._mark = "sqlite", "?"
                path = uri.removeprefix(_SQLITE)
                self._connection = sqlite3.connect(
                    path, timeout=30, isolation_level=None, uri=path.startswith("file:")
                )
            elif uri.startswith(_MYSQL):
                self._kind, self._mark = "mysql", "%s"
                self._connection = _mysql(uri, options)
            else:
                raise OptionError(
                    f"option 'uri': '{uri}' is neither a {_SQLITE} nor a {_MYSQL} URL"
                )
        except (pymysql.Error, sqlite3.Error) as error:
            raise ConnectError(f"the catalog's database does not answer: {error}") from None
        try:
            with self._errors():
                self._execute(_TABLE.format(_ID_LENGTH))
        except ConnectError:
            self.close()
            raise

    def try_acquire(self, expires_s: int) -> bool:
        """Try to insert the lock's row; first delete one that has expired."""
        with self._errors():
            self._execute(
                f"{_DELETE.format(self._mark)} AND {_AGE[self._kind]} > expire_time_seconds",
                self._id,
            )
            try:
                self._execute(_INSERT.format(self._mark), self._id, expires_s)
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorcode not in _SQLITE_DUPLICATE_KEY:
                    raise
                return False
            except pymysql.IntegrityError as error:
                if error.args[0] != _DUPLICATE_KEY:
                    raise
                return False
        return True

    def release(self) -> None:
        with self._errors():
            self._execute(_DELETE.format(self._mark), self._id)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the database's errors into `ConnectError`."""
        try:
            yield
        except (pymysql.Error, sqlite3.Error) as error:
            raise ConnectError(
                f"the catalog's database refuses the lock '{self._id}': {error}"
            ) from None

    def _execute(self, statement: str, *values: object) -> None:
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(statement, values)


def _mysql(uri: str, options: Mapping[str, str]) -> Any:
    parts = urlsplit(uri.removeprefix("jdbc:"))
    given = {k.removeprefix("jdbc."): v for k, v in options.items() if k.startswith("jdbc.")}
    given |= dict(parse_qsl(parts.query))
    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=given.get("user") or given.get("username"),
        password=given.get("password", ""),
        database=parts.path.lstrip("/"),
        autocommit=True,
        connect_timeout=10,
    )
