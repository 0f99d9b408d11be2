"""Runs a script on given rows, in rounds, without Spark and servers, and compares its tables."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.view_audit import Comparison
from streamhouse.runtime.batch import bounded_statements
from streamhouse.runtime.procedures import is_sync
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.runtime.state.batch_logs import FIXED_MS
from streamhouse.runtime.streaming.continuous_query import ContinuousQuery
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.runtime.streaming.tasks.worker_resources import close_resources
from streamhouse.runtime.views.build import build
from streamhouse.runtime.views.planned import view_spec
from streamhouse.runtime.views.query import ViewQuery
from streamhouse.source import ROW_KIND
from streamhouse.sql import syntax
from streamhouse.sql.options.merge_functions import MERGING_ENGINES
from streamhouse.sql.plan import StreamQuery, TableInfo
from streamhouse.sql.text import ticked
from streamhouse.sql.views.stored_view import HIDDEN_KEY
from streamhouse.testing.cases import Case, Round, Row, Rows, operation_key, typed
from streamhouse.testing.local_batches import begin, in_order, run_batches
from streamhouse.testing.row_diff import differences
from streamhouse.testing.stand_ins import TestedSession, without_compaction

_STEP = timedelta(seconds=10)
_START = syntax.TextPosition(1, 1)


class TestedScript(ScriptRunner):
    """Runs the statements of a script, and then the rounds of a case.

    Statements that change tables at once run once; those that read tables run after the queries
    above them have read the first round, as in `streamhouse run --until-caught-up`. After each
    round all views are compared with their SELECTs, computed from all rows.
    """

    __test__ = False

    def __init__(self, case: Case, folder: str) -> None:
        """`folder`: an empty one, for the warehouse."""
        super().__init__(ScriptOptions("test", {"warehouse": folder}), RunOutput())
        self._rounds = case.rounds or [case]
        self._left = dict(self._rounds[0].given)
        """The rows of the first round that have not arrived yet."""
        self._time = self._rounds[0].now or datetime.now(UTC)
        self._round = 0
        self._begun: list[JobQuery] = []
        self.problems: list[str] = []
        """Lines that say which rows differ from the expected ones."""

    @cached_property
    def _session(self) -> TestedSession:
        session = TestedSession(self._options.warehouse)
        session.notice, session.pipeline = self._output.notice, self._options.name
        session.settings.set("view.refresh-strategy", "incremental")
        return session

    def _plan(self, statements: Sequence[syntax.Statement], files: Sequence[str]) -> None:
        """Nothing: an error in a statement leaves nothing behind."""

    def _is_bounded(self, statement: syntax.Statement) -> bool:
        # VALUES are there before the first round.
        text = statement.query.text if isinstance(statement, syntax.Insert) else ""
        return not text.upper().startswith("VALUES") and super()._is_bounded(statement)

    def _catch_up(self) -> None:
        """Let the queries read the first round, as far as its tables are created."""
        self._settle()
        for name in list(self._left):
            try:
                self._rows(name)
            except StreamhouseError:
                continue
            self._give(name, self._left.pop(name))
        self._settle()

    def _statement(self, statement: syntax.Statement) -> None:
        if isinstance(statement, syntax.Call) and is_sync(statement.procedure):
            return  # The test gives the rows of its tables.
        super()._statement(without_compaction(statement))

    def _view(self, statement: syntax.Statement, target: TableInfo, plan: ViewPlan) -> None:
        """Add the query of a view, also of one that a run refreshes only once."""
        spec = view_spec(self._session, target, plan)
        self._pipeline.add(self._view_query(spec, statement.position))

    def _continuous(
        self, statement: syntax.Insert, target: TableInfo, query: StreamQuery, name: str
    ) -> ContinuousQuery:
        query = self._session.over_given(query)
        continuous = super()._continuous(statement, target, query, name)
        continuous.spec = replace(continuous.spec, parallelism=1, choices=())
        return continuous

    def _run_continuous(self) -> None:
        self._settle()
        for each in self._rounds:
            self._round += 1
            try:
                self._run_round(each)
            except StreamhouseError as error:
                raise error.within(f"round {self._round}") from None

    def _run_round(self, each: Round) -> None:
        given, before = self._left, dict[str, pa.Table]()
        if self._round > 1:
            self._time = each.now or self._time + _STEP
            given = each.given
            before = {name: self._rows(name)[0] for name in each.expect_changes}
        for name, rows in given.items():
            self._give(name, rows)
        self._settle()
        for name, rows in each.expect.items():
            self._compare(f"expect {name}", rows, self._rows(name)[0])
        for name, rows in each.expect_changes.items():
            after, key = self._rows(name)
            with closing(Differ()) as differ:
                states = before.get(name, after.slice(0, 0)), after
                made = differ.by_key(*states, key) if key else differ.by_row(*states)
            operation = operation_key(after.schema)
            if all(row.get(operation) != "-U" for row in rows):
                made = made.filter(pc.not_equal(made.column(ROW_KIND), "-U"))
            made = made.rename_columns([operation, *after.schema.names])
            self._compare(f"expect_changes {name}", rows, made, operation)
        for view in self._views:
            spec, offset = view.spec, view.progress.last_offset
            found = Comparison(spec, offset, spec.query_id).audit().differences
            self._note(f"{spec.target.identifier} differs from its SELECT", map(str, found))

    def _settle(self) -> None:
        """Let the queries read what has arrived, at the time of the round, until nothing is left.

        Then compute what views keep, so that their next refresh is one from changes.
        """
        at = self._time if self._time.tzinfo else self._time.replace(tzinfo=UTC)
        FIXED_MS.set(int(at.timestamp() * 1000))
        queries = self._pipeline.queries
        for query in queries[len(self._begun) :]:
            begin(query)
            self._exit_stack.callback(close_resources, query.checkpoint.query_id())
            self._begun.append(query)
        for query in in_order(queries):
            run_batches(query)
        for view in self._views:
            build(view.spec, view.progress.last_offset)

    @property
    def _views(self) -> list[ViewQuery]:
        """The queries that refresh views."""
        return [query for query in self._begun if isinstance(query, ViewQuery)]

    def _rows(self, name: str) -> tuple[pa.Table, Sequence[str]]:
        """The present rows of a table, view or sink, and its key, which may be hidden or empty."""
        session, parts = self._session, tuple(name.split("."))
        sink = session.sinks.get(session.full(parts))
        if sink is not None:
            return pa.Table.from_pylist(sink.kept, sink.arrow_schema), sink.primary_key
        table = None if session.view(parts) is not None else session.table(parts)
        if table is not None and table.connector == "paimon" and not table.computed:
            stored = session.address(table).open()
            return stored.rows(), stored.primary_key
        query = syntax.Query(f"SELECT * FROM {'.'.join(map(ticked, parts))}", _START)
        with bounded_statements.select(session, query) as reader:
            return reader.read_all(), () if table is None else table.primary_key

    def _give(self, name: str, rows: Rows) -> None:
        """Commit the changes that given rows make to a table, or to its stand-in."""
        session, where = self._session, f"given {name}"
        declared = session.table(tuple(name.split(".")))
        address = session.address(session.stand_in(declared))
        computed = any(view.spec.target.same(address) for view in self._views)
        if computed or declared.name in session.sinks:
            raise OptionError(f"{where}: the script computes its rows; `expect` them instead")
        table = address.open()
        schema = table.read_schema(row_kind=bool(table.primary_key))
        changes = pa.Table.from_pylist(list(_given(table, rows, where)), schema)
        user = uuid.uuid4().hex
        writer = TableWriter(address.warehouse, address.identifier, user)
        messages = writer.write_all(changes.to_batches(), 0)
        TableCommitter(address.warehouse, address.identifier, user).commit(0, messages)

    def _compare(self, where: str, rows: Rows, actual: pa.Table, operation: str = "") -> None:
        """Compare rows in the columns that expected ones have; all columns if there are none."""
        shown = actual.select([name for name in actual.column_names if name != HIDDEN_KEY])
        expected = typed(rows, shown.schema, where, operation)
        named = set(chain.from_iterable(expected)) or {*shown.column_names}
        columns = [name for name in shown.column_names if name in named]
        lines = differences(expected, shown.select(columns))
        self._note(f"{where} (- expected, + actual)", lines)

    def _note(self, what: str, lines: Iterable[str]) -> None:
        """Add a problem of the round, unless there are no lines."""
        if indented := [f"  {line}" for line in lines]:
            self.problems += [f"round {self._round}: {what}", *indented]


def _given(table: Table, rows: Rows, where: str) -> Iterator[Row]:
    """The rows that change a table as given rows say, with their row kinds.

    A row replaces the one with its key; `update` only in the columns that it has, and `delete`
    needs only the key. Other columns that it does not have are NULL.
    """
    schema, key = table.arrow_schema, table.primary_key
    operation, merges = operation_key(schema), table.options.get("merge-engine") in MERGING_ENGINES
    with_kind = schema.append(pa.field(operation, pa.string()))
    present = [] if merges else table.rows().to_pylist()
    found = {tuple(row[name] for name in key): row for row in present}
    for number, values in enumerate(typed(rows, with_kind, where, operation), 1):
        kind, at = values.pop(operation), tuple(values.get(name) for name in key)
        old = found.pop(at, None)
        if kind != "+I" and old is None and not (key and merges):
            which = ", ".join(f"{name} = {values.get(name)}" for name in key)
            problem = (
                f"there is no row with {which}" if key else "without a key, it gets inserts only"
            )
            raise OptionError(f"{where}: row {number}: {problem}")
        row = dict.fromkeys(schema.names) | (old if old and kind != "+I" else {}) | values
        if kind in ("+I", "+U") and not merges:
            found[at] = row
        yield {**row, ROW_KIND: kind}
