"""Read requests and results: plain dataclasses, which are pickled for worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamhouse.duckdb_engine import Limits
from streamhouse.serve.queries.output import OutputTarget
from streamhouse.serve.tokens import EVERYTHING, Scope
from streamhouse.serve.views.served_view import ServedView


@dataclass(frozen=True)
class RowsRequest:
    """A request for rows of one served view.

    `columns` are the wanted columns, None for all. `filter` is a client's condition in the Flink
    dialect. `order` are columns, each with whether it is descending; by default the primary key.
    `as_of` is a point in time as in `pinned_tables.parsed_as_of`. `known_etags` are those of
    responses that the client has, `etags_of_states` those among them whose state of the tables
    (`ReadResult.state`) is known. `small_only`: give up if the tables have many records.
    """

    view: ServedView
    target: OutputTarget
    limits: Limits
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    order: tuple[tuple[str, bool], ...] | None = None
    limit: int | None = None
    as_of: str | None = None
    known_etags: tuple[str, ...] = ()
    etags_of_states: Mapping[str, str] = field(default_factory=dict)
    small_only: bool = False

    @property
    def trusted(self) -> bool:
        """Whether the query contains no SQL text from the client."""
        return self.filter is None


@dataclass(frozen=True)
class SelectRequest:
    """A client's SELECT over the views that `scope` sees; `views` are as for a `ViewCatalog`."""

    sql: str
    target: OutputTarget
    limits: Limits
    views: tuple[ServedView, ...] | None = None
    scope: Scope = EVERYTHING

    @property
    def trusted(self) -> bool:
        """False: the query is SQL text from the client."""
        return False


ReadRequest: TypeAlias = RowsRequest | SelectRequest


@dataclass(frozen=True)
class ScriptRequest:
    """A script to plan; `values` are those of `streamhouse.graph.script_check.check_script`."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class ReadResult:
    """The result of a request; the rows are in the target's file.

    `snapshot` and `time_ms` (the commit time in milliseconds since 1970) are None before the first
    commit. `etag` is that of the rows; `state` is a key of the state of the tables; equal states
    have equal rows. Both are None if the rows depend on the current time. `changed` is False if the
    client has the rows already (`known_etags`); then there is no file.
    """

    snapshot: int | None = None
    time_ms: int | None = None
    etag: str | None = None
    state: str | None = None
    rows: int = 0
    truncated: bool = False
    changed: bool = True
