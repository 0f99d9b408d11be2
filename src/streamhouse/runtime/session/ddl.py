"""Runs statements that change a session (DDL, SET, RESET), and adds positions to errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamhouse.errors import SqlError, StreamhouseError
from streamhouse.runtime.session.materialized_views import next_name
from streamhouse.runtime.session.session import Session
from streamhouse.sql import syntax
from streamhouse.sql.parser.hints import outdated
from streamhouse.sql.plan import Name
from streamhouse.sql.statements.alter_table import AlterTable
from streamhouse.sql.statements.create_view import CreateView
from streamhouse.sql.udf_modules.module import define as define_function
from streamhouse.sql.views.statement import AlterMaterializedView, CreateMaterializedView

_NO_COLUMN = re.compile(r"no column '([^']+)'")


@dataclass(frozen=True)
class Defined:
    """What a statement did, such as "table shop.t created"; `stored`: it changed a warehouse."""

    text: str = ""
    stored: bool = False


def define(session: Session, statement: syntax.Statement) -> Defined | None:
    """Run a CREATE, USE, DROP or ALTER, RESET, or SET with a key; None for any other statement."""
    match statement:
        case syntax.SetOption(key=str(key)):
            session.settings.set(key, statement.value or "")
        case syntax.ResetOption():
            session.settings.reset(statement.key)
        case syntax.CreateCatalog():
            session.catalogs.create(statement)
            return Defined(f"catalog {statement.name} created")
        case syntax.UseCatalog():
            session.catalogs.use(statement.name)
        case syntax.CreateDatabase():
            return _created("database", statement.name, session.catalogs.create_database(statement))
        case syntax.UseDatabase():
            session.catalogs.use_database(statement.name)
        case syntax.CreateTable():
            created = session.tables.create(statement)
            temporary = session.is_temporary(session.full(statement.name))
            return _created("table", statement.name, created, temporary)
        case CreateView():
            created = session.views.create(statement)
            return _created("view", statement.name, created, statement.temporary)
        case CreateMaterializedView():
            created = session.materialized.create(statement)
            full = session.full(statement.name)
            if session.materialized.find(next_name(full)) is not None:
                return Defined(
                    f"materialized view {'.'.join(statement.name)} has a next query", True
                )
            return _created("materialized view", statement.name, created)
        case AlterMaterializedView(refresh=False):
            session.materialized.alter(statement)
            return Defined(f"materialized view {'.'.join(statement.name)} altered", True)
        case syntax.CreateFunction():
            _create_function(session, statement)
            return Defined(f"function {statement.declaration.name} created")
        case syntax.Drop():
            what = f"{statement.kind.lower()} {'.'.join(statement.name)}"
            found = _drop(session, statement)
            return Defined(f"{what} {'dropped' if found else 'does not exist'}", found)
        case AlterTable():
            altered = session.tables.alter(statement)
            text = f"table {'.'.join(statement.name)} {'altered' if altered else 'does not exist'}"
            return Defined(text, altered)
        case _:
            return None
    return Defined()


def _created(kind: str, name: Name, created: bool, temporary: bool = False) -> Defined:
    text = f"{'temporary ' * temporary}{kind} {'.'.join(name)}"
    return Defined(f"{text} {'created' if created else 'exists'}", created and not temporary)


def _create_function(session: Session, statement: syntax.CreateFunction) -> None:
    """Import a Python function; `SqlError` for a module or function that cannot be used."""
    if statement.already_exists:
        return
    name = statement.declaration.name
    define_function(statement.declaration)
    session.functions.add(name)
    if statement.permanent:
        session.notice(
            f"function {name} is not stored in a catalog, and is dropped when the script ends; "
            "write CREATE TEMPORARY FUNCTION"
        )


def _drop(session: Session, statement: syntax.Drop) -> bool:
    match statement.kind:
        case "DATABASE":
            catalog, database = session.catalogs.database(statement.name)
            session.views.check_none(catalog, database)
            return session.catalogs.warehouse(catalog).drop_database(database, statement.if_exists)
        case "CATALOG":
            return session.catalogs.drop(statement)
        case "MATERIALIZED VIEW":
            full = session.full(statement.name)
            return session.materialized.drop(full, statement.if_exists)
        case "VIEW":
            return session.views.drop(statement)
        case "FUNCTION":
            # The parser has checked that it exists, or IF EXISTS.
            session.functions.discard(statement.name[-1])
            return True
    return session.tables.drop(statement)


def note_outdated_options(session: Session, statement: syntax.Statement) -> None:
    """Give a notice of options of earlier Paimon releases in the hints of a statement."""
    for text in outdated(statement.text):
        session.notice(text)


def mention_renamed(session: Session, error: SqlError) -> None:
    """Extend the error of a missing column if it was renamed or dropped, or is yet to be added."""
    match = _NO_COLUMN.search(error.message)
    if match is None:
        return
    became = session.materialized.gaining(match[1]) or session.renaming_of(match[1])
    if became is not None and became not in error.message:
        error.reword(f"{error.message.split(';')[0]}; {became}")


@contextmanager
def located(statement: syntax.Statement) -> Iterator[None]:
    """Add the statement's line and column to errors raised in the `with`."""
    position = statement.position
    try:
        yield
    except SqlError as error:
        if error.line:
            raise
        raise type(error).at(position, error.message) from error
    except StreamhouseError as error:
        text = f"line {position.line}, column {position.column}: {error}"
        raise type(error)(text) from error
