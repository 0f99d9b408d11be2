"""Rows that are joined with windows by a range of time get the windows that they meet.

`b.ts BETWEEN w.window_end - INTERVAL '10' SECOND AND w.window_end` leaves a row few windows. With
these as columns the join has equal ends of windows, as one of two table functions has.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from streamhouse.operators.planning.time_ranges import Bound, range_of
from streamhouse.sql.batch import closed_windows
from streamhouse.sql.functions.expression_builders import column_of
from streamhouse.sql.parser.windowed_rows import WINDOWED, Window, reaching
from streamhouse.sql.select_parts import conjuncts, derived, sources

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
