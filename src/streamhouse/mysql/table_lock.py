"""A short lock of a table: while it is held, no change of the table is in flight.

docs/decisions/001-mysql-chunks.md says why it is needed, and why there are two kinds.
"""

import contextlib
import itertools
import sys
import time
from typing import Any

import pymysql
from pymysql.constants import ER

from streamhouse.errors import ConnectError, TableError
from streamhouse.mysql.connection import close_quietly, code_of, connect, run
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server, TableDefinition, add_key
from streamhouse.mysql.values.types import quote

_READ_S = 2
"""How long to wait for a READ lock, which overlapping writers can keep waiting forever."""
_WRITE_S = (1, 2, 4, 8)
"""How long to wait for a WRITE lock then, in successive attempts; the last value is repeated.

Others wait for it meanwhile, and open transactions end.
"""
_DENIED = frozenset({ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR})
_TIMEOUT, _DEADLOCK = ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK
_QUIET_S, _PROGRESS_S, _PAUSE_S = 2.0, 10.0, 1.0
_IDLE_S = 60
"""The server ends a session that is idle for longer, such as one of a machine that died."""


class TableLock:
    """Keeps others from writing to a table, from `acquire` to `release`.

    While it is held, SELECTs see exactly the changes of the table that the binlog has. `acquire`
    also waits for prepared XA transactions.
    """

    def __init__(self, options: MySqlOptions, table: TableDefinition) -> None:
        self._options, self._table = options, table
        self._name = f"{quote(table.database)}.{quote(table.name)}"
        self.connection: pymysql.Connection[Any] = connect(options)

    def acquire(self) -> None:
        """Wait for the lock; `ConnectError` after `debezium.snapshot.lock.timeout.ms`.

        Raises `TableError` if the user may not lock the table.
        """
        # InnoDB locks the table, too, but only without autocommit. Its lock also waits for prepared
        # XA transactions whose session has ended, which hold no other lock.
        run(self.connection, f"SET SESSION autocommit = 0, wait_timeout = {_IDLE_S}")
        run(self.connection, "SET SESSION innodb_table_locks = 1")
        began = time.monotonic()
        reported = began + _QUIET_S - _PROGRESS_S
        for turn in itertools.count():
            seconds = _WRITE_S[min(turn, len(_WRITE_S) - 1)]
            if self.try_lock("READ", _READ_S) or self.try_lock("WRITE", seconds):
                return
            now = time.monotonic()
            if now - began >= self._options.lock_timeout_ms / 1000:
                raise self._timeout(now - began)
            if now - reported >= _PROGRESS_S:
                reported = now
                print(
                    f"MySQL table {self._table.full_name} has no key, so its snapshot waits for a "
                    f"lock; {now - began:.0f} s so far (a transaction that has changed it is open)",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(_PAUSE_S)

    def try_lock(self, kind: str, seconds: int) -> bool:
        """Lock the table within some seconds; returns whether that succeeded."""
        timeouts = f"lock_wait_timeout = {seconds}, innodb_lock_wait_timeout = {seconds}"
        run(self.connection, f"SET SESSION {timeouts}")
        try:
            run(self.connection, f"LOCK TABLES {self._name} {kind}")
            return True
        except pymysql.err.MySQLError as error:
            if code_of(error) in _DENIED:
                raise self._denied() from None
            if code_of(error) not in (_TIMEOUT, _DEADLOCK):
                raise
            run(self.connection, "UNLOCK TABLES")
            run(self.connection, "ROLLBACK")
            return False

    def position(self, server: Server) -> BinlogPosition:
        """The end of the binlog; raises an error if the session, and so the lock, has ended."""
        file, pos = run(self.connection, server.status_statement)[0][:2]
        return BinlogPosition(str(file), int(pos))

    def release(self) -> None:
        """Release the lock; can be called twice."""
        with contextlib.suppress(pymysql.err.MySQLError, OSError):
            run(self.connection, "UNLOCK TABLES")
        close_quietly(self.connection)

    def _denied(self) -> TableError:
        user, _, host = str(run(self.connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
        return TableError(
            f"MySQL table {self._table.full_name} has no key, so its snapshot has to lock it "
            f"briefly (LOCK TABLES), which user '{self._options.username}' may not do; run GRANT "
            f"LOCK TABLES ON {quote(self._table.database)}.* TO '{user}'@'{host}', or "
            f"{without_lock(self._table)}"
        )

    def _timeout(self, seconds: float) -> ConnectError:
        return ConnectError(
            f"MySQL table {self._table.full_name} has no key, so its snapshot has to lock it "
            f"briefly, and could not within {seconds:.0f} s: a transaction that has changed it is "
            "open (see information_schema.innodb_trx) or prepared (see XA RECOVER); end it, set "
            "'debezium.snapshot.lock.timeout.ms' to more milliseconds, or "
            f"{without_lock(self._table)}"
        )


def without_lock(table: TableDefinition) -> str:
    """How to follow a table without a key and without a lock; for messages."""
    return (
        f"{add_key(table)}, or leave out the rows that it has, with 'scan.startup.mode' = "
        "'latest-offset'"
    )


def check_lockable(options: MySqlOptions, table: TableDefinition) -> None:
    """Raise `TableError` if the user may not lock a table without a key; takes a READ lock."""
    lock = TableLock(options, table)
    try:
        lock.try_lock("READ", 1)
    finally:
        lock.release()
