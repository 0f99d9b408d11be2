"""A DuckDB connection for the many small queries of a process that runs for months."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import duckdb
import pyarrow as pa

from streamhouse.duckdb_database import in_utc, open_database
from streamhouse.sql.functions.builtin_udfs import register
from streamhouse.sql.udf.function import PythonFunction
from streamhouse.sql.udf_modules.evaluation import PythonUdfs

CONTINUOUS_QUERY = "2GB"
"""The memory of one continuous query in one worker process (`runtime.query_operator`)."""
QUERIES = 3_000
"""The connection is reopened after this many queries. Each query leaks some hundred bytes (DuckDB
2.0), which would add up to gigabytes in months (decision 151)."""


class LastingConnection:
    """Runs queries over Arrow tables, in UTC; not thread-safe.

    `functions` are the Python functions that queries may call, `config` is DuckDB's configuration.
    Settings (`set`) and relations (`keep`) survive when the connection is reopened. It is opened by
    the first query.
    """

    def __init__(
        self, functions: Sequence[PythonFunction] = (), threads: int = 1, **config: str | int
    ) -> None:
        self._python = PythonUdfs(functions)
        # DuckDB's threads for asynchronous I/O, 8 in each database, would have nothing to do.
        self._threads, self._config = threads, {"async_threads": 0, **config}
        self._set: dict[str, str] = {}
        self._kept: dict[str, pa.Table] = {}
        self._queries = 0
        self._functions: set[str] = set()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def set(self, name: str, statement: str) -> None:
        """Run a setting such as SET, and after each opening the last one of each `name`."""
        if self._connection is not None:
            self._connection.execute(statement)
        self._set[name] = statement

    def keep(self, relation: str, table: pa.Table) -> None:
        """Register a table under the name `relation` for all later queries."""
        if self._kept.get(relation) is not table:
            if self._connection is not None:
                self._connection.register(relation, table)
            self._kept[relation] = table

    def run(self, sql: str, **relations: pa.Table) -> pa.Table:
        """Run a query and return its rows; `relations` are registered for this query only.

        Raises `QueryError` if a Python function raises, else DuckDB's errors.
        """
        connection = self._ready(sql, 1)
        for name, table in relations.items():
            connection.register(name, table)
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise self._python.failure(error) or error from None
        finally:
            for name in relations:
                connection.unregister(name)

    @contextmanager
    def cursor(self, sql: str, queries: int) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for about so many queries with the functions that `sql` calls.

        Its relations and variables end with it.
        """
        with closing(self._ready(sql, queries).cursor()) as connection:
            yield in_utc(connection)

    def _ready(self, sql: str, queries: int) -> duckdb.DuckDBPyConnection:
        self._queries += queries
        if self._queries >= QUERIES:
            self.close()
        if self._connection is None:
            self._connection = self._opened()
        register(self._connection, sql, self._functions)
        return self._connection

    def close(self) -> None:
        """Free DuckDB's memory."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> duckdb.DuckDBPyConnection:
        connection = open_database(self._threads, **self._config)
        self._functions, self._queries = set(), 0
        self._python.register(connection)
        for statement in self._set.values():
            connection.execute(statement)
        for relation, table in self._kept.items():
            connection.register(relation, table)
        return connection
