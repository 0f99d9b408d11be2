"""Connections of dbt to a warehouse: each runs statements in this process, without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from dbt.adapters.contracts.connection import (
    AdapterResponse,
    Connection,
    ConnectionState,
)
from dbt.adapters.contracts.connection import (
    Credentials as BaseCredentials,
)
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.batch import bounded_statements
from streamhouse.runtime.execute import execute
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.explain import shown
from streamhouse.sql import syntax
from streamhouse.sql.statements.script import parse_script


@dataclass
class Credentials(BaseCredentials):
    """A target of a profile.

    `warehouse` is a folder or URI, `options` the catalog's options, such as those of S3, `schema` a
    database of the warehouse, and `modules` the folder of Python functions.
    """

    database: str = ""
    schema: str = "default"
    warehouse: str = "warehouse"
    options: dict[str, str] = field(default_factory=dict)
    modules: str | None = None

    @property
    def type(self) -> str:
        return "streamhouse"

    @property
    def unique_field(self) -> str:
        return self.warehouse

    def _connection_keys(self) -> tuple[str, ...]:
        return ("warehouse", "schema", "options", "modules")

    @property
    def catalog(self) -> dict[str, str]:
        """The options of the catalog."""
        return {"warehouse": self.warehouse, **{k: str(v) for k, v in self.options.items()}}


class Cursor:
    """Runs statements one after another; has the rows of the last one that returns some."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.description: list[tuple[Any, ...]] | None = None
        self.message, self.rowcount = "OK", -1
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, sql: str, bindings: Sequence[Any] | None = None) -> None:
        """Run statements; there are no bindings in Streamhouse's SQL."""
        if bindings:
            raise DbtDatabaseError("Streamhouse has no bindings; write values as literals")
        statements = parse_script(sql)
        if not statements:
            return
        reads = [isinstance(s, syntax.Select | syntax.Show | syntax.Describe) for s in statements]
        if not any(reads):
            changed = execute(self._credentials.catalog, sql, modules=self._modules)
            self.message, self.rowcount = str(changed) or "OK", changed.inserted + changed.updated
        elif len(statements) == 1:
            self._read(statements[0])
        else:
            raise DbtDatabaseError("a SELECT, SHOW or DESCRIBE must be a statement of its own")

    @property
    def _modules(self) -> Path | None:
        return Path(self._credentials.modules) if self._credentials.modules else None

    def _read(self, statement: syntax.Statement) -> None:
        session = Session(self._credentials.catalog)
        session.settings.set("execution.runtime-mode", "batch")
        if isinstance(statement, syntax.Select):
            with bounded_statements.select(session, statement.query) as reader:
                table = reader.read_all()
        else:
            assert isinstance(statement, syntax.Show | syntax.Describe)
            table = shown(session, statement)
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        self.description = [(name, *[None] * 6) for name in table.column_names]
        self._rows = list(rows)
        self.message, self.rowcount = "SELECT", len(self._rows)

    def fetchall(self) -> list[tuple[Any, ...]]:
        found, self._rows = self._rows, []
        return found

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        found, self._rows = self._rows[:size], self._rows[size:]
        return found

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self.fetchmany(1)), None)


@dataclass(frozen=True)
class Handle:
    """A connection: it holds nothing open."""

    credentials: Credentials

    def cursor(self) -> Cursor:
        return Cursor(self.credentials)


class ConnectionManager(SQLConnectionManager):
    """Opens connections, and reports their errors as dbt's."""

    TYPE: ClassVar[str] = "streamhouse"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state != ConnectionState.OPEN:
            assert isinstance(connection.credentials, Credentials)
            connection.handle = Handle(connection.credentials)
            connection.state = ConnectionState.OPEN
        return connection

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except StreamhouseError as error:
            raise DbtDatabaseError(str(error)) from error

    def cancel(self, connection: Connection) -> None:
        """Nothing: a statement ends with its process."""

    # Each statement is a commit of its own.

    def add_begin_query(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: there are no transactions."""

    def add_commit_query(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: there are no transactions."""

    @classmethod
    def get_response(cls, cursor: Cursor) -> AdapterResponse:
        return AdapterResponse(cursor.message, rows_affected=cursor.rowcount)
