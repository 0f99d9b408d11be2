"""The views of a script's session: temporary ones, and those stored in its warehouses."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from streamhouse.close_matches import nearest
from streamhouse.errors import TableError
from streamhouse.sql.plan import Name, ViewInfo
from streamhouse.sql.resolution.columns import leaves, parse_query, table_name
from streamhouse.sql.statements.create_view import (
    CreateView,
    check_permanent,
    view_info,
    with_full_names,
)
from streamhouse.sql.syntax import Drop

if TYPE_CHECKING:
    from streamhouse.runtime.session.session import Session


def check_no_view(session: Session, full: Name) -> None:
    """Raise `TableError` if a full name is that of a view, which no statement can write to."""
    if session.view(full) is not None:
        raise TableError(
            f"'{'.'.join(full[1:])}' is a view, which is read-only; to change the view "
            "itself, use DROP VIEW and CREATE VIEW"
        )


class SessionViews:
    """Creates, finds and drops views."""

    def __init__(self, session: Session) -> None:
        self._session, self._catalogs = session, session.catalogs
        self._temporary: dict[Name, ViewInfo] = {}

    def find(self, full: Name) -> ViewInfo | None:
        """The view of a full name, temporary ones first; a temporary table hides a view."""
        if full in self._temporary:
            return self._temporary[full]
        unstored = "$" in full[2] or full[0] not in self._catalogs
        if self._session.is_temporary(full) or unstored:
            return None
        view = self._catalogs.views(full[0]).find(*full[1:])
        return None if view is None else replace(view, name=full)

    def listed(self, catalog: str, database: str) -> list[str]:
        """The names of a database's views, sorted."""
        temporary = [name[2] for name in self._temporary if name[:2] == (catalog, database)]
        return sorted({*temporary, *self._catalogs.views(catalog).names(database)})

    def create(self, statement: CreateView) -> bool:
        """Run CREATE VIEW; raises an error if its query cannot be planned.

        A view that reads what is dropped when the script ends is temporary, too, as a notice says.
        False if the view exists, which IF NOT EXISTS leaves as it is; a notice says if its query
        is another.
        """
        full = self._session.full(statement.name)
        if "$" in full[2]:
            name = ".".join(full[1:])
            raise TableError(f"view {name}: a name with $ is a branch or a system table")
        read = None if statement.temporary else self._temporary_read(statement)
        if read is not None:
            self._session.notice(
                f"view {'.'.join(full[1:])} reads '{read[2]}', and is dropped like it when the "
                "script ends; write CREATE TEMPORARY VIEW"
            )
            statement = replace(statement, temporary=True)
        with nullcontext() if statement.temporary else self._catalogs.warehouse(full[0]).creating():
            return self._create(statement, full)

    def _create(self, statement: CreateView, full: Name) -> bool:
        check_permanent(statement)
        name = ".".join(full[1:])
        old = self._temporary.get(full) if statement.temporary else self.find(full)
        if old is not None and not (statement.if_not_exists or statement.replace):
            raise TableError(
                f"view {name} already exists; DROP it, or write CREATE OR REPLACE VIEW or IF NOT "
                "EXISTS"
            )
        if not statement.temporary and self._session.has_table(full):
            raise TableError(f"'{name}' is a table; give the view another name")
        view = view_info(
            statement,
            full,
            self._session,
            with_full_names(statement.query, lambda name: self._stored_name(full, name)),
        )
        if old is not None and not statement.replace:
            if (old.query, old.columns) != (view.query, view.columns):
                self._session.notice(
                    f"view {name} exists and stays as it is; this declaration of another query has "
                    f"no effect. The view's own is: {old.query}. To change it, use DROP VIEW first"
                )
            return False
        if statement.temporary:
            self._temporary[full] = view
        else:
            self._catalogs.views(full[0]).create(view)
        return True

    def drop(self, statement: Drop) -> bool:
        """Run DROP VIEW; raises `TableError` for a table. False: none, with IF EXISTS."""
        full = self._session.full(statement.name)
        if self._temporary.pop(full, None) is not None:
            return True
        if not statement.temporary and self.find(full) is not None:
            self._catalogs.views(full[0]).drop(*full[1:])
            return True
        if self._session.is_temporary(full) or self._session.has_table(full):
            raise TableError(f"'{'.'.join(full[1:])}' is a table; write DROP TABLE")
        if not statement.if_exists:
            close = nearest(full[2], self.listed(full[0], full[1]))
            raise TableError(f"there is no view '{full[2]}' in database '{full[1]}'; {close}")
        return False

    def check_none(self, catalog: str, database: str) -> None:
        """Raise `TableError` if a database still has views."""
        views = self._catalogs.views(catalog).names(database)
        if views:
            raise TableError(
                f"database '{database}' still has views ({', '.join(views[:5])}); drop them first"
            )

    def _temporary_read(self, statement: CreateView) -> Name | None:
        """A table or view that the query reads, and that only this session has; None: none."""
        tables = leaves(parse_query(statement.query).tree)
        read = (self._session.full(table_name(table)) for table in tables)
        temporary = (n for n in read if n in self._temporary or self._session.is_temporary(n))
        return next(temporary, None)

    def _stored_name(self, view: Name, name: Name) -> Name:
        """A table's name as the view stores it."""
        full = self._session.full(name)
        if full == view:
            raise TableError(f"view {'.'.join(view[1:])} reads itself; name another table")
        return full[1:] if full[0] == view[0] else full
