"""A SELECT that no streaming query computes: a view keeps its result, and a stream reads that.

So every sink gets the changes of any SELECT on the path that it has for the changelog of a table,
exactly once where it can (decision 267).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from streamhouse.connectors import registry
from streamhouse.errors import (
    NotStreamedError,
    NoWindowsError,
    SqlError,
    TableError,
    UnsupportedSqlError,
)
from streamhouse.operators.planning.view_plan import ViewPlan, plan_view, plan_view_into
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.session.catalogs import DEFAULT_DATABASE
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.session.view_input_tables import ViewInputTables
from streamhouse.runtime.views.planned import check_view, early_fire_ms, lateness_ms, view_spec
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.sql.batch.closed_windows import windows
from streamhouse.sql.options.merge_functions import MERGING_ENGINES
from streamhouse.sql.plan import Name, TableInfo
from streamhouse.sql.resolution.columns import parse_query
from streamhouse.sql.statements.create_view import with_full_names
from streamhouse.sql.syntax import Insert, Query, Select
from streamhouse.sql.text import ticked
from streamhouse.sql.views.statement import CreateMaterializedView
from streamhouse.sql.views.stored_view import keeps_result

_RAW = "/*+ OPTIONS('scan.remove-normalize' = 'true') */"
"""The changelog of a view is exact as it is written, so it need not be computed again."""

_EXACT = {"changelog-producer": "input"}
SELECT: Name = ("", DEFAULT_DATABASE, "select")
"""Stands for the target of a SELECT without INSERT."""


@dataclass(frozen=True)
class KeptResult:
    """An INSERT whose target keeps the result as a view does; `columns` is its column list."""

    plan: ViewPlan
    inputs: ViewInputTables
    columns: tuple[str, ...]


@dataclass(frozen=True)
class ResultView:
    """The statements that stand for a SELECT or its INSERT: the view, and what reads it."""

    create: CreateMaterializedView
    reader: Insert | Select
    plan: ViewPlan


def kept_result(
    session: Session, statement: Insert, target: TableInfo, refused: SqlError
) -> ResultView | KeptResult:
    """Plan an INSERT that no streaming query computes, for the reason `refused`.

    If its SELECT cannot be a view either, raises the view's error, or `refused` if that says what
    to change. Raises `UnsupportedSqlError` if the result changes and the target takes inserts only.
    """
    if _RAW in statement.query.text:
        raise refused
    given = given_columns(target, statement)
    appended = target.connector == "paimon" and not target.primary_key
    if (appended or keeps_result(target)) and not statement.partition:
        # Several queries may append to a table, and each has input tables of its own.
        own = session.result_table(result_name(target.name, "view")) if appended else target.name
        inputs = ViewInputTables(session, own)

        def planned(closed: bool) -> ViewPlan:
            return plan_view_into(statement.query, inputs, target, given, closed)

        with _refusing(refused):
            plan = planned(closed=False)
        if appended and plan.changes_by is not None:
            with _refusing_changes(statement, _NO_KEY, plan.changes_by):
                plan = planned(closed=True)
        elif not appended and lateness_ms(session):
            try:
                plan = planned(closed=True)
            except NoWindowsError:
                pass
            except UnsupportedSqlError as why:
                session.notice(
                    f"INSERT INTO {'.'.join(statement.target)}: 'table.exec.emit.allow-lateness' "
                    f"has no effect: {why.message}"
                )
        check_view(plan, target, statement.position)
        return KeptResult(replace(plan, reason=_reason(refused)), inputs, given)
    filled = given or tuple(c.name for c in target.columns if not c.virtual)
    # Of rows with one key most targets have only one, so it must be known which.
    merges = target.options.get("merge-engine") in MERGING_ENGINES
    key = () if merges else target.primary_key
    name = result_name(target.name, "view")
    with _refusing(refused):
        view = _view(session, statement, name, filled, key)
    only_inserts = _only_inserts(target)
    if view.plan.changes_by is not None and not target.primary_key:
        view = _closed(session, statement, name, filled, only_inserts, view.plan.changes_by) or view
    # A table that merges rows need not take any back if none changes.
    grows = merges and view.plan.changes_by is None
    closed = view.plan.windows is not None
    appends = grows or closed or only_inserts is not None
    create = replace(view.create, appends=appends, closed=closed)
    kinds = {c.name: c.type for c in target.columns if c.name in view.plan.untyped}
    reader = replace(statement, columns=given, query=_reading(create, statement.query, kinds))
    return ResultView(create, reader, replace(view.plan, reason=_reason(refused)))


def kept_spec(session: Session, statement: Insert, target: TableInfo, kept: KeptResult) -> ViewSpec:
    """The specification of the query that keeps the result of an INSERT in its target."""
    text = with_full_names(statement.query, kept.inputs.stored_name)
    windowed = not kept.plan.keyless and windows(parse_query(statement.query).tree)
    freshness_s = early_fire_ms(session) / 1000 if windowed else 0.0
    return replace(view_spec(session, target, kept.plan, freshness_s), select=(text, kept.columns))


def result_name(target: Name, suffix: str) -> Name:
    """The name of a table that a statement keeps beside its target."""
    return (*target[:2], f"{re.sub('[^A-Za-z0-9_]', '_', target[-1])}__{suffix}")


def _reason(refused: SqlError) -> str:
    return refused.message.split(";")[0]


_NO_KEY = "the table has no primary key"
_CHANGING = "Write to a table with a PRIMARY KEY, or CREATE MATERIALIZED VIEW … AS SELECT"


def _closed(
    session: Session,
    statement: Insert | Select,
    name: Name,
    columns: tuple[str, ...],
    only_inserts: str | None,
    changing: str,
) -> ResultView | None:
    """The view of a result that changes, with its windows once they are closed.

    If there is none, raises `UnsupportedSqlError` for a target that takes inserts only, which says
    why; returns None for others.
    """
    if only_inserts is None or not isinstance(statement, Insert):
        with suppress(UnsupportedSqlError):
            return _view(session, statement, name, columns, (), closed=True)
        return None
    with _refusing_changes(statement, only_inserts, changing):
        return _view(session, statement, name, columns, (), closed=True)


@contextmanager
def _refusing_changes(statement: Insert, only_inserts: str, changing: str) -> Iterator[None]:
    """For a result without closed windows, raise the error that says why it cannot change."""
    try:
        yield
    except UnsupportedSqlError as why:
        waits = "" if isinstance(why, NoWindowsError) else f"; {why.message}"
        raise UnsupportedSqlError.at(
            statement.position,
            f"INSERT INTO {'.'.join(statement.target)}: {only_inserts}, and rows of the result "
            f"change: {changing}{waits}. {_CHANGING}",
        ) from None


def select_view(session: Session, statement: Select, refused: SqlError) -> ResultView:
    """As `kept_result`, for a SELECT that prints its changes."""
    name = result_name(SELECT, "view")
    with _refusing(refused):
        view = _view(session, statement, name, (), ())
    if view.plan.changes_by is not None:
        view = _closed(session, statement, name, (), None, view.plan.changes_by) or view
    reader = replace(statement, query=_reading(view.create, statement.query))
    return replace(view, reader=reader, plan=replace(view.plan, reason=_reason(refused)))


@contextmanager
def _refusing(refused: SqlError) -> Iterator[None]:
    """For a SELECT that no view computes either, raise the error that says what to change."""
    try:
        yield
    except (UnsupportedSqlError, TableError) as error:
        if not isinstance(refused, NotStreamedError):
            raise refused from None
        if isinstance(error, SqlError):
            error.reword(f"{error.message}; no streaming query computes it: {refused.message}")
        raise


def _view(
    session: Session,
    statement: Insert | Select,
    name: Name,
    columns: tuple[str, ...],
    key: tuple[str, ...],
    closed: bool = False,
) -> ResultView:
    """The view of a result, `session.result_table(name)`; `closed` as for `plan_view`."""
    full = session.result_table(name)
    inputs = ViewInputTables(session, full)
    plan = plan_view(statement.query, inputs, columns, key, closed)
    return ResultView(
        CreateMaterializedView(
            statement.position,
            statement.text,
            full,
            statement.query,
            columns,
            key,
            options=_EXACT,
            replace=True,
            appends=closed,
            closed=closed,
        ),  # fmt: skip
        statement,
        plan,
    )


def _reading(
    view: CreateMaterializedView, query: Query, kinds: Mapping[str, str] = MappingProxyType({})
) -> Query:
    """A SELECT of all columns of a view; `kinds` are the types of those without one."""
    columns = {name: ticked(name) for name in view.columns}
    casts = {name: f"CAST({ticked(name)} AS {kind})" for name, kind in kinds.items()}
    listed = ", ".join((columns | casts).values()) or "*"
    table = ".".join(map(ticked, view.name))
    return Query(f"SELECT {listed} FROM {table} {_RAW}", query.position)


def _only_inserts(target: TableInfo) -> str | None:
    """Why a target takes inserts only; None if it takes updates and deletes."""
    if target.connector == "paimon":
        return None if target.primary_key else _NO_KEY
    return registry.connector(target.connector).refused_changes(target)
