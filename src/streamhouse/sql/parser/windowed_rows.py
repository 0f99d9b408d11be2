"""Windows of rows in time, as plain SQL: each row with the windows that it belongs to.

Windows are aligned to 1970-01-01, also before it, plus an offset. They begin and end at
milliseconds. Rows without a time are in no window. All of it is as in Flink.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlglot import exp

from streamhouse.sql.functions.expression_builders import (
    LAST_MOMENT,
    SLICE_START,
    WINDOWED_TIME,
    call,
    cast,
    column_of,
    number,
    quoted,
)
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.select_parts import derived, rows_of

WINDOWED = "windowed"
"""Key in the `meta` of a SELECT that adds the columns of windows to rows: the `Window`."""
MOMENTS, VERSIONS = "MOMENTS", "VERSIONS"
"""Kinds of windows of a SELECT that adds no columns: a row is in the moment of its time, of which
a join as of that time reads the versions up to then."""
WINDOW_COLUMNS = ("window_start", "window_end", "window_time")
SLICE, WINDOWS = "window$slice", "_windows"
"""The start of a row's slice, of which the windows of HOP and CUMULATE consist; the relation of
the windows that a slice belongs to."""
_DISTANCE = "_distance"
_ORIGIN_MS = 946_857_600_000
"""To which DuckDB aligns steps without another origin, which takes twice as long: 2000-01-03."""
FIRST, LAST = "window$first", "window$last"
"""The times of the first and the last rows of sessions, null for all other rows."""
KEY = "window$key"
"""The start of the names of columns that only queries of late rows have."""
MOMENT, BEGIN, UNTIL = f"{KEY}_time", f"{KEY}_first", f"{KEY}_until"
"""The time of a row, and the first time and the end of its session, as TIMESTAMPs in UTC."""


@dataclass(frozen=True)
class Window:
    """The kind of a window and its durations in milliseconds.

    `step` is the slide of HOP and the step of CUMULATE. `size` is the gap of SESSION. `reach` is
    that of the rows beside windows; see `reaching`. `at` is the column with the time of `MOMENTS`
    and `VERSIONS`, whose rows have no columns of windows.
    """

    kind: str
    size: int
    step: int = 0
    offset: int = 0
    reach: tuple[int, int] | None = None
    at: str = ""

    @property
    def sliced(self) -> bool:
        """Whether slices of time may be grouped first."""
        overlap = self.kind in ("HOP", "CUMULATE") and self.size > self.step
        return overlap or self.kind == "SESSION"

    @property
    def delay_ms(self) -> int:
        """How long after its end a window is complete: until then rows may come."""
        if self.kind == "SESSION":
            return 1
        return max(0, self.reach[1] + 1) if self.reach else 0

    def error(self) -> str | None:
        """What is wrong with the durations; None if they are valid."""
        if self.size <= 0:
            return f"the size or gap of {self.kind} must be greater than 0; write a longer INTERVAL"
        if self.kind in ("HOP", "CUMULATE") and self.step <= 0:
            return f"the step of {self.kind} must be greater than 0; write a longer INTERVAL"
        if self.kind == "CUMULATE" and self.size % self.step:
            return (
                f"the size of CUMULATE, {self.size} ms, must be a multiple of its step, "
                f"{self.step} ms; change one of them"
            )
        return None

    def ends_between(self, before: int, after: int) -> bool:
        """Whether the last moment of a window is after `before`, and not after `after` (epoch ms).

        A session may end at any time.
        """
        if self.kind == "SESSION":
            return before < after
        step, origin = self.step or self.size, self.offset + self.size - 1
        return (after - origin) // step > (before - origin) // step

    def floor(self, time: exp.Expr, step: int) -> exp.Expr:
        """The last moment of a step that is not after a time."""
        if (_ORIGIN_MS - self.offset) % step == 0:
            return call("TIME_BUCKET", _duration(step), time.copy())
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=self.offset % step)
        origin = cast(exp.Literal.string(str(moment)), "TIMESTAMP")
        return call("TIME_BUCKET", _duration(step), time.copy(), origin)


def duration_error(name: str) -> str:
    """The error for a duration that is no constant interval of days or shorter units."""
    return (
        f"{name} takes constant INTERVALs of weeks, days, hours, minutes or seconds, such as "
        "INTERVAL '10' MINUTE; months differ in length, so write GROUP BY FLOOR(t TO MONTH)"
    )


def windowed(
    window: Window,
    data: exp.Expr,
    time: exp.Expr,
    keys: Sequence[exp.Expr] = (),
    where: exp.Expr | None = None,
    names: Sequence[str] = WINDOW_COLUMNS,
) -> exp.Select:
    """All columns of `data`, and the start, end and last moment of each window under `names`.

    `data` is an element of FROM, `time` a column of it. `keys` divide the rows of SESSION. Only the
    rows for which `where` is true get into windows.
    """
    present = exp.Not(this=exp.Is(this=time.copy(), expression=exp.Null()))
    where = exp.Where(this=present if where is None else exp.and_(where.copy(), present))
    if window.kind == "SESSION":
        select = _sessions(window, data, time, keys, where, names)
    elif window.kind == "TUMBLE":
        select = _tumbling(window, data, time, where, names)
    else:
        select = _sliced(window, data, time, where, names)
    select.meta[WINDOWED] = window
    return select


def _tumbling(
    window: Window, data: exp.Expr, time: exp.Expr, where: exp.Where, names: Sequence[str]
) -> exp.Select:
    """Rows with their windows of TUMBLE."""
    start = window.floor(_of(time), window.size)
    star = exp.Column(this=exp.Star(), table=quoted(data.alias_or_name))
    columns = _columns(start, _plus(start, window.size), time, names)
    return exp.Select(expressions=[star, *columns], from_=exp.From(this=data), where=where)


def reaching(
    window: Window,
    reach: tuple[int, int],
    data: exp.Expr,
    time: exp.Expr,
    names: Sequence[str],
) -> exp.Select:
    """All columns of `data`, and those of the windows of whose ends each row is within reach.

    `reach` is from when to when, in milliseconds after the end, but for fractions of them.
    """
    first, last = reach[0] - 1, reach[1] + 1
    step = window.step or window.size
    near = Window("HOP", last - first + 1, step, (window.offset + window.size + first) % step)
    select = windowed(near, data, time, names=names)
    end = _plus(select.selects[-3].unalias().this, -first)
    columns = _columns(_plus(end, -window.size), end, time, names)
    select.set("expressions", [select.selects[0], *columns])
    select.meta[WINDOWED] = replace(window, kind="REACH", reach=reach)
    return select


def source_rows(select: exp.Select) -> exp.Select:
    """The SELECT in windowed rows that reads `data`; it has the condition on its rows."""
    for _ in range({"TUMBLE": 0, "SESSION": 2}.get(select.meta[WINDOWED].kind, 1)):
        select = select.args["from_"].this.this
    return select


def windowed_time(select: exp.Select) -> exp.Expr:
    """The time by which the rows of a `source_rows` are windowed, as a TIMESTAMP."""
    calls = (call for item in select.selects for call in item.find_all(exp.Anonymous))
    return next(call for call in calls if call.name == WINDOWED_TIME)


def single_sessions(select: exp.Select) -> exp.Select:
    """The rows of SESSION, each with its keys, its `MOMENT`, and a session of its own."""
    rows = source_rows(select).copy()
    first, time = rows.selects[-1].unalias().expressions
    rows.set("expressions", [exp.Star(), *_single(select, first, time)])
    return rows


def combined_sessions(select: exp.Select) -> exp.Select:
    """As `single_sessions`, each row also with the `BEGIN` and `UNTIL` of the session it is in."""
    rows, (start, end, _) = select.copy(), select.selects[-3:]
    window = select.find(exp.Window)
    assert window is not None
    moment = window.args["order"].expressions[0].this
    bounds = ((start, BEGIN), (end, UNTIL))
    _, time = source_rows(select).selects[-1].unalias().expressions
    items = [*select.selects[:-3], *_single(select, moment, time)]
    items += [exp.alias_(each.unalias().this, name, quoted=True) for each, name in bounds]
    rows.set("expressions", [item.copy() for item in items])
    return rows


def _single(select: exp.Select, moment: exp.Expr, time: exp.Expr) -> list[exp.Expr]:
    """The keys of a row of SESSION, its time, and the columns of a session of its own."""
    window = select.find(exp.Window)
    keys = [] if window is None else window.args["partition_by"]
    named = {f"{KEY}{number}": key for number, key in enumerate(keys)} | {MOMENT: moment}
    names = [item.alias for item in select.selects[-3:]]
    end = _plus(moment, select.meta[WINDOWED].size)
    items = [exp.alias_(each.copy(), name, quoted=True) for name, each in named.items()]
    return [*items, *_columns(moment, end, time, names)]


def _sliced(
    window: Window, data: exp.Expr, time: exp.Expr, where: exp.Where, names: Sequence[str]
) -> exp.Select:
    """Rows with their windows of HOP or CUMULATE, which follow from their slices.

    Windows are unnested from their distances to the first one. These are constants, which DuckDB
    unnests seven times as fast as a series for each row.
    """
    first = window.floor(_of(time), math.gcd(window.step, window.size))
    source, slice_ = _with_slices(data, time, first, where)
    moment = _of(slice_)
    distance = column_of(WINDOWS, _DISTANCE)
    distances = filled(f"RANGE(0::BIGINT, {window.size}::BIGINT, {window.step}::BIGINT)")
    windows = exp.Unnest(
        expressions=[distances],
        alias=exp.TableAlias(this=quoted(WINDOWS), columns=[quoted(_DISTANCE)]),
    )
    apart = call("TO_MILLISECONDS", distance.copy())
    condition = None
    if window.kind == "HOP":
        first = window.floor(moment, window.step)
        start = filled("(first - apart)", first=first, apart=apart)
        end = _plus(start, window.size)
        if window.size % window.step:
            condition = exp.Where(this=exp.LT(this=moment, expression=end.copy()))
    else:
        start = window.floor(moment, window.size)
        end = filled("(near + apart)", near=_plus(moment, window.step), apart=apart)
        last = _plus(start, window.size)
        condition = exp.Where(this=exp.LTE(this=end.copy(), expression=last))
    star = exp.Star(**{"except_": [exp.column(quoted(SLICE)), exp.column(quoted(_DISTANCE))]})
    return exp.Select(
        expressions=[star, *_columns(start, end, time, names)],
        from_=exp.From(this=source),
        joins=[exp.Join(this=windows, kind="CROSS")],
        where=condition,
    )


def _with_slices(
    data: exp.Expr, time: exp.Expr, first: exp.Expr, where: exp.Where
) -> tuple[exp.Subquery, exp.Expr]:
    """The rows with the start of the slice of each; and this column."""
    alias = data.alias_or_name
    select = rows_of(data, {SLICE: call(SLICE_START, first, time.copy())})
    select.set("where", where)
    return derived(select, alias), column_of(alias, SLICE)


def _sessions(
    window: Window,
    data: exp.Expr,
    time: exp.Expr,
    keys: Sequence[exp.Expr],
    where: exp.Where,
    names: Sequence[str],
) -> exp.Select:
    """Rows whose times differ by the gap at most, to the next one each, are one session.

    A first SELECT marks the first and last times of sessions, a second one spreads them.
    """
    millis = call("DATE_TRUNC", exp.Literal.string("milliseconds"), _of(time))
    source, slice_ = _with_slices(data, time, millis, where)
    moment = _of(slice_)
    gap, one = (f"TO_MILLISECONDS({millis})" for millis in (window.size, 1))
    frames = {FIRST: ("MAX", f"{gap} PRECEDING AND {one} PRECEDING"),
              LAST: ("MIN", f"{one} FOLLOWING AND {gap} FOLLOWING")}  # fmt: skip
    marks = {
        column: filled("CASE WHEN other IS NULL THEN moment END",
                       other=_over(name, moment, frame, keys, moment), moment=moment.copy())
        for column, (name, frame) in frames.items()
    }  # fmt: skip
    marked = derived(rows_of(source, marks), data.alias_or_name)
    first, last = exp.column(quoted(FIRST)), exp.column(quoted(LAST))
    start = _over("MAX", first, "UNBOUNDED PRECEDING AND CURRENT ROW", keys, moment)
    end = _over("MIN", last, "CURRENT ROW AND UNBOUNDED FOLLOWING", keys, moment)
    star = exp.Star(**{"except_": [first.copy(), last.copy(), exp.column(quoted(SLICE))]})
    columns = _columns(start, _plus(end, window.size), time, names)
    return exp.Select(expressions=[star, *columns], from_=exp.From(this=marked))


def _over(
    name: str, value: exp.Expr, frame: str, keys: Sequence[exp.Expr], moment: exp.Expr
) -> exp.Expr:
    """A function over the rows of a RANGE; rows with the same time have the same result."""
    parts = {f"key{number}": key.copy() for number, key in enumerate(keys)}
    by = f"PARTITION BY {', '.join(parts)}" if parts else ""
    return filled(
        f"{name}(value) OVER ({by} ORDER BY moment NULLS FIRST RANGE BETWEEN {frame})",
        value=value.copy(), moment=moment.copy(), **parts,
    )  # fmt: skip


def _columns(
    start: exp.Expr, end: exp.Expr, time: exp.Expr, names: Sequence[str]
) -> list[exp.Expr]:
    last = exp.Anonymous(this=LAST_MOMENT, expressions=[_plus(end, -1), time.copy()])
    values = (cast(start.copy(), "TIMESTAMP_MS"), cast(end.copy(), "TIMESTAMP_MS"), last)
    return [exp.alias_(each, name, quoted=True) for each, name in zip(values, names, strict=True)]


def _of(time: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=WINDOWED_TIME, expressions=[time.copy()])


def _plus(moment: exp.Expr, millis: int) -> exp.Expr:
    return exp.Paren(this=exp.Add(this=moment.copy(), expression=_duration(millis)))


def _duration(millis: int) -> exp.Expr:
    return call("TO_MILLISECONDS", number(millis))
