"""Runs a script on given rows, in rounds, without Spark and servers, and compares its tables."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import OptionError, StreamhouseError, UnsupportedSqlError
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.view_audit import Comparison
from streamhouse.runtime.batch import bounded_statements
from streamhouse.runtime.procedures import is_sync
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.runtime.state.batch_logs import FIXED_MS
from streamhouse.runtime.streaming.continuous_query import ContinuousQuery
from streamhouse.runtime.views.planned import view_spec
from streamhouse.source import ROW_KIND, Offset
from streamhouse.sql import syntax
from streamhouse.sql.options.merge_functions import MERGING_ENGINES
from streamhouse.sql.plan import StreamQuery, TableInfo
from streamhouse.sql.text import ticked
from streamhouse.sql.views.stored_view import HIDDEN_KEY
from streamhouse.testing.cases import KINDS, Case, Round, Row, Rows, operation_key, typed
from streamhouse.testing.local_pipeline import LocalPipeline
from streamhouse.testing.row_diff import changes, drawn, unequal
from streamhouse.testing.stand_ins import TestedSession, without_compaction

_STEP = timedelta(seconds=10)
_START = syntax.TextPosition(1, 1)
_RECOMPUTED = "rows computed from changes, compared with the recomputed ones,"


class TestedScript(ScriptRunner):
    """Runs the statements of a script, and then the rounds of a case.

    Statements that change tables at once run once; those that read tables run after the queries
    above them have read the first round, as in `streamhouse run --until-caught-up`. After each
    round all views are compared with their SELECTs, computed from all rows.
    """

    __test__ = False
    _pipeline: LocalPipeline

    def __init__(self, case: Case, folder: str) -> None:
        """`folder`: an empty one, for the warehouse."""
        super().__init__(ScriptOptions("test", {"warehouse": folder}), RunOutput())
        self._pipeline = LocalPipeline()
        self._rounds = case.rounds or [case]
        self._now = self._rounds[0].now or case.now or datetime.now(UTC)
        self._round = 1
        """The number of the round whose rows arrive, or have arrived last."""
        self._left = dict(self._rounds[0].given)
        """The rows of the first round for tables that are not created yet."""
        self._before: dict[str, pa.Table] = {}
        """The rows before the round of the tables whose changes it expects."""
        self._compared: dict[str, Offset] = {}
        """The offset at which each view was last compared with its SELECT."""
        self.problems: list[str] = []
        """Lines that say which rows differ from the expected ones."""

    @cached_property
    def _session(self) -> TestedSession:
        session = TestedSession(self._options.warehouse)
        session.notice, session.pipeline = self._output.notice, self._options.name
        return session

    def _plan(self, statements: Sequence[syntax.Statement], files: Sequence[str]) -> None:
        """Nothing: an error in a statement leaves nothing behind."""

    def _statement(self, statement: syntax.Statement) -> None:
        match statement:
            case syntax.Select() | syntax.Show() | syntax.Describe() | syntax.Explain():
                return
            case syntax.Call() if is_sync(statement.procedure):
                return  # The test gives the rows of its tables.
            case syntax.Call():
                raise UnsupportedSqlError.at(
                    statement.position,
                    "a test runs no procedures; put the CALL into a script of its own",
                )
        text = statement.query.text if isinstance(statement, syntax.Insert) else ""
        if self._is_bounded(statement) and not text.upper().startswith("VALUES"):
            self._begin()
        super()._statement(without_compaction(statement))

    def _view(self, statement: syntax.Statement, target: TableInfo, plan: ViewPlan) -> None:
        """Add the query of a view, also of one that a run refreshes only once."""
        spec = view_spec(self._session, target, plan)
        self._pipeline.add(self._view_query(spec, statement.position))

    def _continuous(
        self, statement: syntax.Insert, target: TableInfo, query: StreamQuery, name: str
    ) -> ContinuousQuery:
        lookups = tuple(
            replace(each, table=self._session.stand_in(each.table)) if each.on_server else each
            for each in query.lookups
        )
        return super()._continuous(statement, target, replace(query, lookups=lookups), name)

    def _run_continuous(self) -> None:
        self._begin(last=True)
        self._check(self._rounds[0])
        for each in self._rounds[1:]:
            self._now = each.now or self._now + _STEP
            self._round += 1
            for name in each.expect_changes:
                self._note_rows(name)
            for name, rows in each.given.items():
                self._give(name, rows)
            self._settle()
            self._check(each)

    def _begin(self, last: bool = False) -> None:
        """Let the queries read the first round, once all have begun without any rows.

        Unless this is the `last` call, tables that are not created yet get theirs at the next one.
        """
        self._settle()
        expected = self._rounds[0].expect_changes
        for name in {**self._left, **expected}:
            if not last and not self._is_known(name):
                continue
            if name in expected and name not in self._before:
                self._note_rows(name)
            if name in self._left:
                self._give(name, self._left.pop(name))
        self._settle()

    def _settle(self) -> None:
        """Let the queries read what has arrived, at the time of the round."""
        now = self._now if self._now.tzinfo else self._now.replace(tzinfo=UTC)
        FIXED_MS.set(int(now.timestamp() * 1000))
        self._pipeline.settle()

    def _is_known(self, name: str) -> bool:
        try:
            self._rows(name)
        except StreamhouseError:
            return False
        return True

    def _rows(self, name: str) -> tuple[pa.Table, Sequence[str]]:
        """The present rows of a table, view or sink, and its key, which may be hidden or empty."""
        session, parts = self._session, tuple(name.split("."))
        sink = session.sinks.get(session.full(parts))
        if sink is not None:
            return pa.Table.from_pylist(sink.kept, sink.arrow_schema), sink.primary_key
        table = None if session.view(parts) is not None else session.table(parts)
        if table is None or table.computed or table.connector != "paimon":
            text = f"SELECT * FROM {'.'.join(map(ticked, parts))}"
            with bounded_statements.select(session, syntax.Query(text, _START)) as reader:
                return reader.read_all(), () if table is None else table.primary_key
        stored = session.address(table).open()
        return stored.rows(), stored.primary_key

    @contextmanager
    def _errors_of(self, key: str, name: str) -> Iterator[None]:
        """Prefix errors with the round, and the table under one of its keys."""
        try:
            yield
        except StreamhouseError as error:
            raise error.within(f"round {self._round}, {key} {name}") from None

    def _note_rows(self, name: str) -> None:
        with self._errors_of("expect_changes", name):
            self._before[name] = self._rows(name)[0]

    def _give(self, name: str, rows: Rows) -> None:
        """Commit the changes that given rows make to a table, or to its stand-in."""
        with self._errors_of("given", name):
            declared = self._session.table(tuple(name.split(".")))
            table = self._session.stand_in(declared)
            address, user = self._session.address(table), uuid.uuid4().hex
            computed = any(view.spec.target.same(address) for view in self._pipeline.views)
            if computed or declared.name in self._session.sinks:
                raise OptionError("the script computes its rows; `expect` them instead")
            stored = address.open()
            changed = _changes(table, typed(rows, stored.arrow_schema), stored.rows().to_pylist())
            schema = stored.read_schema(row_kind=bool(table.primary_key))
            values = pa.Table.from_pylist(
                [{**row, ROW_KIND: kind} for kind, row in changed], schema
            )
        writer = TableWriter(address.warehouse, address.identifier, user)
        messages = writer.write_all(values.to_batches(), 0)
        TableCommitter(address.warehouse, address.identifier, user).commit(0, messages)

    def _check(self, round: Round) -> None:
        """Compare what a round expects with the rows, and views with their SELECTs."""
        for name, rows in round.expect.items():
            with self._errors_of("expect", name):
                actual, key = self._rows(name)
                expected = typed(rows, actual.schema, operations=False)
            self._compare(name, "rows", [row for _, row in expected], actual, key)
        for name, rows in round.expect_changes.items():
            with self._errors_of("expect_changes", name):
                after, key = self._rows(name)
                expected = typed(rows, after.schema)
            kind = operation_key(after.schema.names)
            made = changes(self._before[name], after, key)
            made = made.rename_columns([kind, *after.schema.names])
            if all(KINDS[operation] != "-U" for operation, _ in expected):
                made = made.filter(pc.not_equal(made.column(0), "-U"))
            named = [{kind: KINDS[operation], **row} for operation, row in expected]
            self._compare(name, "changes", named, made, (kind, *key))
        for view in self._pipeline.views:
            spec, offset = view.spec, view.progress.last_offset
            if self._compared.get(spec.query_id) == offset:
                continue
            self._compared[spec.query_id] = offset
            found = Comparison(None, spec, "", offset, spec.query_id).audit().differences
            own = [each.actual for each in found if each.actual]
            recomputed = [each.expected for each in found if each.expected]
            actual = pa.Table.from_pylist(own, spec.target.open().arrow_schema)
            self._compare(spec.target.identifier, _RECOMPUTED, recomputed, actual, spec.plan.key)

    def _compare(
        self, name: str, what: str, rows: Sequence[Row], actual: pa.Table, key: Sequence[str]
    ) -> None:
        named = set(chain.from_iterable(rows)) or {*actual.column_names} - {HIDDEN_KEY}
        schema = pa.schema(field for field in actual.schema if field.name in named)
        pairs = unequal(rows, actual.select(schema.names).to_pylist(), key)
        if pairs:
            head = f"{name}: {what} after round {self._round} (- expected, + actual)"
            self.problems += [head, *(f"  {line}" for line in drawn(pairs, schema))]


def _changes(
    table: TableInfo, given: Sequence[tuple[str, Row]], present: Sequence[Row]
) -> Iterator[tuple[str, Row]]:
    """The changes that given rows make to the present ones, as row kinds and rows.

    A row replaces the one with its key; `update` only in the columns that it has, and `delete`
    needs only the key. Other columns that it does not have are NULL.
    """
    key, merges = table.primary_key, table.options.get("merge-engine") in MERGING_ENGINES
    rows = {tuple(row[name] for name in key): row for row in present if key and not merges}
    for number, (operation, values) in enumerate(given, 1):
        row = {column.name: values.get(column.name) for column in table.columns}
        kind, at = KINDS[operation], tuple(row[name] for name in key)
        old = rows.pop(at, None)
        if kind != "+I" and not key:
            raise OptionError(f"row {number}: without a PRIMARY KEY, a table gets inserts only")
        if operation in ("update", "delete", "-D") and old is None and not merges:
            named = ", ".join(f"{n} = {'NULL' if row[n] is None else row[n]}" for n in key)
            raise OptionError(f"row {number}: there is no row with this key, {named}")
        if operation == "update" and old is not None:
            row = {**old, **values}
        if kind in ("-D", "-U"):
            yield kind, old or row
            continue
        if old is not None:
            yield "-U", old
        for column in table.columns:
            if not column.nullable and row[column.name] is None:
                what = f"column '{column.name}' is {column.type} NOT NULL, but null or missing"
                raise OptionError(f"row {number}: {what}")
        yield kind if merges else "+I" if old is None else "+U", row
        if key and not merges:
            rows[at] = row
