"""What a server serves: a table, a branch of one, or a view, under a name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Key: TypeAlias = tuple[str, str, tuple[str, ...] | None, str | None]


@dataclass(frozen=True)
class ServedView:
    """One served view.

    `name` is `database.table` as readers write it; `source` the table, view or branch that it
    shows. `columns` are those shown, None for all; `filter` is a condition in the Flink dialect
    over the source's columns. `chart` is for the page only.
    """

    name: str
    source: str
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    title: str | None = None
    description: str | None = None
    chart: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        """What decides over the rows that readers get; equal keys share one stream."""
        return self.name, self.source, self.columns, self.filter
