"""Transactions that write, tried again after deadlocks and lost connections."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pymysql
from pymysql.constants import ER

from streamhouse.connectors.jdbc.target import JdbcTarget
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.mysql.connection import (
    Backoff,
    close_quietly,
    code_of,
    is_lost,
    open_connection,
    readable,
    run,
)

_T = TypeVar("_T")
_CONFLICTS = frozenset({ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.CHECKREAD})
_DEADLOCK_RETRIES = 10
_READ_SECONDS = 3600
_SESSION = (
    "SET time_zone = '+00:00', "
    "sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', "
    "net_read_timeout = 600"
)
_SHORTENED = frozenset({ER.WARN_DATA_TRUNCATED, ER.TRUNCATED_WRONG_VALUE})
"""Warnings, also in strict mode, about values that the server has rounded or cut off."""
_DATA = (pymysql.err.DataError, pymysql.err.IntegrityError)
_CHECK_FAILED = (3819, 4025)
"""Of MySQL, and of MariaDB."""
_SIGNAL = 1644
"""SIGNAL in a trigger."""
_REFUSED = frozenset(
    {
        ER.NO_DEFAULT_FOR_FIELD,
        ER.TRUNCATED_WRONG_VALUE,
        ER.TRUNCATED_WRONG_VALUE_FOR_FIELD,
        ER.CANT_AGGREGATE_2COLLATIONS,
        ER.CANT_AGGREGATE_3COLLATIONS,
        ER.CANT_AGGREGATE_NCOLLATIONS,
        *_CHECK_FAILED,
        _SIGNAL,
    }
)
"""Errors of values, which the client does not class as such."""


class Transaction:
    """An open transaction."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, text: bytes) -> None:
        """Run a statement that writes; `DataError` if the server has changed a value."""
        connection: Any = self.connection
        connection.query(text)
        if connection._result.warning_count:
            for _, code, message in connection.show_warnings():
                if int(code) in _SHORTENED:
                    raise pymysql.err.DataError(int(code), str(message))

    def rows(self, text: bytes) -> list[tuple[Any, ...]]:
        """The rows of a short SELECT."""
        connection: Any = self.connection
        connection.query(text)
        return list(connection._result.rows)


class Transactions:
    """Runs transactions over one connection, which is opened when needed.

    After a deadlock, a lock timeout or a lost connection a transaction runs again, at most
    `retries` times (None: ten times, and for five minutes while the server is away).
    """

    def __init__(self, options: JdbcTarget, retries: int | None) -> None:
        self._options = options
        self._retries = retries
        self._connection: pymysql.Connection[Any] | None = None

    def run(self, work: Callable[[Transaction], _T]) -> _T:
        """Run `work` and commit; it must bear to run again.

        Raises `TableError` if the server refuses a value, else `ConnectError`.
        """
        backoff = Backoff(self._options, retries=self._retries)
        conflicts = _DEADLOCK_RETRIES if self._retries is None else self._retries
        while True:
            try:
                return self._attempt(work)
            except StreamhouseError:
                self._roll_back()
                raise
            except (pymysql.err.MySQLError, OSError) as error:
                lost = is_lost(error)
                self.close() if lost else self._roll_back()
                if lost and backoff.wait(error):
                    continue
                if code_of(error) in _CONFLICTS and conflicts > 0:
                    conflicts -= 1
                    time.sleep(random.uniform(0.01, 0.2))
                    continue
                raise self._explained(error) from None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)

    def _attempt(self, work: Callable[[Transaction], _T]) -> _T:
        connection = self._connected()
        connection.begin()
        result = work(Transaction(connection))
        connection.commit()
        return result

    def _connected(self) -> pymysql.Connection[Any]:
        if self._connection is None:
            self._connection = open_connection(
                self._options, autocommit=False, read_timeout=_READ_SECONDS, init_command=_SESSION
            )
        return self._connection

    def _roll_back(self) -> None:
        if self._connection is None:
            return
        try:
            run(self._connection, "ROLLBACK")
        except (pymysql.err.MySQLError, OSError):
            self.close()

    def _explained(self, error: Exception) -> StreamhouseError:
        name = self._options.name
        if isinstance(error, _DATA) or code_of(error) in _REFUSED:
            return TableError(
                f"MySQL table {name} cannot hold a row: {error.args[1]} (error "
                f"{code_of(error)}); nothing of this batch was written. Change the query, such as "
                "by CAST or WHERE, or the table, then run the script again"
            )
        if code_of(error) == ER.NET_PACKET_TOO_LARGE:
            return TableError(
                f"MySQL table {name}: a row is longer than the server's max_allowed_packet "
                f"({error.args[1]}); raise it"
            )
        return readable(error, self._options)
