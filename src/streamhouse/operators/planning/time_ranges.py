"""Joins whose condition relates times by a range get an equality.

The times that a left row may meet are in two pieces of the length of the range at most. So a change
looks up the rows of a piece, not all rows, or all rows of its key.

Rows that are joined with windows by a range get the windows that they meet instead.
`b.ts BETWEEN w.window_end - INTERVAL '10' SECOND AND w.window_end` leaves a row few windows. With
these as columns the join has equal ends of windows, as one of two table functions has.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from streamhouse.operators.join import JoinKind
from streamhouse.operators.operator import INPUT
from streamhouse.operators.planning.rows import Rows, checked, passing, plain_column, reference
from streamhouse.operators.project import Item, Project
from streamhouse.operators.unnest import Unnest
from streamhouse.sql.batch import closed_windows
from streamhouse.sql.batch.joins_in_time import FLIPPED
from streamhouse.sql.expressions import intervals
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.functions.expression_builders import column_of
from streamhouse.sql.parser.windowed_rows import WINDOWED, Window, reaching
from streamhouse.sql.select_parts import conjuncts, derived, sources

ADDED = "added"
"""Key in the `meta` of an equality that the query does not have."""
_LEAST_MS = 1_000
_LOWER = (exp.GT, exp.GTE)
Times: TypeAlias = Callable[[exp.Expr], str]
"""Which time of a side an expression is; empty for any other expression."""


@dataclass(frozen=True)
class Bound:
    """The right time is not before, or not after, the left one plus a duration.

    Fractions of a millisecond are left out. `strict`: nor is it equal.
    """

    left: str
    right: str
    ms: int
    lower: bool
    strict: bool


def in_pieces(
    kind: JoinKind, left: Rows, right: Rows, terms: list[exp.Expr]
) -> tuple[Rows, Rows, list[exp.Expr]]:
    """The sides of a join and its terms, with an equality of pieces of time if times have a range.

    Each right row is there for both pieces of left rows that it may meet; a left row is in one.
    """
    times = _times_of(left), _times_of(right)
    found = None if kind is JoinKind.FULL else range_of(terms, *times)
    if found is None:
        return left, right, terms
    first, last = found
    # Fractions of a millisecond are left out of both.
    start, end = first.ms - 1, last.ms + 1
    used = {*left.operator.columns, *right.operator.columns}
    number = next(n for n in range(len(used) + 1) if used.isdisjoint(_names(n)))
    own, other = _names(number)
    length = max(_LEAST_MS, end - start)
    piece, later = _piece(first.left, start, length), _piece(first.right, 0, length)
    items = (*map(Item.of, left.operator.columns), Item(own, piece))
    rows = Rows(checked(Project(left.operator, items)), left.names)
    present = exp.Not(this=exp.Is(this=reference(first.right), expression=exp.Null()))
    others = passing(right, [present])
    both = f"UNNEST([{later}, {later} - to_milliseconds({length})])"
    unnest = checked(Unnest(others.operator, both, (other,), False, True))
    equal = exp.EQ(this=reference(own), expression=reference(other))
    equal.meta[ADDED] = True
    return rows, Rows(unnest, right.names), [*terms, equal]


def _names(number: int) -> tuple[str, str]:
    """The columns of the pieces of the left and of the right side."""
    return f"_l{number}_piece", f"_r{number}_piece"


def _piece(column: str, ms: int, length: int) -> str:
    """The SQL of the start of the piece of a time plus a duration."""
    time = f"CAST({INPUT}.{quote(column)} AS TIMESTAMP) + to_milliseconds({ms})"
    return f"time_bucket(to_milliseconds({length}), {time})"


def range_of(terms: list[exp.Expr], left: Times, right: Times) -> tuple[Bound, Bound] | None:
    """The bounds of a time of the right side by one of the left, a lower and an upper one."""
    bounds = [bound for term in terms for bound in _bounds(term, left, right)]
    for first in bounds:
        for last in bounds:
            same = (first.left, first.right) == (last.left, last.right)
            if same and first.lower and not last.lower and first.ms <= last.ms + 2:
                return first, last
    return None


def _times_of(rows: Rows) -> Times:
    def time(node: exp.Expr) -> str:
        column = plain_column(node, rows)
        return column if column and rows.operator.types[column].startswith("TIMESTAMP") else ""

    return time


def _bounds(term: exp.Expr, left: Times, right: Times) -> Iterator[Bound]:
    pairs: list[tuple[type[exp.Expr], exp.Expr, exp.Expr]]
    if isinstance(term, exp.Between) and not term.args.get("symmetric"):
        pairs = [(exp.GTE, term.this, term.args["low"]), (exp.LTE, term.this, term.args["high"])]
    elif isinstance(term, tuple(FLIPPED)):
        pairs = [(type(term), term.this, term.expression)]
    else:
        return
    for kind, one, two in pairs:
        for test, own, other in ((kind, one, two), (FLIPPED[kind], two, one)):
            time, start = _time(own, right), _time(other, left)
            if time is not None and start is not None:
                lower = test in _LOWER
                strict = test in (exp.GT, exp.LT)
                yield Bound(start[0], time[0], start[1] - time[1], lower, strict)


def _time(node: exp.Expr, times: Times) -> tuple[str, int] | None:
    """The column and the duration of a column of a side plus or minus a duration."""
    inner = node.unnest()
    if isinstance(inner, exp.Add | exp.Sub):
        length = intervals.milliseconds(inner.expression)
        time = _time(inner.this, times)
        if length is None or time is None:
            return None
        return time[0], time[1] + (length if isinstance(inner, exp.Add) else -length)
    column = times(inner)
    return (column, 0) if column else None


_COLUMNS = ("_window_start", "_window_end", "_window_time")
_AFTER_END = {1: 0, 2: -1}
"""By the place of a column of a window: how many milliseconds after the end it is."""


@dataclass(frozen=True)
class _End:
    """A column with the end, or the last moment, of a window; `place` is that in `_COLUMNS`."""

    window: Window
    place: int


def join_windows(tree: exp.Query) -> None:
    """Let inner joins with windows by a range of time have equal ends of windows."""
    outermost = closed_windows.windows(tree)
    for select in list(tree.find_all(exp.Select)):
        joins = select.args.get("joins") or []
        if any(join.side or join.method for join in joins):
            continue
        if not joins or any(item.is_star for item in select.selects):
            continue
        elements = sources(select)
        ends = {each.alias_or_name: dict(_ends(each, outermost)) for each in elements}
        for rows in elements:
            if not any(
                window is each for each in rows.find_all(exp.Select) for window in outermost
            ):
                _join_windows(select, rows, ends)


def _join_windows(
    select: exp.Select, rows: exp.Expr, ends: Mapping[str, Mapping[str, _End]]
) -> None:
    """Give rows the windows of the first element by whose ends their time has a range."""
    where, joins = select.args.get("where"), select.args["joins"]
    terms = [term for part in (where, *(join.args.get("on") for join in joins))
             for term in conjuncts(part)]  # fmt: skip
    alias = rows.alias_or_name
    for other, known in ends.items():
        found = range_of(terms, _columns_of(other, known), _columns_of(alias))
        if found is not None:
            last, end = found[1], known[found[1].left]
            rows.replace(_reached(rows, end, found, terms, other))
            equal = exp.EQ(
                this=column_of(alias, _COLUMNS[end.place]), expression=column_of(other, last.left)
            )
            select.where(equal, copy=False)
            return


def _columns_of(alias: str, known: Mapping[str, _End] | None = None) -> Callable[[exp.Expr], str]:
    def name(node: exp.Expr) -> str:
        own = isinstance(node, exp.Column) and node.table == alias
        return node.name if own and (known is None or node.name in known) else ""

    return name


def _reached(
    rows: exp.Expr, end: _End, found: tuple[Bound, Bound], terms: list[exp.Expr], other: str
) -> exp.Subquery:
    """The rows with the windows in whose ranges they are, by the terms of both columns."""
    first, last = found
    alias, shift = rows.alias_or_name, _AFTER_END[end.place]
    reach = (first.ms + shift, last.ms + shift - last.strict)
    time = column_of(alias, first.right)
    select = reaching(end.window, reach, rows.copy(), time, _COLUMNS)
    value = select.selects[end.place - 3].unalias()
    both = {(alias, first.right), (other, first.left)}
    for term in terms:
        if {(each.table, each.name) for each in term.find_all(exp.Column)} == both:
            own = exp.Paren(this=term.copy())
            for column in list(own.find_all(exp.Column)):
                if column.table == other:
                    column.replace(value.copy())
            select.where(own, copy=False)
    return derived(select, alias)


def _ends(element: exp.Expr, windows: list[exp.Select]) -> Iterator[tuple[str, _End]]:
    """The columns of a subquery that have the end of a window of one of the `windows`."""
    select = element.this if isinstance(element, exp.Subquery) else None
    if not isinstance(select, exp.Select):
        return
    if any(select is each for each in windows):
        if select.meta[WINDOWED].kind != "SESSION":
            for place in _AFTER_END:
                yield select.selects[place - 3].alias, _End(select.meta[WINDOWED], place)
        return
    read = sources(select)
    inner = dict(_ends(read[0], windows)) if len(read) == 1 else {}
    for item in select.selects:
        column = item.unalias()
        if isinstance(column, exp.Column) and column.name in inner:
            yield item.alias_or_name, inner[column.name]
