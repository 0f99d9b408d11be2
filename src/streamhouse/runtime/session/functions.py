"""The Python functions that a script has created."""

from __future__ import annotations

from collections.abc import Callable

from streamhouse.sql.syntax import CreateFunction, Drop
from streamhouse.sql.udf_modules.module import define


class SessionFunctions:
    """Imports a Python function on CREATE FUNCTION; `notice` receives messages for the user."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._names: set[str] = set()

    def create(self, statement: CreateFunction) -> None:
        """Run CREATE FUNCTION; `SqlError` for a module or function that cannot be used."""
        if statement.already_exists:
            return
        name = statement.declaration.name
        define(statement.declaration)
        self._names.add(name)
        if statement.permanent:
            self._notice(
                f"function {name} is not stored in a catalog, and is dropped when the script ends; "
                "write CREATE TEMPORARY FUNCTION"
            )

    def drop(self, statement: Drop) -> None:
        """Run DROP FUNCTION; the parser has checked that the function exists, or IF EXISTS."""
        self._names.discard(statement.name[-1])

    def names(self) -> list[str]:
        """The names of the present functions, sorted."""
        return sorted(self._names)
