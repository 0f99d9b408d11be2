"""A served view: a table, a branch or a SQL view, exposed under a name of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamhouse.errors import OptionError, TableError

MAX_CHARACTERS = 300

_NAME = re.compile(r"[^\x00-\x1f\x7f/\\.]+\.[^\x00-\x1f\x7f/\\]+")


def is_name(text: str) -> bool:
    """Whether a text can be `database.table`: printable, and without path separators."""
    fits = len(text) <= MAX_CHARACTERS and _NAME.fullmatch(text) is not None
    return fits and text.isprintable()


def check_name(text: str, where: str) -> None:
    """Raise `OptionError` for a text that is not `database.table`."""
    if not is_name(text):
        raise OptionError(f"{where}: '{text[:80]}' is not a name; write database.table")


def is_plain_text(text: str) -> bool:
    """Whether a text has no control characters except line ends and tabs, and no surrogates."""
    if any(c < " " and c not in "\t\n\r" for c in text):
        return False
    return not any("\ud800" <= c <= "\udfff" for c in text)


Key: TypeAlias = tuple[str, str, tuple[str, ...] | None, str | None]


@dataclass(frozen=True)
class ServedView:
    """One served view.

    `name` is `database.table` as clients write it. `source` is the table, branch or view that it
    reads. `columns` are the exposed columns, None for all. `filter` is a condition in the Flink
    dialect over the source's columns. `chart` is used by the web page only.
    """

    name: str
    source: str
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    title: str | None = None
    description: str | None = None
    chart: Mapping[str, Any] | None = field(default=None, compare=False)

    def visible(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the source's columns `names` that clients may see, in the view's order.

        Raises `TableError` if the source lacks a column of the view. Clients read the message, so
        it names neither the source nor its other columns.
        """
        if self.columns is None:
            return tuple(names)
        missing = next((name for name in self.columns if name not in names), None)
        if missing is not None:
            raise TableError(
                f"view '{self.name}' is defined with column '{missing}', which its table does not "
                "have; correct 'columns' in the server's file of views"
            )
        return self.columns

    @property
    def key(self) -> Key:
        """All fields that determine the rows; views with equal keys share one stream."""
        return self.name, self.source, self.columns, self.filter
