"""Limits windows to those that a watermark has closed, for results that show each window once.

A window is closed when the watermark has reached its last moment (`window_time`), as in Flink. A
batch takes the watermark from one value to another: `BEFORE` and `AFTER`, in epoch milliseconds.
Which sessions are closed depends on the rows that came in time, so late rows are taken back before
rows are combined to sessions.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sqlglot import exp

from streamhouse.errors import UnsupportedSqlError
from streamhouse.sql.functions.expression_builders import (
    AS_IS,
    CLOSING_TIME,
    WINDOWED_TIME,
    WITHIN,
    ZONE,
    call,
    cast,
    column_of,
    number,
    quoted,
    when,
)
from streamhouse.sql.parser.matched_rows import IN_TIME, MATCHED, decide
from streamhouse.sql.parser.windowed_rows import (
    VERSIONS,
    WINDOWED,
    Window,
    combined_sessions,
    single_sessions,
    source_rows,
    windowed_time,
)  # fmt: skip
from streamhouse.sql.select_parts import conjuncts, derived, rows_of, with_queries

BEFORE, AFTER = "watermark_before", "watermark_after"
"""The DuckDB variables of the watermark before a batch and after it."""
SINCE = "open_since"
"""The DuckDB variable of the time from which on rows of open sessions, and those near them, are."""
KINDS = ("+I", "-D")
"""Late rows entered, or left."""
FOREVER = 1 << 47
"""A watermark that has passed all windows, in the year 6429."""
_ALIAS = "_windowed"
_DAY_MS = 86_400_000
_NONE = -62_135_596_800_000
"""The watermark before there is one: the beginning of the year 1."""


def windows(tree: exp.Expr) -> list[exp.Select]:
    """The windowed rows of a query that are in no other windows."""
    queries = {cte.alias: cte for cte in tree.find_all(exp.CTE)}
    inner: set[str] = set()
    found = [select for select in tree.find_all(exp.Select) if select.meta.get(WINDOWED)]
    open_ = list[exp.Expr](found)
    while open_:
        names = {table.name for table in open_.pop().find_all(exp.Table) if not table.db}
        open_ += [queries[name] for name in (names & queries.keys()) - inner]
        inner |= names & queries.keys()
    return [select for select in found if not _is_inner(select, inner)]


def _is_inner(select: exp.Select, queries: set[str]) -> bool:
    parent = select.parent
    while parent is not None:
        if parent.meta.get(WINDOWED) or (isinstance(parent, exp.CTE) and parent.alias in queries):
            return True
        parent = parent.parent
    return False


def closing(tree: exp.Query, without_late: bool = False) -> exp.Query:
    """A query with the windows alone that a batch closes; it may read `late_table`s.

    `without_late`: with the windows as they were when they were closed.
    """
    tree = tree.copy()
    for place, select in enumerate(windows(tree)):
        kind, limited = select.meta[WINDOWED].kind, select.copy()
        moment, named = _closing(select, _ALIAS)
        if kind == "SESSION":
            _combine_seen(limited, place)
        elif not select.meta[WINDOWED].at:
            # Scans skip files without times of windows that the batch closes.
            source, window = source_rows(limited), limited.meta[WINDOWED]
            first, last = window.reach or (-window.size, -1)
            limits = _limits(windowed_time(source), BEFORE, first, last + 2)
            source.where(*limits, copy=False)
        # Sessions follow from their rows without the late ones already.
        subtracted = kind == VERSIONS or (without_late and kind != "SESSION")
        rows = _seen(limited, place) if subtracted else limited
        # Operators find here which columns are those of the window.
        finite = exp.and_(*(call("ISFINITE", each) for each in named))
        closed: exp.Expr = exp.LTE(this=moment, expression=_variable(AFTER))
        if kind != VERSIONS:
            closed = exp.and_(exp.GT(this=moment.copy(), expression=_variable(BEFORE)), closed)
        closed = when(finite, closed)
        select.replace(rows_of(derived(rows, _ALIAS)).where(closed))
    return tree


def _closing(select: exp.Select, alias: str) -> tuple[exp.Expr, list[exp.Expr]]:
    """When windowed rows are closed, and the columns that tell so: the end and the last moment.

    Of TUMBLE and HOP also the start: of other kinds of windows, several may begin at one time.
    """
    if select.meta[WINDOWED].at:
        time = column_of(alias, select.meta[WINDOWED].at)
        return exp.Anonymous(this=WINDOWED_TIME, expressions=[time.copy()]), [time]
    start, end, time = (column_of(alias, each.alias) for each in select.selects[-3:])
    aligned = [start] if select.meta[WINDOWED].kind in ("TUMBLE", "HOP") else []
    return call(CLOSING_TIME, end, time), [end, time, *aligned]


def wait_for_matches(tree: exp.Query) -> None:
    """Let MATCH_RECOGNIZE read rows as a join reads versions, and have what a watermark closes.

    A match is closed when the watermark has passed the last row on which it depends. Raises
    `UnsupportedSqlError` if rows are in another order than that of a time.
    """

    def later(time: exp.Expr) -> exp.Expr:
        moment = exp.Anonymous(this=WINDOWED_TIME, expressions=[time])
        return exp.GT(this=moment, expression=_variable(BEFORE))

    for select in list(tree.find_all(exp.Select)):
        if MATCHED in select.meta:
            if not select.meta[IN_TIME]:
                raise UnsupportedSqlError(
                    "MATCH_RECOGNIZE waits for a watermark only in the order of a time; let ORDER "
                    "BY begin with the column of the WATERMARK, without DESC"
                )
            decide(select, later)
            rows = select.args["with_"].expressions[0].this
            rows.meta[WINDOWED] = Window(VERSIONS, 1, at=select.meta[IN_TIME])


def _limits(time: exp.Expr, first: str, more: int, last: int = 1) -> Iterator[exp.Expr]:
    """The conditions that a row is from a variable, `more` milliseconds later, up to `AFTER`.

    It is `last` milliseconds before that at least.
    """
    column = time.expressions[0]
    for kind, name, since in ((exp.GT, first, more), (exp.LT, AFTER, last)):
        within = kind(this=time.copy(), expression=_variable(name, since))
        # No local time is more than a day from UTC.
        day = -_DAY_MS if kind is exp.GT else _DAY_MS
        instant = cast(column.copy(), "TIMESTAMP")
        instant.meta[ZONE] = AS_IS
        around = kind(this=instant, expression=_variable(name, since + day))
        yield exp.Anonymous(this=WITHIN, expressions=[within, around, column.copy()])


def _combine_seen(select: exp.Select, number: int) -> None:
    """Let sessions be those of the rows that came in time, from `SINCE` on."""
    source = source_rows(select)
    data = source.args["from_"].this
    time, windows = windowed_time(source), [each.alias for each in select.selects[-3:]]
    rows = rows_of(data.copy()).where(*_limits(time, SINCE, 0))
    seen, column = _seen(rows, number, windows), time.expressions[0]
    if isinstance(column, exp.Column):
        seen = _seen_at_times(seen, exp.column(column.this.copy()))
    source.set("from_", exp.From(this=derived(seen, data.alias_or_name)))


def late_table(number: int, kind: str) -> str:
    """The name of the rows of one of the `windows` that entered (`+I`) or left (`-D`) too late."""
    return f"late{kind}{number}"


def _seen(rows: exp.Query, number: int, without: Sequence[str] = ()) -> exp.SetOperation:
    """Rows without their late changes; `without`: columns that only the late rows have."""
    star = exp.Star(**{"except_": [exp.column(quoted(name)) for name in without]})
    tables = (exp.Table(this=quoted(late_table(number, kind))) for kind in KINDS)
    entered, left = (exp.Select(expressions=[star.copy()]).from_(table) for table in tables)
    # In this order rows that came and left too late are in neither.
    both = exp.Union(this=rows, expression=left, distinct=False)
    return exp.Except(this=both, expression=entered, distinct=False)


def _seen_at_times(seen: exp.SetOperation, time: exp.Column) -> exp.SetOperation:
    """The same as `_seen`, faster: few rows have the time of one that entered too late.

    DuckDB numbers all rows for EXCEPT ALL, by all columns.
    """
    both, entered = seen.this, seen.expression
    late = (
        entered.copy().select(time.copy(), append=False).where(time.copy().is_(exp.null()).not_())
    )
    at_times = exp.In(this=time.copy(), query=exp.Subquery(this=late))
    others = rows_of(derived(both.copy(), _ALIAS)).where(exp.not_(at_times.copy()))
    touched = rows_of(derived(both, _ALIAS)).where(at_times)
    seen = exp.Except(this=touched, expression=entered, distinct=False)
    return exp.Union(this=others, expression=seen, distinct=False)


def _with_queries(tree: exp.Query, query: exp.Select) -> exp.Select:
    """A part of a tree as a query, with the WITH queries of the tree."""
    query.set("with_", with_queries(tree))
    return query


def late(tree: exp.Query) -> Iterator[tuple[Window, exp.Query, exp.Query | None]]:
    """For each of the `windows`, a query of all columns of its rows that were closed `BEFORE`.

    Without those that the query around it filters out. For SESSION the query has all rows: see
    `single_sessions`. Then there is another one: these rows with their sessions from `SINCE` on,
    also open ones; see `combined_sessions`.
    """
    for place, select in enumerate(windows(tree)):
        window: Window = select.meta[WINDOWED]
        if window.kind == "SESSION":
            rows = select.copy()
            _combine_seen(rows, place)
            combined = _with_queries(tree, combined_sessions(rows))
            yield window, _with_queries(tree, single_sessions(select)), combined
            continue
        alias, terms = (_ALIAS, []) if window.at else _filters(select)
        closed = exp.LTE(this=_closing(select, alias)[0], expression=_variable(BEFORE))
        rows = rows_of(derived(select.copy(), alias)).where(closed, *terms)
        yield window, _with_queries(tree, rows), None


def _filters(select: exp.Select) -> tuple[str, list[exp.Expr]]:
    """The alias of windowed rows, and the terms of the WHERE around that read them alone."""
    element = select.parent
    outer = None if element is None else element.find_ancestor(exp.Select)
    if not isinstance(element, exp.Subquery) or outer is None:
        return _ALIAS, []
    from_, where = outer.args.get("from_"), outer.args.get("where")
    if from_ is None or from_.this is not element or outer.args.get("joins") or where is None:
        return _ALIAS, []
    # In a subquery of a condition, other columns may be those of the query around it.
    own = {element.alias} if outer.find_ancestor(exp.Where, exp.Having) else {element.alias, ""}
    plain = [
        each.copy()
        for each in conjuncts(where)
        if each.find(exp.Query) is None and {c.table for c in each.find_all(exp.Column)} <= own
    ]
    return element.alias, plain


def _variable(name: str, more: int | None = None) -> exp.Expr:
    """A variable as a time; with `more` that of a limit, so many milliseconds later."""
    value: exp.Expr = call("GETVARIABLE", exp.Literal.string(name))
    if more is not None:
        value = exp.Add(this=value, expression=number(more))
    return call("MAKE_TIMESTAMP_MS", value)


def between(sql: str, before: int | None, after: int | None, since: int | None = None) -> str:
    """The SQL of a query for a batch that takes the watermark from one value to another."""
    for name, value in ((BEFORE, before), (AFTER, after), (SINCE, since)):
        at = _NONE if value is None else value
        variable = rf"getvariable\('{name}'\)"
        time = rf"make_timestamp_ms\({variable}(?: \+ (-?\d+))?\)"
        sql = re.sub(time, lambda found: _literal(at, found[1]), sql, flags=re.IGNORECASE)  # noqa: B023
        sql = re.sub(variable, str(at), sql, flags=re.IGNORECASE)
    return sql


def _literal(millis: int, more: str | None) -> str:
    """A time as a literal; with `more` that of a limit: a whole second or beyond, as scans need."""
    if more is not None:
        seconds = (millis + int(more)) // 1000 + (int(more) > 0)
        millis = seconds * 1000
    at = datetime(1970, 1, 1) + timedelta(milliseconds=max(_NONE, millis))
    return f"CAST('{at}' AS TIMESTAMP)"
