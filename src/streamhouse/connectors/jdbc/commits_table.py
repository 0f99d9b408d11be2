"""The table where each transaction of a sink records its batch, so that none is written twice."""

from __future__ import annotations

from typing import Any

import pymysql
from pymysql.constants import ER

from streamhouse.errors import TableError
from streamhouse.mysql.connection import code_of, run
from streamhouse.mysql.values.types import quote

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

    def prepare(self, connection: pymysql.Connection[Any]) -> str | None:
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

    def _prepare(self, connection: pymysql.Connection[Any]) -> None:
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

    def last(self, connection: pymysql.Connection[Any]) -> int:
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

    def record(self, connection: pymysql.Connection[Any], batch: int) -> None:
        """Record a batch in the open transaction."""
        text = f"UPDATE {self._quoted} SET batch = %s WHERE query_id = %s"
        run(connection, text, [batch, self._query_id])

    def forget(self, connection: pymysql.Connection[Any]) -> None:
        """Delete the row of a query that has ended for good."""
        text = f"DELETE FROM {self._quoted} WHERE query_id = %s"
        run(connection, text, [self._query_id])
        connection.commit()
