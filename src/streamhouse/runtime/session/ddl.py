"""Runs statements that change a session (DDL, SET, RESET), and adds positions to errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamhouse.errors import SqlError, StreamhouseError
from streamhouse.runtime.session.session import Session
from streamhouse.sql import syntax
from streamhouse.sql.parser.hints import outdated
from streamhouse.sql.statements.alter_table import AlterTable
from streamhouse.sql.statements.create_view import CreateView


def change_session(session: Session, statement: syntax.Statement) -> bool:
    """Run SET with a key, RESET, or what `define` runs; False if the statement is none of these."""
    match statement:
        case syntax.SetOption(key=str(key)):
            session.settings.set(key, statement.value or "")
        case syntax.ResetOption():
            session.settings.reset(statement.key)
        case _:
            return define(session, statement)
    return True


def define(session: Session, statement: syntax.Statement) -> bool:
    """Run a CREATE, USE, DROP or ALTER statement; False if the statement is none of these."""
    match statement:
        case syntax.CreateCatalog():
            session.catalogs.create(statement)
        case syntax.UseCatalog():
            session.catalogs.use(statement.name)
        case syntax.CreateDatabase():
            session.catalogs.create_database(statement)
        case syntax.UseDatabase():
            session.catalogs.use_database(statement.name)
        case syntax.CreateTable():
            session.tables.create(statement)
        case CreateView():
            session.views.create(statement)
        case syntax.CreateFunction():
            session.functions.create(statement)
        case syntax.Drop():
            _drop(session, statement)
        case AlterTable():
            session.tables.alter(statement)
        case _:
            return False
    return True


def _drop(session: Session, statement: syntax.Drop) -> None:
    match statement.kind:
        case "DATABASE":
            catalog, database = session.catalogs.database(statement.name)
            session.views.check_none(catalog, database)
            session.catalogs.warehouse(catalog).drop_database(database, statement.if_exists)
        case "CATALOG":
            session.catalogs.drop(statement)
        case "VIEW":
            session.views.drop(statement)
        case "FUNCTION":
            session.functions.drop(statement)
        case _:
            session.tables.drop(statement)


def note_outdated_options(session: Session, statement: syntax.Statement) -> None:
    """Give a notice of options of earlier Paimon releases in the hints of a statement."""
    for text in outdated(statement.text):
        session.notice(text)


@contextmanager
def located(statement: syntax.Statement) -> Iterator[None]:
    """Add the statement's line and column to errors raised in the `with`."""
    position = statement.position
    try:
        yield
    except SqlError as error:
        if error.line:
            raise
        raise type(error)(error.message, line=position.line, column=position.column) from error
    except StreamhouseError as error:
        text = f"line {position.line}, column {position.column}: {error}"
        raise type(error)(text) from error
