"""Selects tables by regular expressions of their databases' and their own names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamhouse.errors import OptionError

HIDDEN = frozenset({"information_schema", "mysql", "performance_schema", "sys"})
"""The server's own databases, which are never selected."""


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
        if database in HIDDEN or not self._matches(self.databases, database):
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
