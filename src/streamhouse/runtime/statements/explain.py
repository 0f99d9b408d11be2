"""EXPLAIN."""

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from streamhouse.connectors import registry
from streamhouse.errors import StreamhouseError, UnsupportedSqlError
from streamhouse.lookup.strategies.selection import refresh_rule
from streamhouse.operators.planning.view_plan import ViewPlan, plan_view
from streamhouse.operators.trees.drawing import drawn, whole_reason
from streamhouse.runtime.session.materialized_views import ViewInputTables
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.session.show_statements import ResultColumns, describe
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.statements.insert_plan import lookup_strategies, plan_insert, plan_select
from streamhouse.runtime.statements.result_view import KeptResult, ResultView, Staged
from streamhouse.runtime.statements.staged_join import staged_join
from streamhouse.runtime.views.incremental import compiled
from streamhouse.runtime.views.planned import view_spec
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.staged.planning import is_divisible, staged_tree
from streamhouse.sql import syntax
from streamhouse.sql.plan import Name, StreamQuery, TableInfo
from streamhouse.sql.statements.create_view import with_full_names
from streamhouse.sql.syntax import Insert
from streamhouse.sql.views.statement import CreateMaterializedView
from streamhouse.sql.views.stored_view import HIDDEN_KEY
from streamhouse.state.store import StateStore


def shown(session: Session, statement: syntax.Show | syntax.Describe | syntax.Explain) -> pa.Table:
    """The rows of SHOW, DESCRIBE or EXPLAIN; all columns are texts."""
    columns: ResultColumns
    if isinstance(statement, syntax.Explain):
        columns = {"plan": explain(session, statement)}
    else:
        columns = describe(session, statement)
    return pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()})


def explain(session: Session, statement: syntax.Explain) -> list[str]:
    """The lines of EXPLAIN; raises `UnsupportedSqlError` for statements without a plan."""
    inner = statement.statement
    if isinstance(inner, syntax.StatementSet):
        lines = []
        for insert in inner.inserts:
            lines += [f"INSERT INTO {'.'.join(insert.target)}", *_insert_lines(session, insert)]
        return lines
    return _lines(session, inner)


def _lines(session: Session, inner: syntax.Statement) -> list[str]:
    if isinstance(inner, Insert):
        return _insert_lines(session, inner)
    if isinstance(inner, syntax.Select):
        return _planned_lines(session, plan_select(session, inner), None)
    if isinstance(inner, CreateMaterializedView):
        full = session.full(inner.name)
        staged = staged_join(session, inner, full)
        if staged is not None:
            return _staged_lines(session, staged)
        inputs = ViewInputTables(session, full)
        stored = session.materialized.find(full)
        key = () if stored is None else session.table(full).primary_key or (HIDDEN_KEY,)
        plan = plan_view(inner.query, inputs, inner.columns, inner.primary_key, key)
        lines = view_lines(session, full, plan)
        if stored is not None and stored.query != with_full_names(inner.query, inputs.stored_name):
            # A script that is only planned may create the tables.
            with suppress(StreamhouseError):
                lines.append(_replaced_line(view_spec(session, session.table(full), plan)))
        return lines
    raise UnsupportedSqlError("EXPLAIN takes an INSERT, a SELECT, or CREATE MATERIALIZED VIEW")


def _replaced_line(spec: ViewSpec) -> str:
    """What it takes to replace the query of a view by that of a specification."""
    rows = ViewPlanner(spec).rows_left({}) or 0
    newest = StateStore.of(Checkpoint.of_view(spec.target).path).newest
    kept = {} if newest is None else newest.arrangements
    shared = [files for name, files in kept.items() if name in compiled(spec).arrangements]
    taken = sum(file.rows for files in shared for file in files)
    return (
        f"replaces the query of the view, which goes on meanwhile: reads about {rows:,} rows, and "
        f"takes {taken:,} of the rows that the view keeps"
    )


def _insert_lines(session: Session, statement: Insert) -> list[str]:
    target = session.table(statement.target)
    planned = plan_insert(session, statement, target)
    if isinstance(planned, KeptResult):
        return view_lines(session, target.name, planned.plan, target)
    lines = _planned_lines(session, planned, target)
    if isinstance(planned, Staged):
        return lines
    options = {**registry.table_options(target), **statement.options}
    delivery = registry.connector(target.connector).delivery(target, options)
    sink = f"sink: {'.'.join(target.name)} (connector '{target.connector}'), {delivery}"
    return [*lines, sink.replace("`", "'")]


def _planned_lines(
    session: Session, planned: Sequence[StreamQuery] | ResultView | Staged, target: TableInfo | None
) -> list[str]:
    if isinstance(planned, Staged):
        return _staged_lines(session, planned)
    if isinstance(planned, ResultView):
        return view_lines(session, planned.create.name, planned.plan)
    return [line for query in planned for line in _query_lines(session, query, target)]


def _staged_lines(session: Session, staged: Staged) -> list[str]:
    """The plan of the joined rows, and that of what reads them."""
    with staged.drafted(session):
        rest = " ".join(staged.rest.query.text.split())
        feed = _insert_lines(session, staged.feed)
        return [*feed, f"read by: {rest}", *_lines(session, staged.rest)]


def view_lines(
    session: Session, name: Name, plan: ViewPlan, target: TableInfo | None = None
) -> list[str]:
    """The lines of EXPLAIN for a view, or for the result that is kept in `target`."""
    reason = whole_reason(plan.tree)
    strategy = f"recompute: the whole tree at each change of an input; {reason}"
    if not reason:
        strategy = (
            "incremental: each operator from the changes of its inputs and what it keeps; "
            "the whole tree again for small tables and large changes"
        )
    written = [f"view: {'.'.join(name)}, exactly-once", f"DuckDB: {plan.query.sql}"]
    if plan.windows is not None:
        which = "closes" if plan.keyless else "finds open, or closed for less than the lateness"
        return [
            *drawn(plan.tree),
            f"windows: each batch computes those that it {which}; the watermark is the least of "
            f"{', '.join('.'.join(query.scans[0].table.name) for query in plan.windows.watermarks)}"
            "; later rows go to a table of late rows",
            *written,
        ]
    return [
        *drawn(plan.tree),
        f"{strategy}{'; at most once a second as time passes' if plan.timed else ''}; "
        f"{'one thread' if plan.ordered else 'several threads'}; "
        f"{'appends the rows that are added' if plan.keyless else 'writes the rows that differ'}",
        *_stage_lines(session, plan, target),
        *([f"no streaming query computes it: {plan.reason}"] if plan.reason else []),
        *written,
    ]


def _stage_lines(session: Session, plan: ViewPlan, target: TableInfo | None) -> list[str]:
    """How several tasks compute a view, if the script says from how many rows on they do."""
    rows = session.settings.value("view.parallel-rows")
    dynamic = target is not None and target.primary_key and "bucket" not in target.options
    if rows is None or dynamic or not is_divisible(plan):
        return []
    sent = "; ".join(each.describe() for each in staged_tree(plan).stages[:-1]) or "no rows"
    tasks = session.settings.value("parallelism.default")
    return [f"recomputed by {tasks} tasks from {rows:,} rows on, which exchange {sent}"]


def _query_lines(session: Session, query: StreamQuery, target: TableInfo | None) -> list[str]:
    lines = [f"source: {'.'.join(query.source.name)} ({', '.join(query.scan.columns)})"]
    strategies = lookup_strategies(session, query, target)
    for lookup, choice in zip(query.lookups, strategies, strict=True):
        refresh = refresh_rule(lookup, choice).describe()
        refresh = f", {refresh}" if refresh else ""
        retry = "" if lookup.retry is None else f", retries every {lookup.retry.delay_ms} ms"
        lines.append(
            f"lookup: {'.'.join(lookup.table.name)} by {', '.join(lookup.keys)}, "
            f"{'LEFT' if lookup.left else 'INNER'}{retry}{refresh}; strategy: {choice}"
        )
    if query.merging.upsert:
        lines.append(query.merging.upsert)
    if query.reorder_key:
        lines.append(
            "order: one task writes the rows that are current at the end of a batch after all "
            f"others, since the target's key does not keep {', '.join(query.reorder_key)}"
        )
    return [*lines, f"DuckDB: {query.rows.sql}"]
