"""Plans a SELECT over windows whose result has each window once, after a watermark has closed it.

A batch computes the SELECT from the rows of the windows that it closes alone. That is right if
operators combine rows of one window only, which all arrive in that batch.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from sqlglot import exp

from streamhouse.errors import NoWindowsError, UnsupportedSqlError
from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Join, JoinKind
from streamhouse.operators.operator import Linear, Operator, walk
from streamhouse.operators.planning.query_tree import tree_of
from streamhouse.operators.planning.time_ranges import join_windows
from streamhouse.operators.project import Project
from streamhouse.operators.query_block import QueryBlock
from streamhouse.operators.scan import Scan
from streamhouse.operators.set_operation import SetOperation
from streamhouse.sql.batch import closed_windows, joins_in_time
from streamhouse.sql.batch.bounded_query import Analyzed, analyze_tree
from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.parser.windowed_rows import KEY, Window
from streamhouse.sql.plan import (
    CURRENT,
    AsOf,
    BoundedQuery,
    Column,
    Name,
    Resolver,
    ResolverAround,
    TableInfo,
)
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.columns import Parsed
from streamhouse.sql.resolution.view_expansion import views_expanded
from streamhouse.sql.syntax import Query, TextPosition
from streamhouse.sql.text import ticked
from streamhouse.sql.types import stored_type

LATE = "late"
"""Stands for the connector of tables of late rows."""
CHANGED_SELECT = (
    "the SELECT has changed; windows that were written keep their rows, and later ones have those "
    "of the new SELECT. To compute all of them anew, run the script once with --from-scratch"
)
"""What a user is told of a result whose windows are closed."""
_VERSIONS = {"": "version"}
"""The columns of versions of rows, of which a row of a moment reads those up to its time."""
_CLOSED = re.compile(r'ISFINITE\("?_i"?\."((?:[^"]|"")+)"\)')
_COLUMN = re.compile(r'(?:CAST\()?"?_[ilr]"?\."((?:[^"]|"")+)"(?: AS [^"]+\))?')


class NotClosedError(Exception):
    """Rows of different windows affect each other."""


@dataclass(frozen=True)
class LateRows:
    """The rows of a table function in windows that were closed before the batch.

    `linear`: the rows of its table's changes are the changes of its rows. `columns` are those of
    the table in which late rows are kept. `sessions`: for SESSION, of which `query` has all rows,
    the query of their sessions without late rows, which reads `late_table`s.
    """

    query: BoundedQuery
    linear: bool
    columns: tuple[Column, ...]
    window: Window
    sessions: BoundedQuery | None = None


@dataclass(frozen=True)
class ClosedWindows:
    """What a result of closed windows needs beside its query.

    `watermarks`: for each table with a WATERMARK, a query of its greatest value. `column` is one of
    the result from which the last moment of a row's window follows, `offset_ms` later; empty if
    there is none. `seen` is the query of all closed windows without late rows; it reads
    `late_table`s.
    """

    late: tuple[LateRows, ...]
    watermarks: tuple[BoundedQuery, ...]
    column: str = ""
    offset_ms: int = 0
    seen: BoundedQuery | None = None

    @property
    def delay_ms(self) -> int:
        """How long after their ends all windows are closed, since joins compare these."""
        return max((late.window.delay_ms for late in self.late), default=0)

    def tables(self, resolver: Resolver) -> Resolver:
        """A resolver that also finds the tables of late rows."""
        return _LateTables(resolver, self.late)

    def placed(self, result: Operator, seen: BoundedQuery) -> Self:
        """The same for the tree of its result, with the query `seen`.

        Raises `UnsupportedSqlError` if operators combine rows of different windows.
        """
        # A table may have a column of the present time that nothing reads.
        others = (each for each in walk(result) if not isinstance(each, Project))
        timed = next((each for each in others if each.timed), None)
        if timed is not None:
            raise UnsupportedSqlError(
                f"closed windows cannot depend on the current time, as in {timed.describe()}"
            )
        try:
            roles = _roles(result)
        except NotClosedError as reason:
            raise UnsupportedSqlError(
                f"the result would not be that of whole windows: {reason}; group, join and rank "
                "rows by window_start and window_end"
            ) from None
        sizes = {late.window.size for late in self.late}
        offsets = {"time": 0, "end": -1, "start": min(sizes) - 1}
        known = [name for name, role in roles.items() if role != "start" or len(sizes) == 1]
        column = min(known, key=lambda name: offsets[roles[name]], default="")
        offset_ms = offsets[roles[column]] if column else 0
        return replace(self, column=column, offset_ms=offset_ms, seen=seen)


def expanded(parsed: Parsed, tree: exp.Query, resolver: Resolver) -> exp.Query:
    """The tree of a query with views expanded, and all that a watermark closes marked.

    Raises `NoWindowsError` for a query without windows.
    """
    tree = views_expanded(parsed, tree.copy(), resolver)
    join_windows(tree)
    if not closed_windows.windows(tree):
        joins_in_time.wait(tree)
        closed_windows.wait_for_matches(tree)
    if not closed_windows.windows(tree):
        raise NoWindowsError("the SELECT has no windows")
    return tree


def closed_plan(parsed: Parsed, tree: exp.Query, resolver: Resolver) -> ClosedWindows:
    """The further queries of a result of closed windows, of which `tree` is `expanded`.

    Raises `UnsupportedSqlError` for windows of tables without a WATERMARK.
    """
    late, watermarks = list[LateRows](), dict[tuple[str, ...], BoundedQuery]()
    for window, query, sessions in closed_windows.late(tree):
        analyzed = analyze_tree(parsed, query, resolver)
        plan = analyzed.plan()
        tables = [scan.table for scan in plan.scans]
        if not any(table.watermark for table in tables):
            listed = ", ".join(table.name[-1] for table in tables)
            raise UnsupportedSqlError(
                f"no WATERMARK says when windows over {listed} are complete; declare one in CREATE "
                "TABLE, or ALTER TABLE … ADD WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
            )
        if window.reach and "LTZ" in analyzed.types[-1] and resolver.zone != UTC:
            raise UnsupportedSqlError(
                "a range of TIMESTAMP_LTZ by the end of a window has another length when clocks "
                "are set; CAST the time to TIMESTAMP in a view"
            )
        late.append(_late_rows(analyzed, plan, window))
        if sessions is not None:
            known = ClosedWindows(tuple(late), ()).tables(resolver)
            late[-1] = replace(late[-1], sessions=analyze_tree(parsed, sessions, known).plan())
        for table in tables:
            if table.watermark is not None:
                watermarks[table.name] = _watermark(parsed, table, resolver)
    return ClosedWindows(tuple(late), tuple(watermarks.values()))


class _LateTables(ResolverAround):
    """Also finds the tables of late rows."""

    def __init__(self, resolver: Resolver, late: Sequence[LateRows]) -> None:
        super().__init__(resolver)
        self._tables = {
            name: TableInfo((name,), each.columns, connector=LATE)
            for number, each in enumerate(late)
            for name in (closed_windows.late_table(number, kind) for kind in closed_windows.KINDS)
        }

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        """The table of late rows, or another one of that name."""
        return self._tables.get(name[-1]) or super().table(name, as_of)


def _late_rows(analyzed: Analyzed, plan: BoundedQuery, window: Window) -> LateRows:
    operators = list(walk(tree_of(analyzed.tree, plan.scans)))
    linear = len(plan.scans) == 1 and all(isinstance(each, Scan | Linear) for each in operators)
    kinds = zip(analyzed.output, analyzed.types, strict=True)
    columns = tuple(
        Column(name, stored_type(kind)) for name, kind in kinds if not name.startswith(KEY)
    )
    return LateRows(plan, linear, columns, window)


def _watermark(parsed: Parsed, table: TableInfo, resolver: Resolver) -> BoundedQuery:
    """The query of the greatest watermark of a table's rows, and of the split that it is of."""
    watermark = table.watermark
    assert watermark is not None
    split, group = "''", ""
    if watermark.split:
        split = f"CAST({ticked(watermark.split)} AS STRING)"
        group = f" GROUP BY {ticked(watermark.split)}"
    text = (
        f"SELECT MAX({watermark.expression}) AS `at`, {split} AS `split` "
        f"FROM {ticked(table.name[-1])}{group}"
    )
    own = names.parse_query(Query(text, TextPosition(1, 1)))
    assert isinstance(own.tree, exp.Query)
    analyzed = analyze_tree(own, own.tree, resolver, first=table)
    return analyzed.plan(output=["at", "split"])


def _roles(operator: Operator) -> Mapping[str, str]:
    """The columns that have the `start`, `end` or `time` of the window of a row.

    Raises `NotClosedError` if rows of different windows affect each other.
    """
    if isinstance(operator, Filter) and closed_windows.AFTER in operator.condition:
        found = [name.replace('""', '"') for name in _CLOSED.findall(operator.condition)]
        if closed_windows.BEFORE not in operator.condition:
            return _VERSIONS
        if len(found) == 1:
            return {found[0]: "time"}
        return dict(zip(found, ("end", "time", "start"), strict=False))
    if not operator.inputs or (isinstance(operator, QueryBlock) and operator.by is None):
        reason = operator.reason if isinstance(operator, QueryBlock) else operator.describe()
        raise NotClosedError(f"{reason} is outside of windows")
    inputs = [_roles(each) for each in operator.inputs]
    if _VERSIONS in inputs:
        if isinstance(operator, QueryBlock) and closed_windows.BEFORE in operator.sql:
            return {}
        return _as_of(operator, inputs)
    if isinstance(operator, Project):
        if operator.timed:
            raise NotClosedError(operator.loses)
        pairs = [(item.name, item.column) for item in operator.items]
        return {name: inputs[0][column] for name, column in pairs if column in inputs[0]}
    if isinstance(operator, Linear):
        return inputs[0]
    if isinstance(operator, SetOperation):
        sides = zip(operator.left.columns, operator.right.columns, strict=True)
        same = {a: inputs[0].get(a) for a, b in sides if inputs[0].get(a) == inputs[1].get(b)}
        roles = {name: role for name, role in same.items() if role in ("end", "time")}
        if not roles and operator.keeps:
            raise NotClosedError(f"{operator.describe()} compares rows without window_end")
        return roles
    return _combined(operator, inputs)


def _as_of(operator: Operator, inputs: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """As `_roles`, of an operator over versions, or of their join with the rows of moments."""
    moments = next((each for each in inputs if each is not _VERSIONS), None)
    if moments is None:
        return _VERSIONS
    if not isinstance(operator, Join) or operator.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise NotClosedError(f"{operator.describe()} reads versions without their time")
    return {name: role for name, role in moments.items() if name in operator.columns}


def _combined(operator: Operator, inputs: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """As `_roles`, of an operator that combines the rows of one partition."""
    if isinstance(operator, Aggregate):
        roles = {item.name: inputs[0].get(item.column, "") for item in operator.by}
        roles = {name: role for name, role in roles.items() if role}
        if not roles:
            raise NotClosedError(f"{operator.describe()} is not grouped by the window")
        return roles
    partitions = operator.partitions or ((),) * len(inputs)
    found = [[_role(sql, own) for sql in by] for by, own in zip(partitions, inputs, strict=True)]
    if isinstance(operator, Join):
        if not any(a == b and a in ("end", "time") for a, b in zip(*found, strict=True)):
            raise NotClosedError(f"{operator.describe()} has no equal window_end")
        sides = {JoinKind.FULL: [], JoinKind.INNER: inputs}.get(operator.kind, inputs[:1])
        roles = {name: role for side in sides for name, role in side.items()}
    elif not any(found[0]):
        raise NotClosedError(f"{operator.describe()} is not partitioned by the window")
    else:
        roles = dict(inputs[0])
    return {name: role for name, role in roles.items() if name in operator.columns}


def _role(sql: str, roles: Mapping[str, str]) -> str:
    """The role of the column that an expression is; empty for any other."""
    match = _COLUMN.fullmatch(sql)
    return "" if match is None else roles.get(match[1].replace('""', '"'), "")
