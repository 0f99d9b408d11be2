"""Computes the next query of a running view beside it, until it can take over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.files import is_local
from streamhouse.runtime.replacement.swap import swap
from streamhouse.runtime.session.materialized_views import DefinedView, next_name
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.streaming.query import JobQuery, QueryFailed
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.query import ViewQuery
from streamhouse.sql.plan import Name
from streamhouse.sql.views.stored_view import StoredView

if TYPE_CHECKING:
    from streamhouse.runtime.pipeline import Pipeline

_LOOK_S, _REMOTE_LOOK_S = 1.0, 10.0
"""How often a running view looks for a next query; of an object store, each look is a request."""


class Replacement:
    """Replaces the query of one view by its next one, if it gets one; driver only.

    The next query runs until it has read all that the view has. Then the view's query stops, the
    next one reads what that has read last, and is swapped in. If it fails, the view goes on.
    """

    def __init__(
        self,
        session: Session,
        view: Name,
        made: Callable[[DefinedView], ViewQuery],
        pipeline: Pipeline,
        notice: Callable[[str], None],
        must_succeed: bool,
    ) -> None:
        """`must_succeed`: if the next query fails, all do."""
        self._session, self._view, self._made = session, view, made
        self._pipeline, self._notice, self._must_succeed = pipeline, notice, must_succeed
        self._query = made(session.materialized.defined(view))
        self._following: ViewQuery | None = None
        self._definition: DefinedView | None = None
        self._seen: StoredView | None = None
        """The definition of `_following`, or one that has failed."""
        self._fingerprint = ""
        self._due = 0.0
        pipeline.add(self._query)

    def step(self) -> bool:
        """Go on, without waiting; returns whether a next query is computed or swapped in."""
        if time.monotonic() >= self._due:
            local = is_local(self._query.spec.target.warehouse.get("warehouse", ""))
            self._due = time.monotonic() + (_LOOK_S if local else _REMOTE_LOOK_S)
            self._look()
        following = self._following
        if following is None:
            return False
        if self._query.is_stopping:
            self._query.check()
        try:
            ready = self._is_ready(following)
        except (QueryFailed, StreamhouseError, OSError) as error:
            if not self.gives_up(following, error):
                raise
            return False
        if ready:
            self._swap(following)
        return True

    def gives_up(self, query: JobQuery, error: Exception) -> bool:
        """Whether a query that has failed is the next one, which the view goes on without."""
        withdrawn = self._session.materialized.find(next_name(self._view)) is None
        if query is not self._following or (self._must_succeed and not withdrawn):
            return False
        self._drop_following()
        if not withdrawn:
            self._note_failed(error)
        return True

    def _note_failed(self, error: Exception) -> None:
        self._notice(
            f"{'.'.join(self._view[1:])}: the new query has failed, and the view goes on with its "
            f"former one; change it, or ALTER MATERIALIZED VIEW … ROLLBACK: {error}"
        )

    def _look(self) -> None:
        """Start the next query, or another one if it has been changed or withdrawn."""
        views = self._session.materialized
        found = views.find(next_name(self._view))
        if found is not None and self._seen is not None and found.same_query(self._seen):
            return
        if self._following is not None:
            self._drop_following()
        self._seen = found
        try:
            self._definition = views.next(self._view)
            if self._definition is not None:
                self._following = self._made(self._definition)
                self._fingerprint = ViewPlanner(self._following.spec).newest({})["view"]
                self._pipeline.add(self._following)
        except StreamhouseError as error:
            if self._must_succeed:
                raise
            self._note_failed(error)

    def _drop_following(self) -> None:
        """Go on without the next query; start that of the view again if it was stopped for it."""
        assert self._following is not None
        self._pipeline.remove(self._following, dropped=True)
        self._following = None
        if self._query.is_stopping:
            self._pipeline.remove(self._query)
            self._query = self._made(self._session.materialized.defined(self._view))
            self._pipeline.add(self._query)

    def _has_caught_up(self, following: ViewQuery) -> bool:
        """Whether the next query has read all that the view has."""
        progress = following.progress
        offset = progress.last_offset
        if (
            progress.planner is None
            or not progress.replayed
            or offset.get("view") != self._fingerprint
        ):
            return False
        read = self._query.progress.last_offset.get("vector", {})
        own = offset["vector"]
        behind = {key for key in read.keys() & own.keys() if not _is_after(own[key], read[key])}
        return not behind or progress.caught_up_offset() is not None

    def _is_ready(self, following: ViewQuery) -> bool:
        """Stop both queries between two batches, once the next one has caught up."""
        if not following.is_stopping:
            builds = following.builds and not self._query.is_stopping
            if builds or not self._has_caught_up(following):
                return False
            self._query.request_stop()
            if not self._query.has_stopped or not self._has_caught_up(following):
                return False
            following.request_stop()
        following.check()
        return following.has_stopped

    def _swap(self, following: ViewQuery) -> None:
        self._query.check()
        self._pipeline.remove(self._query)
        self._pipeline.remove(following, dropped=True)
        assert self._definition is not None
        definition = replace(self._definition, name=self._view)
        self._following = self._seen = None
        changes = swap(self._session, definition, self._query, following)
        self._notice(
            f"{'.'.join(self._view[1:])}: the new query has taken over, {changes:,} changes"
        )
        self._query = self._made(self._session.materialized.defined(self._view))
        self._pipeline.add(self._query)


def _is_after(own: Any, other: Any) -> bool:
    """Whether a position in a table is the same as another one, or a later one."""
    later = own["snapshot"] > other["snapshot"] and own["time"] >= other["time"]
    return bool(own == other or (own["table"] == other["table"] and later))
