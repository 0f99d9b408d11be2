"""Finds and describes the tables of a server that a filter selects, with few statements."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from streamhouse.close_matches import nearest
from streamhouse.errors import ConnectError, NotSyncedError, OptionError, TableError
from streamhouse.mysql.columns import check_followable
from streamhouse.mysql.connection import Session
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import (
    SYSTEM_DATABASES,
    Server,
    TableDefinition,
    TableFacts,
    check_key_exists,
    facts_of,
)

_NAMES = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN %s"
"""The names of all tables and views of some databases."""
_NO_VIEWS = " AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')"


@dataclass(frozen=True)
class FoundTable:
    """A selected table: its definition, or the reason why it cannot be followed.

    `comments`: of its columns, by name. `left_out`: a sync of the whole database leaves it out,
    since it is a view or has no key.
    """

    names: TableNames
    definition: TableDefinition | None
    reason: str | None = None
    comment: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    left_out: bool = False

    @property
    def full_name(self) -> str:
        """`database.table`."""
        return ".".join(self.names)

    @property
    def rows(self) -> int:
        """The server's estimate; 0 if the table cannot be followed."""
        return 0 if self.definition is None else self.definition.size.rows


@dataclass(frozen=True)
class TableFilter:
    """Regular expressions that match whole names; exclusions take precedence.

    A database must match both `databases` and `including_databases`.
    """

    databases: str
    including: str = ".*"
    excluding: str | None = None
    ignores_case: bool = False
    including_databases: str = ".*"
    excluding_databases: str | None = None

    def __post_init__(self) -> None:
        of_databases = (self.databases, self.including_databases, self.excluding_databases or "")
        for text in (*of_databases, self.including, self.excluding or ""):
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"'{text}' is not a regular expression: {error}") from None

    def has_database(self, database: str) -> bool:
        """Whether tables of this database can be selected."""
        if database in SYSTEM_DATABASES or not self._matches(self.databases, database):
            return False
        if not self._matches(self.including_databases, database):
            return False
        excluding = self.excluding_databases
        return excluding is None or not self._matches(excluding, database)

    def selects(self, database: str, table: str) -> bool:
        """Whether the table is selected."""
        if not self.has_database(database) or not self._matches(self.including, table):
            return False
        return self.excluding is None or not self._matches(self.excluding, table)

    def _matches(self, expression: str, name: str) -> bool:
        flags = re.IGNORECASE if self.ignores_case else 0
        return re.fullmatch(expression, name, flags) is not None


def selected_names(session: Session, tables: TableFilter, views: bool = True) -> set[TableNames]:
    """The names of all tables that a filter selects, and of `views`; runs two statements."""
    databases = _databases(session, tables)
    if not databases:
        return set()
    rows = session.rows(_NAMES + ("" if views else _NO_VIEWS), [databases])
    found = {(str(database), str(name)) for database, name in rows}
    return {names for names in found if tables.selects(*names)}


def _databases(session: Session, tables: TableFilter) -> list[str]:
    rows = session.rows("SHOW DATABASES")
    return [str(row[0]) for row in rows if tables.has_database(str(row[0]))]


class Discovery:
    """Lists the selected tables of a server; driver only.

    `check` raises `TableError` for a table that cannot be followed. `views`: also list views, which
    cannot be followed.
    """

    def __init__(
        self,
        session: Session,
        options: MySqlOptions,
        tables: TableFilter,
        check: Callable[[TableDefinition], None],
        views: bool = True,
    ) -> None:
        self._session, self._options, self._filter = session, options, tables
        self._check, self._views = check, views

    @classmethod
    def of_sync(
        cls, session: Session, server: Server, options: MySqlOptions, tables: TableFilter
    ) -> Self:
        """Lists the tables of a sync, which reads all of their columns."""

        def check(table: TableDefinition) -> None:
            check_key_exists(table)
            # Rows that foreign keys change are compared with MariaDB's; MySQL may log them.
            check_followable(session, server, options, table, table.columns, server.mariadb)

        return cls(session, options, tables, check)

    def names(self) -> set[TableNames]:
        """The names of all selected tables; runs two statements."""
        return selected_names(self._session, self._filter, self._views)

    def described(self, names: Collection[TableNames]) -> dict[TableNames, FoundTable]:
        """Describe these tables, as far as they exist."""
        return {one.names: self._described(one) for one in facts_of(self._session, names)}

    def found(self, but: Collection[TableNames] = ()) -> list[FoundTable]:
        """All selected tables except `but`, in the order of their names."""
        names = self.names()
        if not names and not _databases(self._session, self._filter):
            raise self._no_database()
        return list(map(self._described, facts_of(self._session, names.difference(but))))

    def nothing(self) -> TableError:
        """The error if the filter selects no table."""
        options, wanted = self._options, self._filter
        others = replace(wanted, including=".*", excluding=None)
        names = [name for _, name in selected_names(self._session, others, self._views)]
        return TableError(
            f"MySQL at {options.address} has no table '{wanted.including}' in the database "
            f"'{wanted.databases}' that user '{options.username}' can see, nor one whose whole "
            f"name matches as a regular expression; {nearest(wanted.including, names)}"
        )

    def _described(self, found: TableFacts) -> FoundTable:
        definition, reason, left_out = None, None, False
        try:
            definition = found.definition()
            self._check(definition)
        except ConnectError:
            raise
        except TableError as error:
            definition = None
            reason, left_out = str(error), isinstance(error, NotSyncedError)
        comments = {str(row[0]): str(row[-1]) for row in found.columns if row[-1]}
        comment = found.facts[-1] or None
        return FoundTable(found.names, definition, reason, comment, comments, left_out)

    def _no_database(self) -> TableError:
        databases = [str(row[0]) for row in self._session.rows("SHOW DATABASES")]
        visible = [name for name in databases if name not in ("information_schema",)]
        return TableError(
            f"MySQL at {self._options.address} has no database that matches "
            f"'{self._filter.databases}' and that user '{self._options.username}' can see; "
            f"{nearest(self._filter.databases, visible)}"
        )
