"""Runs a script.

Definitions and bounded statements run in order; the continuous queries run together afterwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext

from streamhouse.connectors import registry
from streamhouse.errors import OptionError, SqlError, StreamhouseError, UnsupportedSqlError
from streamhouse.lookup.strategies.server_lookup import with_secrets
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import run as run_procedure
from streamhouse.runtime.batch import bounded_statements, dml
from streamhouse.runtime.monitoring.reporter import Reporter
from streamhouse.runtime.pipeline import Pipeline
from streamhouse.runtime.procedures import is_sync, options_of_call
from streamhouse.runtime.query_spec import LOOKUP_JOURNAL, QuerySpec
from streamhouse.runtime.replacement.replacement import Replacement
from streamhouse.runtime.reset.continuous_targets import (
    checkpoint_roots,
    continuous_targets,
    target_checkpoint,
)
from streamhouse.runtime.reset.reset import any_left, finish, reset
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.session.ddl import located, mention_renamed, note_outdated_options
from streamhouse.runtime.session.materialized_views import DefinedView
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.shared_target import check_apart, checkpoint_names
from streamhouse.runtime.spark.settings import SparkOptions
from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint
from streamhouse.runtime.state.checkpoint_registry import announce_checkpoints
from streamhouse.runtime.statements.explain import shown
from streamhouse.runtime.statements.insert_plan import is_bounded_query, lookup_strategies
from streamhouse.runtime.statements.result_view import kept_spec
from streamhouse.runtime.statements.resumption import check_appending, check_start
from streamhouse.runtime.statements.steps import Step, steps
from streamhouse.runtime.statements.streaming_select import StreamingSelect, shown_in
from streamhouse.runtime.streaming.continuous_query import ContinuousQuery
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.runtime.sync.run import SyncRun, new_query
from streamhouse.runtime.views.kept_rows import remove_kept_by_dropped
from streamhouse.runtime.views.planned import check_view, view_spec
from streamhouse.runtime.views.query import ViewQuery
from streamhouse.runtime.views.refresh import refresh, refresh_view
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.sql import syntax
from streamhouse.sql.plan import Name, StreamQuery, TableInfo
from streamhouse.sql.syntax import Insert
from streamhouse.sql.views.statement import AlterMaterializedView
from streamhouse.work_folder import work_folder


@dataclass
class ScriptOptions:
    """How a script runs.

    `checkpoints` is the folder of the checkpoints; None: in the warehouse, next to its databases.
    `reporter` writes the pipeline's status into the warehouse; None: no status. With
    `from_scratch` all continuous queries restart, with emptied targets unless `keep_targets`;
    see `reset`. Raises `OptionError` for `keep_targets` without `from_scratch`.
    """

    name: str
    warehouse: Mapping[str, str] | None = None
    checkpoints: Path | None = None
    until_caught_up: bool = False
    spark: SparkOptions = SparkOptions()
    stopped: Callable[[], bool] = field(default=lambda: False)
    reporter: Reporter | None = None
    from_scratch: bool = False
    keep_targets: bool = False

    def __post_init__(self) -> None:
        if self.keep_targets and not self.from_scratch:
            raise OptionError(
                "--keep-targets needs --from-scratch: without it no target is emptied"
            )


class ScriptRunner:
    """Runs the statements of one script."""

    def __init__(self, options: ScriptOptions, output: RunOutput) -> None:
        self._options = options
        self._output = output
        self._pipeline = Pipeline(
            options.spark,
            options.stopped,
            options.reporter,
            output.notice,
            output,
        )
        self._selects: list[StreamQuery] = []
        self._done: list[str] = []
        """What statements have created, dropped or written, for a script that then fails."""
        self.has_reset = False
        """Whether the reset of `from_scratch` is done, or recorded for a later run to finish."""
        self._exit_stack = ExitStack()
        self._contexts: dict[str, Context] = {}
        """What the procedures of each catalog share, such as a Java core."""

    def run(self, statements: Sequence[syntax.Statement], files: Sequence[str] = ()) -> None:
        """Run all statements, then the continuous queries; returns when they have ended.

        `files` names the file of each statement, for error messages, if the script has several.

        A script with continuous queries runs until it is stopped or, with `until_caught_up`,
        until all queries have caught up with their sources. The queries start after the last
        statement, so an error at the end of a script starts none of them.
        """
        try:
            self._plan(statements, files)
            for number, statement in enumerate(statements):
                if self._is_bounded(statement):
                    self._catch_up()
                try:
                    self._statement(statement)
                except StreamhouseError as error:
                    if self._done:
                        what = "; ".join(self._done)
                        self._output.notice(f"the statements before the error stay done: {what}")
                    if files:
                        error.within(files[number])
                    raise
            self._run_continuous()
        finally:
            with self._exit_stack:
                self._pipeline.close()
        self._pipeline.report_end("stopped" if self._options.stopped() else "caught up")

    def _plan(self, statements: Sequence[syntax.Statement], files: Sequence[str]) -> None:
        """Plan all statements, so that an error in one is raised before any of them runs.

        Then run the reset of `from_scratch`, or finish a reset that an earlier run had begun.
        """
        options, notice = self._options, self._output.notice
        roots = checkpoint_roots(statements, options.warehouse, options.checkpoints)
        resets = options.from_scratch or any_left(roots)
        if not resets:
            # What a procedure creates or changes is known only when it has run.
            calls = (n for n, one in enumerate(statements) if isinstance(one, syntax.Call))
            statements = statements[: next(calls, len(statements))]
            if len(statements) < 2 and not any(map(_has_lookups, statements)):
                return
        script = continuous_targets(
            statements, files, options.warehouse, options.name, options.checkpoints, notice
        )
        if not resets:
            return
        if not options.from_scratch:
            finish(script, notice)
        elif script.targets:
            reset(script, options.keep_targets, notice, self._note_reset)
        else:
            notice("--from-scratch has no effect: the script has no INSERT over a stream")

    @cached_property
    def _session(self) -> Session:
        """The script's session, which creates the default database; made after planning."""
        session = Session(self._options.warehouse)
        session.notice, session.pipeline = self._output.notice, self._options.name
        session.catalogs.temporary_folder = lambda: self._exit_stack.enter_context(
            work_folder("streamhouse-results-")
        )
        return session

    def _note_reset(self) -> None:
        self.has_reset = True

    def _run_continuous(self) -> None:
        selects = [StreamingSelect(self._session, query, self._output) for query in self._selects]
        if selects or self._pipeline.queries:
            self._pipeline.run(self._options.until_caught_up, selects)

    def _statement(self, statement: syntax.Statement) -> None:
        with located(statement):
            note_outdated_options(self._session, statement)
            try:
                for step in steps(self._session, statement, self._output.notice):
                    self._step(step)
            except SqlError as error:
                mention_renamed(self._session, error)
                raise

    def _step(self, step: Step) -> None:
        statement, target = step.statement, step.target
        if step.defined is not None:
            self._done += [step.defined.text] if step.defined.stored else []
        elif step.kept is not None and target is not None and isinstance(statement, Insert):
            spec = kept_spec(self._session, statement, target, step.kept)
            if spec.plan.keyless:
                self._pipeline.add(self._appending(spec))
                return
            view = self._view_query(spec, statement.position)
            view.check_first_start()
            self._pipeline.add(view)
        elif step.view is not None and target is not None:
            self._view(statement, target, step.view)
        elif target is None:
            self._selects.extend(step.queries)
            if not step.queries:
                self._execute(statement)
        elif isinstance(statement, Insert):
            address = self._session.target(target)
            own, others = self._checkpoint(address), self._pipeline.queries
            names = checkpoint_names(statement, step.queries, own, others)
            for query, name in zip(step.queries, names, strict=True):
                self._pipeline.add(self._continuous(statement, target, query, name))

    def _execute(self, statement: syntax.Statement) -> None:
        session = self._session
        match statement:
            case syntax.SetOption():
                settings = session.settings
                table = pa.table({"key": list(settings), "value": list(settings.values())})
                self._output.rows(table.to_reader())
            case syntax.Insert():
                self._notice(statement.target, bounded_statements.insert(session, statement))
            case syntax.DmlStatement():
                self._notice(statement.target, dml.execute(session, statement))
            case syntax.Truncate():
                dml.truncate(session, statement)
                self._notice(statement.target, "all rows removed")
            case syntax.Select():
                with bounded_statements.select(session, statement.query) as reader:
                    self._output.rows(shown_in(session.zone, reader))
            case AlterMaterializedView():
                changes = refresh_view(self._session, statement)
                self._notice(statement.name, f"refreshed, {changes:,} changes")
            case syntax.Call() if is_sync(statement.procedure):
                self._sync(statement)
            case syntax.Call():
                self._output.rows(self._call(statement).to_reader())
            case syntax.Show() | syntax.Describe() | syntax.Explain():
                self._output.rows(shown(self._session, statement).to_reader())
            case _:
                raise UnsupportedSqlError("this statement is not supported")

    def _notice(self, table: Name, text: object) -> None:
        self._done.append(f"{'.'.join(table)}: {text}")
        self._output.notice(self._done[-1])

    def _view(self, statement: syntax.Statement, target: TableInfo, plan: ViewPlan) -> None:
        """Add the query of a view, or refresh it once if it is not refreshed continuously."""
        stored, name = self._session.materialized.existing(target.name), target.name[1:]
        if stored.suspended:
            self._output.notice(
                f"{'.'.join(name)}: the view is suspended; ALTER MATERIALIZED VIEW … RESUME lets "
                "the next run go on with it"
            )
        elif stored.full:
            self._catch_up()
            spec = view_spec(self._session, target, plan)
            self._notice(name, f"refreshed, {refresh(spec).total():,} changes")
        else:
            self._followed_view(target.name, statement.position)

    def _followed_view(self, view: Name, position: syntax.TextPosition) -> None:
        """Add the query of a view, and what replaces it by the next one."""
        session = self._session

        def made(defined: DefinedView) -> ViewQuery:
            freshness_s = 0.0 if self._options.until_caught_up else defined.stored.freshness_s
            check_view(defined.plan, session.table(view), position)
            spec = view_spec(session, session.table(defined.name), defined.plan, freshness_s)
            return self._view_query(spec, position)

        pipeline, notice, once = self._pipeline, self._output.notice, self._options.until_caught_up
        pipeline.replace_by(Replacement(session, view, made, pipeline, notice, once))

    def _view_query(self, spec: ViewSpec, position: syntax.TextPosition) -> ViewQuery:
        own = self._checkpoint(spec.target)
        for other in self._pipeline.queries:
            if spec.target.identifier in other.tables:
                raise UnsupportedSqlError.at(
                    position,
                    f"another query of the script writes {spec.target.identifier}, and this one "
                    "would remove its rows; give each a table of its own",
                )
        # A result has one checkpoint, so that two pipelines cannot keep it at once.
        checkpoint = Checkpoint(own.root, VIEWS, spec.target.identifier)
        if not any(isinstance(each, ViewQuery) for each in self._pipeline.queries):
            remove_kept_by_dropped(spec.target.warehouse, checkpoint)
        return ViewQuery(spec, checkpoint, own.pipeline)

    def _appending(self, spec: ViewSpec) -> ViewQuery:
        """The query of an INSERT that appends its result; several may write one table."""
        own, name = self._checkpoint(spec.target), spec.target.identifier
        taken = {each.description.checkpoint_path for each in self._pipeline.queries}
        found = (
            Checkpoint(own.root, own.pipeline, f"{name}+{number}" if number else name)
            for number in count()
        )
        checkpoint = next(each for each in found if each.path not in taken)
        query = ViewQuery(spec, checkpoint, own.pipeline)
        with _stopped_by_errors(query):
            check_appending(query.spec, checkpoint, self._output.notice)
        return query

    def _checkpoint(self, target: TableAddress) -> Checkpoint:
        """The checkpoint with the name of a target."""
        root, is_temporary = self._options.checkpoints, self._session.catalogs.is_temporary
        if is_temporary(target.warehouse) or (root is None and not target.warehouse):
            root = self._temporary_checkpoints
        elif root is None:
            announce_checkpoints(target.warehouse["warehouse"], self._output.notice)
        return target_checkpoint(self._session, root, target)

    @cached_property
    def _temporary_checkpoints(self) -> Path:
        """Temporary checkpoint folder for queries without a warehouse; removed after the script."""
        return Path(self._exit_stack.enter_context(work_folder("streamhouse-checkpoints-")))

    def _is_bounded(self, statement: syntax.Statement) -> bool:
        """Whether a statement reads or writes tables at once, rather than continuously."""
        match statement:
            case syntax.DmlStatement() | syntax.Truncate():
                return True
            case syntax.StatementSet():
                return any(
                    is_bounded_query(self._session, insert.query) for insert in statement.inserts
                )
            case syntax.Insert() | syntax.Select():
                return is_bounded_query(self._session, statement.query)
            case syntax.Call():
                return not is_sync(statement.procedure)
            case AlterMaterializedView():
                return statement.refresh
        return False

    def _sync(self, statement: syntax.Call) -> None:
        """Create the tables of a sync, and add its query."""
        session = self._session
        catalog, database, _ = session.full(("t",))
        warehouse = session.catalogs.options(statement.catalog or catalog)
        options = options_of_call(statement.procedure, statement.arguments, warehouse, database)
        own = self._checkpoint(TableAddress(warehouse, options.name))
        run = SyncRun(options, own.pipeline, own.root, notice=self._output.notice)
        query = new_query(run, session.settings.value("parallelism.default"))
        self._pipeline.add(query)
        query.create_tables()

    def _call(self, statement: syntax.Call) -> pa.Table:
        """Run a procedure; an unqualified table is in the current database."""
        session = self._session
        catalog = statement.catalog or session.catalogs.current[0]
        if catalog not in self._contexts:
            context = Context(session.catalogs.options(catalog), self._spark)
            self._contexts[catalog] = self._exit_stack.enter_context(context)
        return run_procedure(
            self._contexts[catalog],
            statement.procedure,
            statement.arguments,
            lambda table: ".".join(session.full(tuple(table.split(".")))[-2:]),
        )

    def _spark(self) -> SparkContext:
        """Spark for a procedure that needs it, which is the script's own."""
        from streamhouse.runtime.spark.session import check_cluster, start_session

        spark = start_session("streamhouse", self._options.spark)
        warehouses = [context.warehouse.options for context in self._contexts.values()]
        check_cluster(spark, self._options.spark, warehouses, self._output.notice)
        return spark

    def _catch_up(self) -> None:
        """With `until_caught_up`, let the queries above a bounded statement catch up first."""
        if self._options.until_caught_up and self._pipeline.queries:
            self._pipeline.run(True, [])

    def _continuous(
        self, statement: Insert, target: TableInfo, query: StreamQuery, name: str
    ) -> ContinuousQuery:
        session = self._session
        address = session.target(target)
        own = self._checkpoint(address)
        lookups = [with_secrets(lookup) if lookup.on_server else lookup for lookup in query.lookups]
        spec = QuerySpec(
            query=replace(query, lookups=tuple(lookups)),
            source=session.source(query),
            lookups=tuple(
                address.auxiliary_table(LOOKUP_JOURNAL)
                if lookup.on_server
                else session.address(lookup.table)
                for lookup in query.lookups
            ),
            target=address,
            query_id="",
            parallelism=session.settings.value("parallelism.default"),
            choices=lookup_strategies(self._session, query, target),
            sink=session.sink(target, statement.options),
            dead_letters=session.dead_letters(query),
            max_rows=registry.connector(target.connector).batch_rows,
        )
        if spec.auxiliary_tables and not address.warehouse:
            raise OptionError(
                f"INSERT INTO {'.'.join(statement.target)}: the query keeps state in auxiliary "
                "tables (rows that wait for a lookup, or lookup results of a server), which need a "
                "warehouse; write CREATE CATALOG and USE CATALOG, or give --warehouse DIR"
            )
        checkpoint = Checkpoint(own.root, own.pipeline, name)
        check_apart(statement, spec, checkpoint, self._pipeline.queries)
        continuous = ContinuousQuery(spec, checkpoint)
        with _stopped_by_errors(continuous):
            check_start(continuous.spec, checkpoint, self._output.notice)
        return continuous


@contextmanager
def _stopped_by_errors(query: JobQuery) -> Iterator[None]:
    try:
        yield
    except BaseException:
        query.stop()
        raise


def script_name(path: Path) -> str:
    """The default name of a script's pipeline."""
    return path.name if str(path) != "-" else "stdin"


def _has_lookups(statement: syntax.Statement) -> bool:
    """Whether a statement may stand for several; see `staged_join`."""
    query = getattr(statement, "query", None)
    return isinstance(query, syntax.Query) and "SYSTEM_TIME" in query.text.upper()
