"""The Python functions that a script's session has created."""

from __future__ import annotations

from collections.abc import Callable

from streamhouse.sql.plan import CreateFunction, Drop
from streamhouse.sql.udf_modules.module import define


class SessionFunctions:
    """Imports a function when it is created; `notice` takes what a user should know."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._names: set[str] = set()

    def create(self, statement: CreateFunction) -> None:
        """Run CREATE FUNCTION; `SqlError` for a module or function that cannot be used."""
        if statement.again:
            return
        name = statement.declaration.name
        define(statement.declaration)
        self._names.add(name)
        if statement.lasting:
            self._notice(
                f"function {name} is kept in no catalog: it ends with the script; write CREATE "
                "TEMPORARY FUNCTION"
            )

    def drop(self, statement: Drop) -> None:
        """Run DROP FUNCTION; the parser has found the function, or IF EXISTS."""
        self._names.discard(statement.name[-1])

    def names(self) -> list[str]:
        """Of those that are there now, sorted."""
        return sorted(self._names)
