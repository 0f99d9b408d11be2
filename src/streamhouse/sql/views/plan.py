"""Plans of views: any bounded SELECT, as a query whose result is kept in a table with a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.batch.bounded_query import Analyzed, analyze_bounded, analyze_tree
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.nesting_depth import limited_depth
from streamhouse.sql.plan import BoundedQuery, Column, Resolver, TableInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.columns import Parsed
from streamhouse.sql.resolution.view_expansion import inlined
from streamhouse.sql.syntax import Query
from streamhouse.sql.types import NULL
from streamhouse.sql.views.monotonic import changes_by
from streamhouse.sql.views.stored_view import HIDDEN_KEY
from streamhouse.sql.views.unique_key import Shape, shape_of

_SUMS = (exp.Sum, exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop)
_ANY_ORDER = (*_SUMS, exp.Count, exp.CountIf, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr)
"""Aggregates whose result does not depend on the order of rows, but for the last bits of sums."""


@dataclass(frozen=True)
class ViewPlan:
    """A SELECT whose result is kept in a table.

    `query` gives the table's columns, in order; among them `key`, in which its rows differ if
    `unique`; else the last row of each key counts, in the order of all columns. `timed`: the result
    depends on the time. `ordered`: it depends on the order of rows, so one thread computes it.
    `approximate` are columns of sums of floating-point numbers, whose last bits vary. `changes_by`:
    what lets rows leave the result; None if it only grows. `appends`: none may. `untyped` are
    columns that are NULL in the query. `reason`: why no streaming query computes the SELECT; empty
    for a materialized view.
    """

    query: BoundedQuery
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    unique: bool
    timed: bool
    ordered: bool
    approximate: frozenset[str]
    fingerprint: str
    changes_by: str | None
    appends: bool = False
    untyped: frozenset[str] = frozenset()
    reason: str = ""

    @property
    def hidden(self) -> bool:
        """Whether the key is `HIDDEN_KEY`."""
        return self.key == (HIDDEN_KEY,)


def plan_view(
    query: Query, resolver: Resolver, column_names: Sequence[str] = (), key: Sequence[str] = ()
) -> ViewPlan:
    """Plan a view of its own table: its columns, types and key are inferred.

    `column_names` rename the columns; `key` declares a primary key. Raises `SqlError` for a query
    that is wrong, and `UnsupportedSqlError` for one that cannot be kept up to date.
    """
    with limited_depth(query):
        analyzed, shape = _analyzed(query, resolver)
    parsed = analyzed.parsed
    output = list(column_names) or analyzed.output
    if len(output) != len(analyzed.output):
        raise node_errors.error(
            parsed.script,
            parsed.tree,
            f"the view names {len(output)} column(s), but its query returns "
            f"{len(analyzed.output)}: {', '.join(analyzed.output)}",
        )
    names.reserved(parsed.script, output, parsed.tree)
    renamed = dict(zip(analyzed.output, output, strict=True))
    never = {renamed[name] for name in shape.not_null} | set(key)
    columns = tuple(
        Column(name, _stored_type(kind), name not in never)
        for name, kind in zip(output, analyzed.types, strict=True)
    )
    table = TableInfo(("view",), columns)
    bounded = analyze_bounded(query, resolver, table)
    inferred = shape.best_key()
    found = None if inferred is None else tuple(renamed[name] for name in inferred)
    stored_key = tuple(key) or _storable(found, columns)
    if not stored_key:
        bounded = _with_hidden_key(bounded, found)
        columns = (Column(HIDDEN_KEY, "STRING", False), *columns)
        stored_key = (HIDDEN_KEY,)
    unique = not key or _covers(shape, renamed, key)
    kinds = zip(output, analyzed.types, strict=True)
    untyped = frozenset(name for name, kind in kinds if kind == NULL)
    return replace(_plan(analyzed, bounded, columns, stored_key, unique), untyped=untyped)


def plan_view_into(
    query: Query, resolver: Resolver, target: TableInfo, columns: tuple[str, ...] = ()
) -> ViewPlan:
    """Plan a SELECT whose result an INSERT keeps in `target`, which has a primary key.

    Raises as `plan_view`; `columns` is the INSERT's column list.
    """
    with limited_depth(query):
        analyzed, shape = _analyzed(query, resolver)
    bounded = analyze_bounded(query, resolver, target, columns)
    filled = columns or tuple(column.name for column in target.columns if not column.virtual)
    renamed = dict(zip(analyzed.output, filled, strict=False))
    unique = _covers(shape, renamed, target.primary_key)
    return _plan(analyzed, bounded, target.columns, target.primary_key, unique)


def _analyzed(query: Query, resolver: Resolver) -> tuple[Analyzed, Shape]:
    parsed = names.parse_query(query)
    tree = parsed.tree
    if not isinstance(tree, exp.Query):
        raise node_errors.unsupported(parsed.script, tree, "a view is a SELECT")
    _check_lookups(parsed, resolver)
    analyzed = analyze_tree(names.parse_query(query), tree.copy(), resolver)
    tables = {f"scan_{n}": info for n, (info, _, _) in enumerate(analyzed.scans.tables)}
    return analyzed, shape_of(analyzed.tree, tables)


def _changes_by(analyzed: Analyzed) -> str | None:
    """As `monotonic.changes_by`; a table as of a fixed point in time does not change."""
    scans = enumerate(analyzed.scans.tables)
    return changes_by(analyzed.tree, {f"scan_{n}": at for n, (at, _, as_of) in scans if not as_of})


def _check_lookups(parsed: Parsed, resolver: Resolver) -> None:
    tree = inlined(Parsed(parsed.script, parsed.tree.copy(), parsed.canonical), resolver).tree
    for table in names.leaves(tree):
        version = table.args.get("version")
        if version is not None and version.find(exp.Column) is not None:
            raise node_errors.unsupported(
                parsed.script,
                table,
                "FOR SYSTEM_TIME AS OF a column joins each row once, as of its time, and a view is "
                "computed from the tables as they are now. Leave the clause out to join the newest "
                "rows: a change of this table then changes rows that were joined before",
            )


def _stored_type(kind: str) -> str:
    """The type of a view's column for a query's type."""
    if kind == NULL:
        return "STRING"
    return "TIME(3)" if kind == "TIME(6)" else kind


def _storable(key: tuple[str, ...] | None, columns: Sequence[Column]) -> tuple[str, ...]:
    """The inferred key, if it can be a primary key; else empty."""
    kinds = {column.name: column for column in columns}
    if not key or any(
        kinds[name].nullable or kinds[name].type.startswith(("ARRAY", "MAP", "ROW", "FLOAT", "DOU"))
        for name in key
    ):
        return ()
    return tuple(column.name for column in columns if column.name in key)


def _covers(shape: Shape, renamed: dict[str, str], key: Sequence[str]) -> bool:
    """Whether no two rows of the result have the same values in `key`."""
    return any({renamed.get(name) for name in found} <= set(key) for found in shape.keys)


def _with_hidden_key(query: BoundedQuery, key: tuple[str, ...] | None) -> BoundedQuery:
    """The query with `HIDDEN_KEY` first: a hash of the row's key, or of all its columns.

    Without a key, a number tells equal rows apart.
    """
    whole = ", ".join(quote(name) for name in query.output)
    texts = [
        f"coalesce(length(CAST({quote(name)} AS VARCHAR)) || ':' || CAST({quote(name)} AS VARCHAR),"
        " '-')"
        for name in (query.output if key is None else key)
    ]
    hashed = f"md5({' || '.join(texts)})" if texts else "md5('')"
    inner = f'SELECT {hashed} AS "__hash", * FROM ({query.sql}) AS "made"'
    number = (
        f" || '-' || (row_number() OVER (PARTITION BY \"__hash\" ORDER BY {whole}))"
        if key is None
        else ""
    )
    sql = f'SELECT "__hash"{number} AS "{HIDDEN_KEY}", {whole} FROM ({inner}) AS "hashed"'
    return replace(query, sql=sql, output=(HIDDEN_KEY, *query.output))


def _plan(
    analyzed: Analyzed,
    query: BoundedQuery,
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    unique: bool,
) -> ViewPlan:
    tree = analyzed.tree
    called = [node for node in tree.find_all(exp.AggFunc) if not isinstance(node, _ANY_ORDER)]
    ordered = bool(called) or tree.find(exp.Window, exp.Limit, exp.Fetch, exp.Offset) is not None
    sums = tree.find(*_SUMS) is not None
    floats = frozenset(
        column.name
        for column in columns
        if sums and column.type in ("DOUBLE", "FLOAT") and column.name not in key
    )
    parts = [
        analyzed.parsed.canonical,
        [(column.name, column.type) for column in columns],
        list(key),
        [(scan.table.name, scan.columns) for scan in query.scans],
        *(function.record() for function in query.functions),
    ]
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    timed = "getvariable(" in query.sql.lower()
    return ViewPlan(
        query, columns, key, unique, timed, ordered, floats, fingerprint, _changes_by(analyzed)
    )
