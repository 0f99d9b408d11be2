"""Plans a script with a draft session: finds its errors, and runs and creates nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from streamhouse.connectors import registry
from streamhouse.errors import SqlError, StreamhouseError, UnknownUntilRunError
from streamhouse.lookup.strategies.selection import DISPLAY_NAMES
from streamhouse.runtime.session.ddl import located, mention_renamed
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.session.show_statements import describe
from streamhouse.runtime.statements.explain import explain
from streamhouse.runtime.statements.insert_plan import lookup_strategies
from streamhouse.runtime.statements.steps import Step, steps
from streamhouse.sql import syntax
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.batch.dml_plan import analyze_dml
from streamhouse.sql.resolution.insert_target import given_columns
from streamhouse.sql.statements.create_view import CreateView
from streamhouse.sql.views.statement import AlterMaterializedView, CreateMaterializedView


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
) -> Iterator[Step]:
    """Plan each statement of a script.

    `files`: the file of each statement, if the script has several. Raises the errors that a run
    would raise: `SqlError`, `UnsupportedSqlError`, `TableError`, `OptionError`, each with line and
    column. Leaves out statements that only a run can plan, and what follows if that is a view.
    """
    for number, statement in enumerate(statements):
        file = files[number] if files else None
        try:
            with located(statement):
                for step in steps(session, statement, lambda text: None):
                    planned = None if step.defined is not None else _of_step(session, step)
                    if planned is not None:
                        yield replace(planned, file=file)
        except UnknownUntilRunError:
            if isinstance(statement, CreateView):
                return
        except StreamhouseError as error:
            if isinstance(error, SqlError):
                mention_renamed(session, error)
            if file is not None:
                error.within(file)
            raise


def _of_step(session: DraftSession, step: Step) -> Step | None:
    """A step with all plans of its statement; None if that neither reads nor writes tables."""
    statement, target = step.statement, step.target
    match statement:
        case syntax.Insert() | CreateMaterializedView() if step.view is not None:
            return step
        case syntax.Insert() | syntax.Select() if step.queries:
            choices = (lookup_strategies(session, query, target) for query in step.queries)
            words = (tuple(DISPLAY_NAMES[each.strategy] for each in own) for own in choices)
            return replace(step, strategies=tuple(words))
        case syntax.Insert():
            target = session.table(statement.target)
            registry.check_sink(target, statement.position)
            given = given_columns(target, statement)
            query = analyze_bounded(statement.query, session, target, given)
            return replace(step, target=target, bounded=query)
        case syntax.Select():
            return replace(step, bounded=analyze_bounded(statement.query, session))
        case syntax.DmlStatement():
            change = analyze_dml(statement, session)
            return replace(step, target=change.target, bounded=change.query)
        case AlterMaterializedView():
            session.materialized.existing(session.full(statement.name))
        case syntax.Truncate():
            return replace(step, target=session.table(statement.target))
        case syntax.Explain():
            explain(session, statement)
        case syntax.Show() | syntax.Describe():
            describe(session, statement)
    return None
