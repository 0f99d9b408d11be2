"""The rows that would change if the next query of a view took over now; for `streamhouse diff`."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamhouse.connectors.specs import arrow_schema
from streamhouse.errors import TableError
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.operators.trees.recompute import Recompute
from streamhouse.paimon.schema.evolution import converted
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.runtime.batch.progress_line import progress
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.statements.script_plan import plan_script
from streamhouse.runtime.views.inputs import ViewInputs
from streamhouse.runtime.views.planned import view_spec
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.source import Offset
from streamhouse.sql import syntax
from streamhouse.sql.views.stored_view import HIDDEN_KEY


@dataclass(frozen=True)
class ViewDifference:
    """What a next query would change in a view, computed at `inputs`: snapshots, by table.

    `changes` counts the changes by row kind, of which `first` are the first ones: kinds, and rows.
    `new_columns` and `dropped_columns` are those of the table.
    """

    view: str
    inputs: Mapping[str, int]
    changes: Counter[str] = field(default_factory=Counter)
    first: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    new_columns: tuple[str, ...] = ()
    dropped_columns: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the table would have the same columns and rows."""
        return not (self.changes or self.new_columns or self.dropped_columns)


def view_difference(
    warehouse: Mapping[str, str],
    view: str,
    statements: Sequence[syntax.Statement] | None,
    most: int,
) -> ViewDifference:
    """Compare a view with its next query, or with that of a script, and change nothing.

    The query is computed from the snapshots that the view's last refresh has read, as far as its
    checkpoint on this machine has them, else from the newest ones. `most`: how many rows `first`
    has. Raises `TableError` without a next query, and if the table cannot have its columns.
    """
    session = Session(warehouse)
    if statements is not None:
        session = draft = DraftSession(warehouse)
        draft.notice = lambda text: None
        for _ in plan_script(draft, statements):
            pass
    full = session.full(split_identifier(view))
    next_view = session.materialized.next(full)
    if next_view is None and statements is None:
        raise TableError(
            f"view {view} has no next query; give the changed script with --script, or run "
            f"ALTER MATERIALIZED VIEW {view} AS SELECT …"
        )
    plan = (next_view or session.materialized.defined(full)).plan
    spec = view_spec(session, replace(session.table(full), name=full), plan)
    end = _offset(spec)
    inputs = {
        address.identifier: int(end["vector"][key]["snapshot"])
        for key, address in spec.tables.items()
    }
    before, after = (
        [name for name in names if name != HIDDEN_KEY]
        for names in (spec.target.open().arrow_schema.names, [c.name for c in plan.columns])
    )
    found = ViewDifference(
        view,
        inputs,
        new_columns=tuple(name for name in after if name not in before),
        dropped_columns=tuple(name for name in before if name not in after),
    )
    former = session.materialized.defined(full).plan.tree
    alike = replace(former, input=plan.tree.input) == plan.tree
    for kind, batch in _changes(spec if alike else replace(spec, plan=_shown(plan)), end):
        found.changes[kind] += batch.num_rows
        shown = batch.drop_columns([name for name in batch.schema.names if name == HIDDEN_KEY])
        rows = shown.slice(0, max(0, most - len(found.first))).to_pylist()
        found.first.extend((kind, row) for row in rows)
    return found


def _offset(spec: ViewSpec) -> Offset:
    last = Checkpoint.of_view(spec.target).logs.last_offset()
    newest = ViewPlanner(spec).newest({})
    read = last.get("vector", {})
    vector = {key: read.get(key, position) for key, position in newest["vector"].items()}
    return {"now": last.get("now", time.time_ns() // 1_000_000), **newest, "vector": vector}


def _changes(spec: ViewSpec, end: Offset) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The changes, first those of rows that leave."""
    plan, table = spec.plan, spec.target.open()
    # The rows have no values of new columns.
    schema = arrow_schema([replace(column, nullable=True) for column in plan.columns])
    own = {name: name for name in schema.names if name in table.arrow_schema.names}

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in table.read():
            yield converted(batch, schema, own)

    with progress() as line:
        line.part(f"computing {spec.target.identifier}", ViewPlanner(spec).rows_left({}))
        tables = ViewInputs(spec, end, line.reached).scanner(spec.plan.query)
        yield from Recompute(plan).changes(tables, int(end["now"]), (schema, kept))


def _shown(plan: ViewPlan) -> ViewPlan:
    """The plan without a hidden key, which is another one than that of the rows in the table."""
    if not plan.hidden:
        return plan
    columns = tuple(column for column in plan.columns if column.name != HIDDEN_KEY)
    sql = f'SELECT * EXCLUDE ("{HIDDEN_KEY}") FROM ({plan.query.sql})'
    tree = replace(plan.tree, key=(), unique=True, hashed=None, numbered=False)
    return replace(plan, query=replace(plan.query, sql=sql), columns=columns, tree=tree)
