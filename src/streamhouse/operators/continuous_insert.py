"""Plans a continuous INSERT: as queries over one stream each, or as a view of its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from streamhouse.errors import SqlError
from streamhouse.operators.view_plan import ViewPlan, plan_view_into
from streamhouse.sql.plan import Resolver, StreamQuery, TableInfo
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Query

_OTHER_ROWS = ("sequence.field", "rowkind.field", "ignore-delete", "ignore-update-before")
"""Options with which a table has other rows than those that were written last."""


def plan_continuous(
    query: Query,
    resolver: Resolver,
    target: TableInfo,
    columns: tuple[str, ...] = (),
    fixed: Mapping[str, str] = MappingProxyType({}),
) -> list[StreamQuery] | ViewPlan:
    """The streaming queries of a SELECT; for one that has none, the view that `target` keeps.

    Raises the error of `plan_stream_queries` if the target cannot keep a view, or the SELECT cannot
    be one.
    """
    try:
        return plan_stream_queries(query, resolver, target, columns, fixed)
    except SqlError as error:
        if fixed or not keeps_result(target):
            raise
        try:
            plan = plan_view_into(query, resolver, target, columns)
            return replace(plan, reason=error.message)
        except SqlError:
            raise error from None


def keeps_result(target: TableInfo) -> bool:
    """Whether a table has the rows of a result if these are written as upserts and deletes."""
    options = target.options
    return (
        target.connector == "paimon"
        and bool(target.primary_key)
        and options.get("merge-engine", "deduplicate") == "deduplicate"
        and options.get("deletion-vectors.enabled", "false") != "true"
        and set(target.partitioned_by) <= set(target.primary_key)
        and not any(key in options for key in _OTHER_ROWS)
    )
