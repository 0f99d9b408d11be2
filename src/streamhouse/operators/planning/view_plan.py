"""Plans of views: any bounded SELECT, as a query whose result is kept in a table with a key."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from streamhouse.errors import UnsupportedSqlError
from streamhouse.operators.operator import Operator, retraction, walk
from streamhouse.operators.planning.closed_windows import ClosedWindows, closed_plan, expanded
from streamhouse.operators.planning.query_tree import tree_of
from streamhouse.operators.sink import Sink
from streamhouse.sql.batch import total_order, window_slices
from streamhouse.sql.batch.bounded_query import Analyzed, analyze_tree, planned_into, query_tree
from streamhouse.sql.batch.closed_windows import closing
from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.functions.expression_builders import CURRENT_WATERMARK
from streamhouse.sql.nesting_depth import limited_depth
from streamhouse.sql.plan import BoundedQuery, BoundedScan, Column, Resolver, TableInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.as_of_clause import VERSIONED
from streamhouse.sql.resolution.columns import Parsed
from streamhouse.sql.resolution.view_expansion import views_expanded
from streamhouse.sql.syntax import Query
from streamhouse.sql.types import NULL, stored_type
from streamhouse.sql.views.stored_view import HIDDEN_KEY

_PLAIN = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "DATE", "TIME")
"""How the names of types begin whose values, as text, have no comma and are never `-`."""


@dataclass(frozen=True)
class ViewPlan:
    """A SELECT whose result is kept in a table.

    `query` gives the table's columns, in order, as one SQL text; `tree` is the same query as
    operators, up to the sink with its key. `timed`: the result depends on the time. `ordered`: it
    depends on the order of rows, so one thread computes it. `windows`: each batch computes the
    windows that it closes, or those that may still change. `untyped` are columns that are NULL in
    the query. `reason`: why no streaming query computes the SELECT; empty for a materialized view.
    `zone`: the time zone of its local times.
    """

    query: BoundedQuery
    columns: tuple[Column, ...]
    tree: Sink
    timed: bool
    ordered: bool
    fingerprint: str
    windows: ClosedWindows | None = None
    untyped: frozenset[str] = frozenset()
    reason: str = ""
    zone: str = UTC

    @property
    def key(self) -> tuple[str, ...]:
        """The columns in which the table's rows differ."""
        return self.tree.key

    @property
    def unique(self) -> bool:
        """Whether the result's rows differ in `key`; else the last row of each key counts."""
        return self.tree.unique

    @property
    def changes_by(self) -> str | None:
        """What lets rows leave the result, in words; None if it only grows."""
        operator = retraction(self.tree)
        return None if operator is None else operator.loses

    @property
    def keyless(self) -> bool:
        """Whether each batch appends the rows that it adds to a table without a key."""
        return not self.key

    @property
    def hidden(self) -> bool:
        """Whether the key is `HIDDEN_KEY`."""
        return self.tree.hashed is not None


def plan_view(
    query: Query,
    resolver: Resolver,
    column_names: Sequence[str] = (),
    key: Sequence[str] = (),
    stored: Sequence[str] = (),
) -> ViewPlan:
    """Plan a view of its own table: its columns, types and key are inferred.

    `column_names` rename the columns; `key` declares a primary key. `stored`: the key of the table
    that the view has already, which is kept if the result has it. Raises `SqlError` for a query
    that is wrong, and `UnsupportedSqlError` for one that cannot be kept up to date.
    """
    with limited_depth(query):
        parsed = names.parse_query(query)
        tree = query_tree(parsed)
        _check_times(parsed, tree, resolver)
        analyzed = _analyzed(parsed, tree, resolver)
        # The key of the view is shorter without the ends of windows.
        analyzed = replace(analyzed, tree=window_slices.without_ends(analyzed.tree))
        output = analyzed.named(column_names, "the view")
        kinds = zip(output, map(stored_type, analyzed.types), strict=True)
        named = TableInfo(("view",), tuple(Column(name, kind) for name, kind in kinds))
        final, bounded = planned_into(analyzed, named)
        result = tree_of(final, bounded.scans)
    never = result.not_null | set(key)
    columns = tuple(replace(column, nullable=column.name not in never) for column in named.columns)
    inferred = _best_key(result)
    kept = result.has_key(tuple(stored)) and result.not_null >= set(stored)
    stored_key = tuple(key) or (tuple(stored) if kept else _storable(inferred, columns))
    if stored_key and (key or tuple(stored) != (HIDDEN_KEY,)):
        sink = Sink(result, stored_key, result.has_key(stored_key))
    else:
        keyed = [column.type for column in columns if column.name in (inferred or ())]
        plain = bool(keyed) and all(kind.startswith(_PLAIN) for kind in keyed)
        sink = Sink(result, (HIDDEN_KEY,), True, inferred or (), inferred is None, plain)
        hashed = sink.whole([f"({bounded.sql})"])
        bounded = replace(bounded, sql=hashed, output=sink.columns)
        columns = (Column(HIDDEN_KEY, "STRING", False), *columns)
    types = zip(output, analyzed.types, strict=True)
    untyped = frozenset(name for name, kind in types if kind == NULL)
    # Without the text: that of the script and the stored one, with full names, are one query.
    return replace(_plan(analyzed, bounded, columns, sink, ""), untyped=untyped)


def plan_view_into(
    query: Query,
    resolver: Resolver,
    target: TableInfo,
    columns: tuple[str, ...] = (),
    closed: bool = False,
) -> ViewPlan:
    """Plan a SELECT whose result an INSERT keeps in `target`, or appends to it if it has no key.

    Raises as `plan_view`; `columns` is the INSERT's column list. `closed`: a window that has been
    closed for long enough does not change any more; without a key, the result has each window once,
    after a watermark has closed it.
    """
    with limited_depth(query):
        parsed, windows = names.parse_query(query), None
        tree = whole = query_tree(parsed)
        _check_times(parsed, tree, resolver)
        if closed:
            whole = expanded(parsed, tree, resolver)
            windows = closed_plan(parsed, whole, resolver)
            tree, resolver = closing(whole), windows.tables(resolver)
        analyzed = _analyzed(parsed, tree, resolver)
        final, bounded = planned_into(analyzed, target, columns)
        result = tree_of(final, bounded.scans)
        if windows is not None:
            seen = analyze_tree(parsed, closing(whole, without_late=True), resolver)
            total_order.complete(seen.tree)
            windows = windows.placed(result, planned_into(seen, target, columns)[1])
    if windows is not None and target.primary_key and not windows.column:
        raise UnsupportedSqlError(
            "table.exec.emit.allow-lateness needs the windows of the rows of "
            f"{target.name[-1]}; add window_end to the SELECT and to the table"
        )
    key = target.primary_key
    sink = Sink(result, key, not key or result.has_key(key))
    plan = _plan(analyzed, bounded, target.columns, sink, parsed.canonical)
    return replace(plan, windows=windows)


def _analyzed(parsed: Parsed, tree: exp.Query, resolver: Resolver) -> Analyzed:
    analyzed = analyze_tree(parsed, tree.copy(), resolver)
    total_order.complete(analyzed.tree, True, analyzed.scans.keys)
    return analyzed


def _check_times(parsed: Parsed, tree: exp.Query, resolver: Resolver) -> None:
    tree = views_expanded(parsed, tree.copy(), resolver)
    for node in tree.find_all(exp.Anonymous):
        if node.name == CURRENT_WATERMARK:
            raise parsed.script.unsupported(
                node.expressions[0],
                "CURRENT_WATERMARK compares each row with those that came before it, and a view is "
                "computed from the tables as they are now. INSERT the rows that came in time into "
                "a table by a SELECT of one table, and read that one",
            )
    for table in names.leaves(tree):
        version = table.args.get("version")
        if version is not None and version.find(exp.Column) is not None:
            raise parsed.script.unsupported(
                table,
                "FOR SYSTEM_TIME AS OF a column joins each row once, as of its time, and a view is "
                f"computed from the tables as they are now. As of a stored time, name {VERSIONED}. "
                "To join the newest rows, leave the clause out: a change of this table then "
                "changes rows that were joined before",
            )


def _best_key(result: Operator) -> tuple[str, ...] | None:
    """The key with the fewest columns, one that is never null first; None without a key."""
    found = sorted(result.keys, key=lambda key: (not key <= result.not_null, len(key), sorted(key)))
    return tuple(sorted(found[0])) if found else None


def _storable(key: tuple[str, ...] | None, columns: Sequence[Column]) -> tuple[str, ...]:
    """The inferred key, if it can be a primary key; else empty."""
    kinds = {column.name: column for column in columns}
    if not key or any(
        kinds[name].nullable or kinds[name].type.startswith(("ARRAY", "MAP", "ROW", "FLOAT", "DOU"))
        for name in key
    ):
        return ()
    return tuple(column.name for column in columns if column.name in key)


def _plan(
    analyzed: Analyzed, query: BoundedQuery, columns: tuple[Column, ...], sink: Sink, text: str
) -> ViewPlan:
    operators = list(walk(sink))
    # The SQL has what the text does not: the queries of views, computed columns, the time zone.
    parts = [
        text,
        query.sql,
        [(column.name, column.type) for column in columns],
        list(sink.key),
        *((scan.table.name, _read_columns(scan), dict(scan.options)) for scan in query.scans),
        *(function.record() for function in query.functions),
    ]
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return ViewPlan(
        query, columns, sink,
        any(each.timed for each in operators), any(each.ordered for each in operators),
        fingerprint, zone=analyzed.zone,
    )  # fmt: skip


def _read_columns(scan: BoundedScan) -> list[tuple[str, str]]:
    return [(each.name, each.type) for each in scan.table.columns if each.name in scan.columns]
