"""A SELECT that no streaming query computes: a table keeps its result, and a stream reads that.

So every sink gets the changes of any SELECT on the path that it has for the changelog of a table,
exactly once where it can (decision 267). A result that only grows is appended to its table; any
other is kept by a view.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from streamhouse.connectors import registry
from streamhouse.errors import (
    NotStreamedError,
    NoWindowsError,
    SqlError,
    TableError,
    UnsupportedSqlError,
)
from streamhouse.operators.planning.view_plan import ViewPlan, plan_view, plan_view_into
from streamhouse.runtime.session.catalogs import DEFAULT_DATABASE
from streamhouse.runtime.session.materialized_views import ViewInputTables
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.views.planned import check_view, early_fire_ms, lateness_ms, view_spec
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.sql.batch.closed_windows import windows
from streamhouse.sql.options.merge_functions import MERGING_ENGINES
from streamhouse.sql.plan import Name, TableInfo
from streamhouse.sql.resolution.columns import parse_query
from streamhouse.sql.resolution.insert_target import given_columns
from streamhouse.sql.statements.create_view import with_full_names
from streamhouse.sql.syntax import Insert, Query, Select
from streamhouse.sql.text import ticked
from streamhouse.sql.views.statement import CreateMaterializedView
from streamhouse.sql.views.stored_view import APPENDED, is_view, keeps_result

_RAW = "/*+ OPTIONS('scan.remove-normalize' = 'true') */"
"""The changelog of a view is exact as it is written, so it need not be computed again."""

Reader: TypeAlias = Insert | Select | CreateMaterializedView
_EXACT = {"changelog-producer": "input"}
_NO_KEY = "the table has no primary key"
_CHANGING = "Write to a table with a PRIMARY KEY, or CREATE MATERIALIZED VIEW … AS SELECT"
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


@dataclass(frozen=True)
class Staged:
    """The statements that stand for another one: `feed` fills `table`, and `rest` reads it.

    `note`: what a user is told of the table.
    """

    table: TableInfo
    feed: Insert
    rest: Reader
    note: str = ""

    def create(self, session: Session) -> None:
        """Create the table; raises `TableError` if it has the rows of another SELECT."""
        if session.has_table(self.table.name):
            found = session.table(self.table.name)
            if _shape(found) != _shape(self.table):
                kind = "MATERIALIZED VIEW" if is_view(found) else "TABLE"
                raise TableError(
                    f"table {'.'.join(self.table.name[1:])} has the rows of another SELECT, or "
                    f"other columns; use DROP {kind}, and run the script once with --from-scratch"
                )
        session.tables.keep(self.table)
        session.materialized.reserved.add(self.table.name)

    @contextmanager
    def drafted(self, session: Session) -> Iterator[None]:
        """Let a session plan statements as if the table were there."""
        tables, reserved = session.tables.temporary, session.materialized.reserved
        name = self.table.name
        tables[name] = self.table
        reserved.add(name)
        try:
            yield
        finally:
            del tables[name]
            reserved.discard(name)


def kept_result(
    session: Session, statement: Insert, target: TableInfo, refused: SqlError
) -> ResultView | KeptResult | Staged:
    """Plan an INSERT that no streaming query computes, for the reason `refused`.

    If its SELECT cannot be a view either, raises the view's error, or `refused` if that says what
    to change. Raises `UnsupportedSqlError` if the result changes and the target takes inserts only.
    """
    if _RAW in statement.query.text:
        raise refused
    result, given = _Result(session, statement, refused), given_columns(target, statement)
    appended = target.connector == "paimon" and not target.primary_key
    if (appended or keeps_result(target)) and not statement.partition:
        return result.kept(target, given)
    filled = given or tuple(c.name for c in target.columns if not c.virtual)
    merges = target.options.get("merge-engine") in MERGING_ENGINES
    only_inserts = _only_inserts(target)
    # Of rows with one key most targets have only one, so it must be known which.
    key = () if merges or only_inserts is not None else target.primary_key
    view = result.view(target.name, filled, key)
    kinds = {c.name: c.type for c in target.columns if c.name in view.plan.untyped}
    reader = replace(statement, columns=given, query=_reading(view, statement.query, kinds))
    # A table that merges rows need not take any back if none changes.
    if only_inserts is not None or (merges and view.plan.changes_by is None):
        return result.appended(view, reader, only_inserts or _NO_KEY)
    if not target.primary_key:
        with suppress(UnsupportedSqlError):
            return result.appended(view, reader)
    return replace(view, reader=reader)


def select_view(session: Session, statement: Select, refused: SqlError) -> ResultView | Staged:
    """As `kept_result`, for a SELECT that prints its changes."""
    result = _Result(session, statement, refused)
    view = result.view(SELECT)
    reader = replace(statement, query=_reading(view, statement.query))
    with suppress(UnsupportedSqlError):
        return result.appended(view, reader)
    return replace(view, reader=reader)


@dataclass(frozen=True)
class _Result:
    """The result of a statement that no streaming query computes, for the reason `refused`."""

    session: Session
    statement: Insert | Select
    refused: SqlError

    def kept(
        self, target: TableInfo, given: tuple[str, ...], only_inserts: str = _NO_KEY
    ) -> KeptResult:
        """The result in a table that keeps it, or to which it is appended.

        `only_inserts`: why what reads an appended result takes no changes.
        """
        session, statement = self.session, self.statement
        inputs = ViewInputTables(session, _owner(session, target))

        def planned(closed: bool) -> ViewPlan:
            return plan_view_into(statement.query, inputs, target, given, closed)

        with self._refusing():
            plan = planned(closed=False)
        if plan.keyless and plan.changes_by is not None:
            with _refusing_changes(statement, only_inserts, plan.changes_by):
                plan = planned(closed=True)
        elif not plan.keyless and lateness_ms(session):
            try:
                plan = planned(closed=True)
            except NoWindowsError:
                pass
            except UnsupportedSqlError as why:
                session.notice(
                    f"INSERT INTO {'.'.join(target.name)}: 'table.exec.emit.allow-lateness' has "
                    f"no effect: {why.message}"
                )
        check_view(plan, target, statement.position)
        return KeptResult(replace(plan, reason=self._reason), inputs, given)

    def view(
        self, target: Name, columns: tuple[str, ...] = (), key: tuple[str, ...] = ()
    ) -> ResultView:
        """The view of a result for a target, which nothing reads yet."""
        statement, full = self.statement, self.session.result_table(result_name(target, "view"))
        with self._refusing():
            inputs = ViewInputTables(self.session, full)
            plan = plan_view(statement.query, inputs, columns, key)
        create = CreateMaterializedView(
            statement.position, statement.text, full, statement.query, columns, key,
            options=_EXACT, replace=True,
        )  # fmt: skip
        return ResultView(create, statement, replace(plan, reason=self._reason))

    def appended(
        self, view: ResultView, reader: Insert | Select, only_inserts: str = _NO_KEY
    ) -> Staged:
        """A result in a table of its own, the one of `view`, to which it is appended.

        Raises `UnsupportedSqlError` if rows of the result change, and it has no closed windows.
        """
        statement, name = self.statement, view.create.name
        shown = view.plan.columns[view.plan.hidden :]
        table = TableInfo(name, tuple(replace(column, nullable=True) for column in shown))
        feed = Insert(statement.position, statement.text, name, (), statement.query)
        staged = Staged(table, feed, reader)
        with staged.drafted(self.session):
            kept = self.kept(table, (), only_inserts)
        text = with_full_names(statement.query, kept.inputs.stored_name)
        return replace(staged, table=replace(table, options={APPENDED: text}))

    @property
    def _reason(self) -> str:
        return self.refused.message.split(";")[0]

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """For a SELECT that no view computes either, raise the error that says what to change."""
        try:
            yield
        except (UnsupportedSqlError, TableError) as error:
            if not isinstance(self.refused, NotStreamedError):
                raise self.refused from None
            if isinstance(error, SqlError):
                why = self.refused.message
                error.reword(f"{error.message}; no streaming query computes it: {why}")
            raise


def _owner(session: Session, target: TableInfo) -> Name:
    """The name after which the input tables of a result are called.

    Several queries may append to a table, and each has input tables of its own.
    """
    own = target.primary_key or target.name in session.materialized.reserved
    return target.name if own else session.result_table(result_name(target.name, "view"))


def kept_spec(session: Session, statement: Insert, target: TableInfo, kept: KeptResult) -> ViewSpec:
    """The specification of the query that keeps the result of an INSERT in its target."""
    text = with_full_names(statement.query, kept.inputs.stored_name)
    windowed = not kept.plan.keyless and windows(parse_query(statement.query).tree)
    freshness_s = early_fire_ms(session) / 1000 if windowed else 0.0
    return replace(view_spec(session, target, kept.plan, freshness_s), select=(text, kept.columns))


def result_name(target: Name, suffix: str) -> Name:
    """The name of a table that a statement keeps beside its target."""
    return (*target[:2], f"{re.sub('[^A-Za-z0-9_]', '_', target[-1])}__{suffix}")


@contextmanager
def _refusing_changes(
    statement: Insert | Select, only_inserts: str, changing: str
) -> Iterator[None]:
    """For a result without closed windows, raise the error that says why it cannot change."""
    try:
        yield
    except UnsupportedSqlError as why:
        waits = "" if isinstance(why, NoWindowsError) else f"; {why.message}"
        into = f"INSERT INTO {'.'.join(statement.target)}" if isinstance(statement, Insert) else ""
        raise UnsupportedSqlError.at(
            statement.position,
            f"{into or 'SELECT'}: {only_inserts}, and rows of the result change: {changing}{waits}."
            f" {_CHANGING}",
        ) from None


def _reading(
    view: ResultView, query: Query, kinds: Mapping[str, str] = MappingProxyType({})
) -> Query:
    """A SELECT of all columns of a result; `kinds` are the types of those without one."""
    columns = {name: ticked(name) for name in view.create.columns}
    casts = {name: f"CAST({ticked(name)} AS {kind})" for name, kind in kinds.items()}
    listed = ", ".join((columns | casts).values()) or "*"
    table = ".".join(map(ticked, view.create.name))
    return Query(f"SELECT {listed} FROM {table} {_RAW}", query.position)


def _only_inserts(target: TableInfo) -> str | None:
    """Why a target takes inserts only; None if it takes updates and deletes."""
    if target.connector == "paimon":
        return None if target.primary_key else _NO_KEY
    return registry.connector(target.connector).refused_changes(target)


def _shape(table: TableInfo) -> tuple[object, ...]:
    kinds = [(column.name, column.type) for column in table.columns]
    return kinds, table.primary_key, is_view(table)
