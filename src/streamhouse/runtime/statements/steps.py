"""What a statement of a script stands for: the statements and continuous queries to run, in order.

An INSERT, a SELECT or a view may need tables and queries of its own: for the rows of its lookup
joins, for sources that are no Paimon tables, for a result that no streaming query computes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.runtime.session.ddl import Defined, define
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.insert_plan import is_bounded_query, plan_insert, plan_select
from streamhouse.runtime.statements.result_view import KeptResult, ResultView, Staged
from streamhouse.runtime.statements.staged_join import staged_join
from streamhouse.runtime.views.planned import check_view
from streamhouse.sql import syntax
from streamhouse.sql.plan import BoundedQuery, Name, StreamQuery, TableInfo
from streamhouse.sql.views.statement import CreateMaterializedView

Note = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """A statement that has changed the session (`defined`), or one to run.

    `queries` are its continuous queries: of an INSERT into `target`, or of a SELECT. `view` is the
    plan by which `target` is kept: that of the view, or of the INSERT (`kept`). A statement with
    none of these runs at once.

    Planning without a run adds the query that is `bounded`, for each of `queries` the `strategies`
    of its lookups in words, and the `file` of the statement, if the script has several.
    """

    statement: syntax.Statement
    defined: Defined | None = None
    target: TableInfo | None = None
    queries: tuple[StreamQuery, ...] = ()
    view: ViewPlan | None = None
    kept: KeptResult | None = None
    bounded: BoundedQuery | None = None
    strategies: tuple[tuple[str, ...], ...] = ()
    file: str | None = None


def steps(session: Session, statement: syntax.Statement, note: Note) -> Iterator[Step]:
    """The steps of a statement; each is to be run before the next one is requested.

    Creates tables and views in `session` on the way. `note` gets what the user should know.
    """
    match statement:
        case syntax.StatementSet():
            for insert in statement.inserts:
                yield from steps(session, insert, note)
        case syntax.Insert() | syntax.Select() if is_bounded_query(session, statement.query):
            yield Step(statement)
        case syntax.Insert():
            target = session.table(statement.target)
            planned = plan_insert(session, statement, target)
            yield from _planned(session, statement, target, planned, note)
        case syntax.Select():
            yield from _planned(session, statement, None, plan_select(session, statement), note)
        case CreateMaterializedView():
            staged = staged_join(session, statement, session.full(statement.name))
            if staged is not None:
                yield from _planned(session, statement, None, staged, note)
                return
            yield Step(statement, define(session, statement))
            yield from _view(session, statement, note)
        case _:
            yield Step(statement, define(session, statement))


def _planned(
    session: Session,
    statement: syntax.Insert | syntax.Select | CreateMaterializedView,
    target: TableInfo | None,
    planned: Sequence[StreamQuery] | KeptResult | ResultView | Staged,
    note: Note,
) -> Iterator[Step]:
    if isinstance(planned, ResultView):
        create = planned.create
        _note_recomputed(create.name, note)
        session.materialized.create(create, at_once=True)
        yield from _view(session, create, note)
        yield from steps(session, planned.reader, note)
    elif isinstance(planned, Staged):
        planned.create(session)
        if planned.note:
            note(f"{'.'.join(planned.table.name[1:])}: {planned.note}")
        yield from steps(session, planned.feed, note)
        yield from steps(session, planned.rest, note)
    elif isinstance(planned, KeptResult):
        assert target is not None
        session.materialized.reserved.add(planned.inputs.owner)
        for feed in planned.inputs.create(statement.position):
            yield from steps(session, feed, note)
        yield Step(statement, None, target, view=planned.plan, kept=planned)
        if not planned.plan.keyless:
            _note_recomputed(target.name, note)
        elif planned.plan.windows is not None:
            _note_closed(target.name, note)
        _note_shared_keys(target, planned.plan, note)
    else:
        yield Step(statement, None, target, tuple(planned))


def _view(session: Session, statement: CreateMaterializedView, note: Note) -> Iterator[Step]:
    """The queries of a view: those that fill its input tables, then its own, or its next one."""
    view = session.materialized.defined(session.full(statement.name))
    following = session.materialized.next(view.name) or view
    feeds = {feed.target: feed for feed in (*view.feeds, *following.feeds)}
    for feed in feeds.values():
        yield from steps(session, feed, note)
    target = session.table(view.name)
    _note_shared_keys(target, following.plan, note)
    check_view(following.plan, target, statement.position)
    yield Step(statement, None, target, view=following.plan)


def _note_recomputed(result: Name, note: Note) -> None:
    note(
        f"{'.'.join(result[1:])}: at each change of a table that the SELECT reads, the result "
        "is updated from that change, or computed again and compared; EXPLAIN says which"
    )


def _note_closed(result: Name, note: Note) -> None:
    note(
        f"{'.'.join(result[1:])}: gets each window, match or joined row once, when the watermark "
        "has passed it; later rows go to a table of late rows"
    )


def _note_shared_keys(table: TableInfo, plan: ViewPlan, note: Note) -> None:
    if not plan.unique:
        note(
            f"{'.'.join(table.name[1:])}: several rows of the result may have the same "
            f"{', '.join(plan.key)}; then only the row with the greatest values counts, "
            "column by column"
        )
