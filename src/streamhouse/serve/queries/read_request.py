"""What clients ask of the tables, and what they are told: plain records for any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamhouse.engine import Limits
from streamhouse.serve.auth.scope import EVERYTHING, Scope
from streamhouse.serve.queries.output import Target
from streamhouse.serve.views.served_view import ServedView


@dataclass(frozen=True)
class RowsRequest:
    """Rows of one served view.

    `columns` are those wanted, None for all. `filter` is a client's condition in the Flink
    dialect. `order` are columns and whether each descends; by default the primary key. `as_of` is
    a moment as people write it. `known` are the ETags of answers that the client has. `few`: only
    if the tables have few records.
    """

    view: ServedView
    target: Target
    limits: Limits
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    order: tuple[tuple[str, bool], ...] | None = None
    limit: int | None = None
    as_of: str | None = None
    known: tuple[str, ...] = ()
    few: bool = False

    @property
    def trusted(self) -> bool:
        """Whether no text of the client's goes into a query."""
        return self.filter is None


@dataclass(frozen=True)
class SelectRequest:
    """One SELECT over the views that a scope sees; `views` are as for a `Catalogue`."""

    sql: str
    target: Target
    limits: Limits
    views: tuple[ServedView, ...] | None = None
    scope: Scope = EVERYTHING

    @property
    def trusted(self) -> bool:
        """Whether no text of the client's goes into a query: it does."""
        return False


ReadRequest: TypeAlias = RowsRequest | SelectRequest


@dataclass(frozen=True)
class ReadResult:
    """What was found; the rows are in the target's file, unless the client has them: `changed`.

    `snapshot` and `time_ms` (of its commit, since 1970) are None where nothing was committed.
    `etag` is None for an answer that another time of day would give otherwise.
    """

    snapshot: int | None = None
    time_ms: int | None = None
    etag: str | None = None
    rows: int = 0
    truncated: bool = False
    changed: bool = True
