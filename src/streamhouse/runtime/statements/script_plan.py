"""Plans a script with a draft session: finds its errors, and runs and creates nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from streamhouse.connectors import registry
from streamhouse.errors import SqlError, StreamhouseError, UnknownUntilRunError
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.session.ddl import located, mention_renamed
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.session.show_statements import describe
from streamhouse.runtime.statements.explain import explain
from streamhouse.runtime.statements.staged_join import staged_join
from streamhouse.runtime.statements.steps import Step, steps
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
    if isinstance(statement, syntax.Explain):
        yield from _explained(session, statement, file)
        return
    for step in steps(session, statement, lambda text: None):
        planned = None if step.defined is not None else _of_step(session, step)
        if planned is not None:
            yield replace(planned, file=file)


def _explained(
    session: DraftSession, statement: syntax.Explain, file: str | None
) -> Iterator[PlannedStatement]:
    view = statement.statement
    if not isinstance(view, CreateMaterializedView):
        yield from _planned(session, view, file)
        return
    staged = staged_join(session, view, session.full(view.name))
    if staged is None:
        explain(session, statement)
        return
    with staged.drafted(session):
        yield from _planned(session, staged.feed, file)
        yield from _planned(session, replace(statement, statement=staged.rest), file)


def _of_step(session: DraftSession, step: Step) -> PlannedStatement | None:
    """A step with the plan of its statement; None if that neither reads nor writes tables."""
    statement, target = step.statement, step.target
    match statement:
        case syntax.Insert() | CreateMaterializedView() if step.view is not None:
            return PlannedStatement(statement, target, view=step.view)
        case syntax.Insert() | syntax.Select() if step.queries:
            ways = tuple(tuple(session.strategies(query, target)) for query in step.queries)
            return PlannedStatement(statement, target, None, step.queries, None, ways)
        case syntax.Insert():
            target = session.table(statement.target)
            registry.check_sink(target, statement.position)
            given = given_columns(target, statement)
            query = analyze_bounded(statement.query, session, target, given)
            return PlannedStatement(statement, target, query)
        case syntax.Select():
            return PlannedStatement(statement, None, analyze_bounded(statement.query, session))
        case syntax.DmlStatement():
            change = analyze_dml(statement, session)
            return PlannedStatement(statement, change.target, change.query)
        case AlterMaterializedView():
            session.materialized.existing(session.full(statement.name))
        case syntax.Truncate():
            return PlannedStatement(statement, session.table(statement.target))
        case syntax.Show() | syntax.Describe():
            describe(session, statement)
    return None
