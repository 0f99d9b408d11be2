"""Plans a script with a draft session: finds its errors, and runs and creates nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from streamhouse.connectors import registry
from streamhouse.errors import SqlError, StreamhouseError, UnknownUntilRunError
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.session.ddl import change_session, located, mention_renamed
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.session.show_statements import describe
from streamhouse.runtime.statements.explain import explain
from streamhouse.runtime.statements.insert_plan import is_bounded_query, plan_insert, plan_select
from streamhouse.runtime.statements.result_view import KeptResult, ResultView
from streamhouse.runtime.statements.staged_join import StagedJoin, staged_join
from streamhouse.runtime.views.planned import check_view
from streamhouse.sql import syntax
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.batch.dml_plan import analyze_dml
from streamhouse.sql.plan import BoundedQuery, StreamQuery, TableInfo
from streamhouse.sql.statements.create_view import CreateView
from streamhouse.sql.views.statement import AlterMaterializedView, CreateMaterializedView

QueryStatement = (
    syntax.Insert | syntax.Select | syntax.DmlStatement | syntax.Truncate | CreateMaterializedView
)


@dataclass(frozen=True)
class PlannedStatement:
    """A statement that reads or writes tables.

    Its query is `bounded`, `continuous` (a query for each input of a UNION ALL), or a `view`; that
    of TRUNCATE is none. `target`: the table that it writes. `strategies`: in words, for each
    continuous query those of its lookups. `file`: its file, if the script has several.
    """

    statement: QueryStatement
    target: TableInfo | None = None
    bounded: BoundedQuery | None = None
    continuous: tuple[StreamQuery, ...] = ()
    view: ViewPlan | None = None
    strategies: tuple[tuple[str, ...], ...] = ()
    file: str | None = None


@contextmanager
def held_notices(session: DraftSession, notice: Callable[[str], None]) -> Iterator[None]:
    """Hold back the notices of planning, which a run gives again; give them if planning fails.

    An error may come from a declaration without effect, of which only a notice tells.
    """
    held: list[str] = []
    session.notice = held.append
    try:
        yield
    except StreamhouseError:
        for text in held:
            notice(text)
        raise


def plan_script(
    session: DraftSession, statements: Sequence[syntax.Statement], files: Sequence[str] = ()
) -> Iterator[PlannedStatement]:
    """Plan each statement of a script.

    `files`: the file of each statement, if the script has several. Raises the errors that a run
    would raise: `SqlError`, `UnsupportedSqlError`, `TableError`, `OptionError`, each with line and
    column. Leaves out statements that only a run can plan, and what follows if that is a view.
    """
    for number, statement in enumerate(statements):
        file = files[number] if files else None
        try:
            with located(statement):
                yield from _planned(session, statement, file)
        except UnknownUntilRunError:
            if isinstance(statement, CreateView):
                return
        except StreamhouseError as error:
            if isinstance(error, SqlError):
                mention_renamed(session, error)
            if file is not None:
                error.within(file)
            raise


def _planned(
    session: DraftSession, statement: syntax.Statement, file: str | None
) -> Iterator[PlannedStatement]:
    if isinstance(statement, CreateMaterializedView):
        staged = staged_join(session, statement, session.full(statement.name))
        if staged is not None:
            yield from _joined(session, staged, file)
            return
    if change_session(session, statement) is not None:
        if isinstance(statement, CreateMaterializedView):
            yield from _view(session, statement, file)
        return
    match statement:
        case syntax.StatementSet():
            for insert in statement.inserts:
                yield from _planned(session, insert, file)
        case syntax.Insert():
            yield from _insert(session, statement, file)
        case syntax.Select() if is_bounded_query(session, statement.query):
            query = analyze_bounded(statement.query, session)
            yield PlannedStatement(statement, bounded=query, file=file)
        case syntax.Select():
            planned = plan_select(session, statement)
            if isinstance(planned, ResultView):
                yield from _through_view(session, planned, file)
            elif isinstance(planned, StagedJoin):
                yield from _joined(session, planned, file)
            else:
                yield _continuous(session, statement, None, planned, file)
        case syntax.DmlStatement():
            change = analyze_dml(statement, session)
            yield PlannedStatement(statement, change.target, change.query, file=file)
        case AlterMaterializedView():
            session.materialized.existing(session.full(statement.name))
        case syntax.Truncate():
            yield PlannedStatement(statement, session.table(statement.target), file=file)
        case syntax.Show() | syntax.Describe():
            describe(session, statement)
        case syntax.Explain(statement=CreateMaterializedView() as view):
            staged = staged_join(session, view, session.full(view.name))
            if staged is None:
                explain(session, statement)
                return
            with staged.drafted(session):
                yield from _insert(session, staged.feed, file)
                yield from _planned(session, replace(statement, statement=staged.rest), file)
        case syntax.Explain():
            yield from _planned(session, statement.statement, file)


def _view(
    session: DraftSession, statement: CreateMaterializedView, file: str | None
) -> Iterator[PlannedStatement]:
    """The queries of a view: those that fill its input tables, then its own."""
    view = session.materialized.defined(session.full(statement.name))
    for feed in view.feeds:
        yield from _insert(session, feed, file)
    target = session.table(view.name)
    check_view(view.plan, target, statement.position)
    yield PlannedStatement(statement, target, view=view.plan, file=file)


def _through_view(
    session: DraftSession, planned: ResultView, file: str | None
) -> Iterator[PlannedStatement]:
    session.materialized.create(planned.create)
    yield from _view(session, planned.create, file)
    yield from _planned(session, planned.reader, file)


def _joined(
    session: DraftSession, planned: StagedJoin, file: str | None
) -> Iterator[PlannedStatement]:
    planned.create(session)
    yield from _insert(session, planned.feed, file)
    yield from _planned(session, planned.rest, file)


def _insert(
    session: DraftSession, statement: syntax.Insert, file: str | None
) -> Iterator[PlannedStatement]:
    target = session.table(statement.target)
    if is_bounded_query(session, statement.query):
        registry.check_sink(target, statement.position)
        given = given_columns(target, statement)
        query = analyze_bounded(statement.query, session, target, given)
        yield PlannedStatement(statement, target, query, file=file)
        return
    planned = plan_insert(session, statement, target)
    if isinstance(planned, ResultView):
        yield from _through_view(session, planned, file)
    elif isinstance(planned, StagedJoin):
        yield from _joined(session, planned, file)
    elif isinstance(planned, KeptResult):
        for feed in planned.inputs.create():
            yield from _insert(session, feed, file)
        yield PlannedStatement(statement, target, view=planned.plan, file=file)
    else:
        yield _continuous(session, statement, target, planned, file)


def _continuous(
    session: DraftSession,
    statement: syntax.Insert | syntax.Select,
    target: TableInfo | None,
    queries: Sequence[StreamQuery],
    file: str | None,
) -> PlannedStatement:
    strategies = tuple(tuple(session.strategies(query, target)) for query in queries)
    return PlannedStatement(statement, target, None, tuple(queries), None, strategies, file)
