"""Refreshes a view once, in this process: for REFRESH, and for views with REFRESH_MODE = FULL."""

import time
import uuid
from collections import Counter
from dataclasses import replace

from streamhouse.errors import SqlError, StreamhouseError
from streamhouse.runtime.batch.progress_line import progress
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.planned import check_view, view_spec
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.task import RefreshTask
from streamhouse.source import Offset
from streamhouse.sql.views.statement import AlterMaterializedView


def refresh_view(session: Session, statement: AlterMaterializedView) -> int:
    """Run ALTER MATERIALIZED VIEW … REFRESH; returns the number of changes.

    REFRESH PARTITION computes the whole view, too: it writes only what differs. If the view has a
    next query, that one takes over. Raises `StreamhouseError` if a pipeline is to do that.
    """
    target = session.table(statement.name)
    view = session.materialized.defined(session.full(statement.name))
    for column in statement.partition:
        if column not in target.partitioned_by:
            raise SqlError.at(
                statement.position,
                f"'{column}' is no partition column of {target.name[-1]}; its partition columns: "
                f"{', '.join(target.partitioned_by) or 'none'}",
            )
    following = session.materialized.next(view.name)
    if following is None:
        check_view(view.plan, target, statement.position)
        return refresh(view_spec(session, target, view.plan)).total()
    check_view(following.plan, target, statement.position)
    address = session.address(target)
    checkpoint = Checkpoint.of_view(address)
    try:
        checkpoint.acquire(wait_s=0)
    except StreamhouseError as error:
        raise StreamhouseError(
            f"view {address.identifier} gets its new query from the pipeline that runs it, once "
            f"that has computed it: {error}"
        ) from None
    try:
        # Whether it can be computed shows before anything changes.
        refresh(view_spec(session, session.table(following.name), following.plan))
        session.materialized.take_over(replace(following, name=view.name))
        session.materialized.withdraw_next(view.name)
        return refresh(view_spec(session, session.table(view.name), following.plan)).total()
    finally:
        checkpoint.release()


def refresh(spec: ViewSpec, end: Offset | None = None) -> Counter[str]:
    """Compute a view from the newest rows of its inputs, or those of the offset `end`.

    Returns the number of changes by row kind.
    """
    spec, planner = replace(spec, query_id=str(uuid.uuid4())), ViewPlanner(spec)
    if end is None:
        end = {"batch": 0, "now": time.time_ns() // 1_000_000, **planner.newest({})}
    with progress() as line:
        line.part(f"refreshing {spec.target.identifier}", planner.rows_left({}))
        task = RefreshTask(spec, TaskInput(0, {}, end), line.reached)
        task.commit()
    return task.changes
