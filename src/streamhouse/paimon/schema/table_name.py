"""Names of tables: `orders`, its branch `orders$branch_b`, its system table `orders$files`."""

import re
from dataclasses import dataclass, replace
from typing import Self

from streamhouse.errors import TableError

_BRANCH = "branch_"
MAIN = "main"
_IMPOSSIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f/\\`]")
"""Characters that no name has: names are those of folders."""


@dataclass(frozen=True)
class TableName:
    """The parts of a table's name within its database; `system` is in lower case."""

    table: str
    branch: str = MAIN
    system: str | None = None

    @classmethod
    def parse(cls, name: str) -> Self:
        """From `t`, `t$branch_b`, `t$files` or `t$branch_b$files`; `TableError` for others."""
        table, *rest = name.split("$")
        branch = MAIN
        if rest and rest[0].startswith(_BRANCH):
            branch = rest.pop(0).removeprefix(_BRANCH)
        if not table or not branch or len(rest) > 1 or (rest and not rest[0]):
            raise TableError(
                f"'{name}' does not name a table; after a table's name there can be $branch_ and "
                "a branch, then $ and a system table: orders$branch_b$files"
            )
        return cls(table, branch, rest[0].lower() if rest else None)

    @property
    def data(self) -> str:
        """The name of the table or branch, without the system table."""
        return self.table if self.branch == MAIN else f"{self.table}${_BRANCH}{self.branch}"

    def on(self, branch: str) -> Self:
        """The same name on another branch."""
        return replace(self, branch=branch)

    def __str__(self) -> str:
        return self.data if self.system is None else f"{self.data}${self.system}"


def branch_root(location: str, branch: str) -> str:
    """The folder of a branch's schemas, snapshots and tags; data files are in the table's."""
    return location if branch == MAIN else f"{location}/branch/branch-{branch}"


def split_identifier(identifier: str) -> tuple[str, str]:
    """Database and table of `database.table`; `TableError` if it is not of that form."""
    database, dot, name = identifier.partition(".")
    if not (database and dot and name):
        raise TableError(f"'{identifier}' does not name a table; write database.table")
    return database, name


def name_fault(name: str) -> str | None:
    """Why there can be no table or database of this name, for messages; None: there can."""
    if "$" in name:
        return "a name with $ is a branch or a system table of another table"
    if found := _IMPOSSIBLE.search(name):
        return f"a name cannot have the character {found.group()!r}"
    if not name.strip("."):
        return "a name cannot be empty or have only dots"
    if name != name.strip():
        return "a name cannot begin or end with a blank"
    return None
