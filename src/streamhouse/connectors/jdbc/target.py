"""The MySQL table that a sink writes, and transactions that write it, tried again if they must."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pymysql
from pymysql.constants import ER

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.mysql.columns import selected_columns, server_zone
from streamhouse.mysql.connection import (
    Backoff,
    Session,
    close_quietly,
    code_of,
    is_lost,
    open_connection,
    readable,
    run,
)
from streamhouse.mysql.metadata import metadata
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import KEYS, TABLES, load_columns, missing_table
from streamhouse.mysql.values.types import MySqlColumn, quote
from streamhouse.sql.plan import Column
from streamhouse.sql.types import digits

Connection: TypeAlias = "pymysql.Connection[Any]"
_TRANSACTIONAL = ("innodb", "rocksdb", "tokudb")


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
_DENIED = frozenset(
    {
        ER.DBACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.COLUMNACCESS_DENIED_ERROR,
        ER.SPECIFIC_ACCESS_DENIED_ERROR,
    }
)
_COLUMNS = """(
  query_id VARCHAR(64) CHARACTER SET ascii NOT NULL PRIMARY KEY,
  batch BIGINT NOT NULL,
  target VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
  committed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
) ENGINE = InnoDB"""


@dataclass(frozen=True)
class TargetTable:
    """A table as it is when its query starts.

    `columns` are those that are written, in the sink's order; `key` those of the declared primary
    key, which the index `index` of the table holds. `other_keys`: the table's other unique indexes.
    `engine` is its storage engine, `packet_bytes` the longest statement that the server takes.
    """

    name: str
    quoted: str
    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...]
    zone: str
    engine: str
    other_keys: tuple[str, ...]
    packet_bytes: int

    @property
    def transactional(self) -> bool:
        """Whether a transaction changes the table completely or not at all."""
        return self.engine.lower() in _TRANSACTIONAL


def load_target(
    options: MySqlOptions, declared: Sequence[Column], key: Sequence[str]
) -> TargetTable:
    """Inspect the table; raises `TableError` if the declared columns or key do not fit it."""
    with closing(Session(options)) as session:
        selected = selected_columns(options, load_columns(session, options), declared)
        zone = server_zone(session, options, selected, "serverTimezone in the option 'url'")
        names = (options.database, options.table)
        facts, keys = metadata(session, [TABLES, KEYS], [names])
        if not facts:
            raise missing_table(session, options)
        unique = _unique_keys(keys.get(names, ()))
        kind, engine = facts[names][0][:2]
        packet = session.rows("SELECT @@max_allowed_packet")[0][0]
    if kind in ("VIEW", "SYSTEM VIEW"):
        raise TableError(f"MySQL table {options.name} is a view; write its base table")
    for column, target in selected:
        _check_column(options, column, target, zone)
    index = None if not key else _check_key(options, unique, key)
    _check_key_digits(options, declared, [column for column, _ in selected], key)
    return TargetTable(
        options.name,
        f"{quote(options.database)}.{quote(options.table)}",
        tuple(column for column, _ in selected),
        tuple(key),
        zone,
        str(engine),
        tuple(name for name in unique if name != index),
        int(packet),
    )


def _unique_keys(parts: Sequence[tuple[object, ...]]) -> dict[str, set[str]]:
    """The columns of each unique index; an index over prefixes or expressions has none."""
    unique: dict[str, set[str]] = {}
    partial: set[str] = set()
    for index, column, prefix in parts:
        unique.setdefault(str(index), set()).add(str(column).lower())
        if column is None or prefix is not None:
            partial.add(str(index))
    return {name: set() if name in partial else columns for name, columns in unique.items()}


def _check_key(options: MySqlOptions, unique: dict[str, set[str]], key: Sequence[str]) -> str:
    """The unique index of exactly the declared key; any other would update other rows."""
    wanted = {name.lower() for name in key}
    found = [name for name, columns in unique.items() if columns == wanted]
    if not found:
        columns = ", ".join(quote(name) for name in key)
        indexes = "; ".join(
            f"{name} ({', '.join(sorted(own))})" for name, own in unique.items() if own
        )
        raise TableError(
            f"MySQL table {options.name} has no unique index of exactly the PRIMARY KEY "
            f"({', '.join(key)}) that the table declares, so rows cannot be updated by it (its "
            f"unique indexes: {indexes or 'none'}); declare one of these, or run ALTER TABLE "
            f"{quote(options.database)}.{quote(options.table)} ADD UNIQUE ({columns})"
        )
    return min(found, key=lambda name: name != "PRIMARY")


def _check_key_digits(
    options: MySqlOptions,
    declared: Sequence[Column],
    columns: Sequence[MySqlColumn],
    key: Sequence[str],
) -> None:
    """Raise `TableError` if MySQL would cut off digits of the key, so that two keys become one."""
    for declaration, column in zip(declared, columns, strict=True):
        timestamp = (
            column.family in ("datetime", "timestamp") and "TIMESTAMP" in declaration.type.upper()
        )
        if declaration.name in key and timestamp and digits(declaration.type) > column.fraction:
            raise TableError(
                f"MySQL table {options.name}: column '{column.name}' ({column.column_type}) of the "
                f"PRIMARY KEY does not hold all digits of {declaration.type}; declare it as "
                f"TIMESTAMP({column.fraction}), or change the column"
            )


def _check_column(options: MySqlOptions, column: MySqlColumn, kind: pa.DataType, zone: str) -> None:
    where = f"MySQL table {options.name}: column '{column.name}' ({column.column_type})"
    if column.extra == "generated":
        raise TableError(f"{where} is generated by the server; declare the table without it")
    if column.family == "geometry":
        raise TableError(f"{where} cannot be written; declare the table without it")
    texts = pa.types.is_string(kind) and column.family == "timestamp" and zone != "UTC"
    if texts:
        raise TableError(f"{where} cannot be written as text; declare it as TIMESTAMP_LTZ")
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        raise TableError(
            f"{where} is declared with nanoseconds, which MySQL does not hold; declare it as "
            "TIMESTAMP(6)"
        )
    nested = pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind)
    if nested and not (pa.types.is_list(kind) and column.family == "set"):
        raise TableError(
            f"{where} cannot hold a ROW, ARRAY or MAP; declare it as STRING, and write JSON"
        )


def execute(connection: Connection, text: bytes) -> None:
    """Run a statement that writes; `DataError` if the server has changed a value."""
    client: Any = connection
    client.query(text)
    if client._result.warning_count:
        for _, code, message in client.show_warnings():
            if int(code) in _SHORTENED:
                raise pymysql.err.DataError(int(code), str(message))


class Transactions:
    """Runs transactions over one connection, which is opened when needed.

    After a deadlock, a lock timeout or a lost connection a transaction runs again, at most
    `retries` times (None: ten times, and for five minutes while the server is away).
    """

    def __init__(self, options: MySqlOptions, retries: int | None) -> None:
        self._options = options
        self._retries = retries
        self._connection: Connection | None = None

    def run(self, work: Callable[[Connection], _T]) -> _T:
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
        close_quietly(connection)

    def _attempt(self, work: Callable[[Connection], _T]) -> _T:
        if self._connection is None:
            self._connection = open_connection(
                self._options, autocommit=False, read_timeout=_READ_SECONDS, init_command=_SESSION
            )
        self._connection.begin()
        result = work(self._connection)
        self._connection.commit()
        return result

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


class CommitsTable:
    """One row for each query: the number of the last batch that it has committed to `target`.

    The row is locked from the beginning of a transaction to its end, so a transaction of a killed
    driver that the server still executes ends before its batch runs again.
    """

    def __init__(self, database: str, name: str, query_id: str, target: str) -> None:
        parts = name.split(".") if "." in name else [database, name]
        self.name = ".".join(parts)
        self._quoted = ".".join(quote(part) for part in parts)
        self._query_id = query_id
        self._target = target

    def prepare(self, connection: Connection) -> str | None:
        """Create the table and the query's row; returns why that is not allowed, else None."""
        try:
            self._prepare(connection)
        except pymysql.err.MySQLError as error:
            connection.rollback()
            if code_of(error) in _DENIED:
                return str(error.args[1])
            if code_of(error) == ER.BAD_FIELD_ERROR:
                raise TableError(
                    f"table {self.name} lacks a column that the sink needs ({error.args[1]}); set "
                    "'sink.commits-table' to another name"
                ) from None
            raise
        return None

    def _prepare(self, connection: Connection) -> None:
        try:
            run(connection, f"SELECT query_id FROM {self._quoted} LIMIT 0")
        except pymysql.err.ProgrammingError as error:
            if code_of(error) != ER.NO_SUCH_TABLE:
                raise
            run(connection, f"CREATE TABLE IF NOT EXISTS {self._quoted} {_COLUMNS}")
        if not run(
            connection, f"SELECT 1 FROM {self._quoted} WHERE query_id = %s", [self._query_id]
        ):
            run(
                connection,
                f"INSERT IGNORE INTO {self._quoted} (query_id, batch, target) VALUES (%s, -1, %s)",
                [self._query_id, self._target],
            )
        # Checks the right to UPDATE the row.
        self.record(connection, self.last(connection))
        connection.commit()

    def last(self, connection: Connection) -> int:
        """The number of the last committed batch, -1 before the first; locks the row."""
        text = f"SELECT batch FROM {self._quoted} WHERE query_id = %s FOR UPDATE"
        rows = run(connection, text, [self._query_id])
        if not rows:
            raise TableError(
                f"table {self.name} has lost the row of query {self._query_id}, so it is unknown "
                "whether its last batch was committed; check whether that batch is in the target "
                "table, and start the query again"
            )
        return int(rows[0][0])

    def record(self, connection: Connection, batch: int) -> None:
        """Record a batch in the open transaction."""
        text = f"UPDATE {self._quoted} SET batch = %s WHERE query_id = %s"
        run(connection, text, [batch, self._query_id])

    def forget(self, connection: Connection) -> None:
        """Delete the row of a query that has ended for good."""
        text = f"DELETE FROM {self._quoted} WHERE query_id = %s"
        run(connection, text, [self._query_id])
        connection.commit()
