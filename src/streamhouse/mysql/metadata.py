"""Reads the server's metadata of tables, also while they are altered."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from streamhouse.errors import ConnectError, TableError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.values.types import quote

TableNames: TypeAlias = tuple[str, str]
"""The names of a database and of a table in it."""
RowsByTable: TypeAlias = dict[TableNames, list[tuple[Any, ...]]]
OF_TABLES = "<condition>"
"""Where a statement of `metadata` has its condition on `table_schema` and `table_name`."""


def metadata(
    session: Session, statements: Sequence[str], tables: Collection[TableNames]
) -> list[RowsByTable]:
    """The rows of each SELECT from `information_schema`, by table, without the table's names.

    Each statement selects `table_schema` and `table_name` first; if there are several tables, it
    may also give rows of others. MariaDB leaves out a table while an ALTER TABLE exchanges its
    files, so what a table lacks is read again while it cannot be altered.
    """
    read = [_by_table(session, statement, tables) for statement in statements]
    lacking = [names for names in tables if not all(names in own for own in read)]
    if lacking:
        with _unaltered(session, lacking):
            again = [_by_table(session, statement, tables) for statement in statements]
        for own, later in zip(read, again, strict=True):
            for names in lacking:
                own.pop(names, None)
                if names in later:
                    own[names] = later[names]
    return read


def _by_table(session: Session, statement: str, tables: Collection[TableNames]) -> RowsByTable:
    if len(tables) == 1:
        # The server finds it without opening other tables, and may compare names without case.
        (names,) = tables
        rows = session.rows(_of(statement, "table_schema = %s AND table_name = %s"), names)
        return {names: [row[2:] for row in rows]} if rows else {}
    groups: RowsByTable = {}
    if not tables:
        return groups
    databases = sorted({database for database, _ in tables})
    for database, name, *rest in session.rows(_of(statement, "table_schema IN %s"), [databases]):
        groups.setdefault((str(database), str(name)), []).append(tuple(rest))
    return groups


def _of(statement: str, condition: str) -> str:
    return statement.replace(OF_TABLES, condition)


@contextmanager
def _unaltered(session: Session, tables: Collection[TableNames]) -> Iterator[None]:
    """Wait for the ALTER TABLEs that run, and hold off others by locks of the server's metadata."""
    session.rows("START TRANSACTION")
    try:
        for names in tables:
            try:
                session.rows(f"SELECT 1 FROM {'.'.join(map(quote, names))} LIMIT 0")
            except (TableError, ConnectError):
                continue  # The table does not exist, or the user may not read it.
        yield
    finally:
        session.rows("COMMIT")
