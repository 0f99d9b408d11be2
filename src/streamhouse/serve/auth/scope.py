"""Permissions of a client: which views it sees, and which acts it may perform."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

READ, SQL, RUN = "read", "sql", "run"
ACTS = (READ, SQL, RUN)


@dataclass(frozen=True)
class Scope:
    """The views that a client sees, and what it may do with them.

    `views` are `fnmatch` patterns over `database.table` (`shop.*`). `acts` is a subset of `ACTS`:
    `read` views and their changes, run `sql` over them, `run` pipelines. `name` appears in the
    access log; it is empty for an anonymous client.
    """

    name: str = ""
    views: tuple[str, ...] = ("*",)
    acts: frozenset[str] = field(default_factory=lambda: frozenset(ACTS))

    def sees(self, view: str) -> bool:
        """Whether the client may see the view `database.table`."""
        return any(fnmatchcase(view, pattern) for pattern in self.views)

    def may(self, act: str) -> bool:
        """Whether the act is allowed at all; the views are checked by `sees`."""
        return act in self.acts


EVERYTHING = Scope()
