"""What a reader of a server may see and do."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

READ, SQL, RUN = "read", "sql", "run"
ACTS = (READ, SQL, RUN)


@dataclass(frozen=True)
class Scope:
    """The views that somebody sees, and what they may do with them.

    `views` are patterns over `database.table` (`shop.*`); `acts` are of `ACTS`: read views and
    their changes, ask SQL over them, run pipelines. `name` is for the log, empty for nobody known.
    """

    name: str = ""
    views: tuple[str, ...] = ("*",)
    acts: frozenset[str] = field(default_factory=lambda: frozenset(ACTS))

    def sees(self, view: str) -> bool:
        """Whether the view `database.table` is there for this reader."""
        return any(fnmatchcase(view, pattern) for pattern in self.views)

    def may(self, act: str) -> bool:
        """Whether the act is allowed, over whichever views."""
        return act in self.acts


EVERYTHING = Scope()
