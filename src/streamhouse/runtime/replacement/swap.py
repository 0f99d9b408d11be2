"""Swaps the next query of a view in, once both queries have stopped.

The view's definition changes first, in one version of its schema; then one commit has the rows in
which the table of the next query differs. Its checkpoint becomes that of the view, and its table is
dropped. After a kill in between, the view's query computes what is missing when it starts again.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from streamhouse.operators.trees.recompute import Recompute
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.session.materialized_views import DefinedView
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import unregister_checkpoints
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.incremental import Changes, keeps_updates
from streamhouse.runtime.views.planned import view_spec
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.query import ViewQuery
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.task import RefreshTask
from streamhouse.source import Offset
from streamhouse.state.store import StateStore


def swap(session: Session, definition: DefinedView, query: ViewQuery, following: ViewQuery) -> int:
    """Let a definition take over from that of a view's query; returns the number of changes.

    `following` has computed it. Both queries have been stopped. Driver only.
    """
    target, end = query.spec.target.identifier, following.progress.last_offset
    with ExitStack() as stack:
        for checkpoint in (query.checkpoint, following.checkpoint):
            checkpoint.acquire()
            stack.callback(checkpoint.release)
        reached("swap-begun", 0, target)
        session.materialized.take_over(definition)
        reached("swap-defined", 0, target)
        spec = view_spec(session, session.table(definition.name), definition.plan)
        spec = replace(spec, query_id=following.spec.query_id)
        task = _Swap(spec, following.spec.target.planned(), end)
        task.commit()
        reached("swap-committed", 0, target)
        task.adapt(following.checkpoint)
        for checkpoint in (query.checkpoint, following.checkpoint):
            unregister_checkpoints(spec.target.warehouse, checkpoint)
        query.checkpoint.take(following.checkpoint)
        reached("swap-moved", 0, target)
        session.materialized.withdraw_next(definition.name)
    return task.changes.total()


class _Swap(RefreshTask):
    """The commit of a swap: a batch whose result is in the table of the next query.

    It has the number of the last batch of the next query, whose id the view's query goes on with.
    """

    def __init__(self, spec: ViewSpec, following: Table, end: Offset) -> None:
        self._end = {**end, "view": ViewPlanner(spec).newest({})["view"]}
        super().__init__(spec, TaskInput(0, {}, self._end))
        self._following = following
        self._table_before: dict[str, Any] = {"snapshot": 0, "time": 0}

    def _changed(self, table: Table) -> Changes:
        latest = table.latest_snapshot_id()
        if latest is not None:
            self._table_before = {"snapshot": latest, "time": table.snapshot(latest).time_ms}
        following = self._following
        return Recompute(self._spec.plan).differences(
            (table.arrow_schema, lambda: table.read(snapshot=latest or 0)),
            (following.arrow_schema, following.read),
            keeps_updates(table),
        )

    def adapt(self, checkpoint: Checkpoint) -> None:
        """Let the checkpoint of the next query say that its batches are of the view's table.

        Its kept rows fit only if nothing but this swap has changed that table since it was read.
        """
        store = StateStore.of(checkpoint.path)
        if store.usable:
            with store.writing():
                self._adapt_manifests(store)
        checkpoint.logs.change_last(self._end)

    def _adapt_manifests(self, store: StateStore) -> None:
        view = self._end["view"]
        for manifest in store.manifests():
            table = manifest.table
            if manifest.batch == self._task.batch:
                table = {**self._table_before, "wrote": int(self.changes.total() > 0)}
            as_of = {**manifest.as_of, "view": view} if manifest.as_of else {}
            offset = {**manifest.offset, "view": view}
            store.fill(replace(manifest, offset=offset, table=table, as_of=as_of))
