"""A served view: a table, a branch or a SQL view, exposed under a name of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamhouse.errors import TableError

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
