"""Runs DDL statements (CREATE, USE, DROP, ALTER), and adds positions to errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamhouse.errors import SqlError, StreamhouseError
from streamhouse.runtime.session.session import Session
from streamhouse.sql import plan
from streamhouse.sql.parser.hints import outdated
from streamhouse.sql.statements.alter_table import AlterTable
from streamhouse.sql.statements.create_view import CreateView


def define(session: Session, statement: plan.Statement) -> bool:
    """Run a CREATE, USE, DROP or ALTER statement; False if the statement is none of these."""
    match statement:
        case plan.CreateCatalog():
            session.create_catalog(statement)
        case plan.UseCatalog():
            session.use_catalog(statement.name)
        case plan.CreateDatabase():
            session.create_database(statement)
        case plan.UseDatabase():
            session.use_database(statement.name)
        case plan.CreateTable():
            session.create_table(statement)
        case CreateView():
            session.views.create(statement)
        case plan.CreateFunction():
            session.functions.create(statement)
        case plan.Drop():
            session.drop(statement)
        case AlterTable():
            session.alter(statement)
        case _:
            return False
    return True


def note_outdated_options(session: Session, statement: plan.Statement) -> None:
    """Give a notice of options of earlier Paimon releases in the hints of a statement."""
    for text in outdated(statement.text):
        session.notice(text)


@contextmanager
def located(statement: plan.Statement) -> Iterator[None]:
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
