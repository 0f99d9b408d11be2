"""Group windows: `GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)`, and TUMBLE_START and the like.

The table with the time gets the columns of the windows, and GROUP BY names them.
"""

from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import find_all_in_scope

from streamhouse.sql.expressions import intervals
from streamhouse.sql.functions.expression_builders import Args, column_of, quoted
from streamhouse.sql.parser.windowed_rows import Window, duration_error, windowed
from streamhouse.sql.select_parts import sources
from streamhouse.sql.text import Script, place

_KINDS = ("TUMBLE", "HOP", "SESSION")
_COLUMNS = {"START": "window$start", "END": "window$end", "ROWTIME": "window$time"}
"""The auxiliary functions, and the columns that they name."""


class GroupWindow(exp.Expression):
    """A call of a group window, or of an auxiliary function of one; `this` is its name."""

    arg_types = {"this": True, "expressions": True}


def _builder(name: str) -> Callable[[Args], exp.Expr]:
    return lambda args: GroupWindow(this=name, expressions=args)


GROUP_WINDOWS = {
    name: _builder(name)
    for kind in _KINDS
    for name in (kind, *(f"{kind}_{part}" for part in (*_COLUMNS, "PROCTIME")))
}
"""Builders of the calls, by name."""


def rewrite(script: Script, tree: exp.Expr) -> None:
    """Replace all group windows; raises `SqlError` for calls that none defines."""
    for select in list(tree.find_all(exp.Select)):
        calls = list(find_all_in_scope(select, GroupWindow))
        windows = [call for call in calls if call.name in _KINDS]
        if windows:
            _rewrite(script, select, windows[0], calls)
    for call in tree.find_all(GroupWindow):
        kind = call.name.partition("_")[0]
        message = f"{call.name} belongs to GROUP BY {kind}(…) of the same query; group by it"
        raise script.error_at(call, message)


def _rewrite(
    script: Script, select: exp.Select, window: GroupWindow, calls: list[GroupWindow]
) -> None:
    group = select.args.get("group")
    if group is None or not any(window is each for each in group.expressions):
        message = f"{window.name} as a function is a term of GROUP BY; write it there"
        raise script.error_at(window, message)
    spec, time = _window(script, window), window.expressions[0]
    element = _element(script, select, window)
    columns = dict[str, exp.Column]()
    for name in _COLUMNS.values():
        columns[name] = column_of(element.alias_or_name, name)
        columns[name].this.meta.update(place(window))
    keys = [each for each in group.expressions if each is not window]
    if window.name == "SESSION":
        _check_keys(script, keys)
    named = {id(call): _column(script, call, window) for call in calls}
    # The start of a window is a key; of its other columns those that are read, too. A watermark
    # closes sessions by their ends.
    always = ("START", "END") if window.name == "SESSION" else ("START",)
    read = dict.fromkeys([*(_COLUMNS[part] for part in always), *named.values()])
    group.set("expressions", [*keys, *(columns[name].copy() for name in read)])
    for call in calls:
        if call is not window:
            _replace(call, columns[named[id(call)]].copy())
    rows = exp.Subquery(alias=exp.TableAlias(this=quoted(element.alias_or_name)))
    rows.meta.update(place(window))
    element.replace(rows)
    where = select.args.get("where") if window.name == "SESSION" else None
    if where is not None:
        # Other rows are in no session.
        select.set("where", None)
    elif len(sources(select)) > 1:
        start = columns[_COLUMNS["START"]].copy()
        select.where(exp.Not(this=exp.Is(this=start, expression=exp.Null())), copy=False)
    condition = None if where is None else where.this
    rows.set("this", windowed(spec, element, time, keys, condition, tuple(columns)))


def _check_keys(script: Script, keys: Sequence[exp.Expr]) -> None:
    """Raise for keys of GROUP BY that cannot divide the rows of sessions."""
    for key in keys:
        if isinstance(key.unnest(), exp.Literal | exp.GroupingSets | exp.Rollup | exp.Cube):
            message = "SESSION in GROUP BY takes columns and expressions beside it; write them out"
            raise script.unsupported(key, message)


def _window(script: Script, call: GroupWindow) -> Window:
    lengths = [intervals.milliseconds(each) for each in call.expressions[1:]]
    count = 2 if call.name == "HOP" else 1
    if len(lengths) != count or not isinstance(call.expressions[0], exp.Column):
        takes = "a column, its slide and its size" if count > 1 else "a column and one duration"
        raise script.error_at(call, f"{call.name} in GROUP BY takes {takes}")
    if None in lengths:
        raise script.error_at(call, duration_error(call.name))
    durations = [length for length in lengths if length is not None]
    window = Window(call.name, durations[-1], durations[0] if count > 1 else 0)
    if (error := window.error()) is not None:
        raise script.error_at(call, error)
    return window


def _element(script: Script, select: exp.Select, window: GroupWindow) -> exp.Expr:
    """The element of FROM that has the column of the time."""
    elements = sources(select)
    owner = window.expressions[0].table
    found = [each for each in elements if not owner or each.alias_or_name == owner]
    joined = len(elements) > 1
    if (
        len(found) != 1
        or not isinstance(found[0], exp.Table | exp.Subquery)
        or (joined and (window.name == "SESSION" or not owner))
    ):
        message = (
            f"the table of the time is unknown here; write {window.name} as a table function: "
            f"FROM {window.name}(TABLE t, DESCRIPTOR(ts), …)"
        )
        raise script.unsupported(window, message)
    if not found[0].alias_or_name:
        found[0].set("alias", exp.TableAlias(this=quoted("_data")))
    return found[0]


def _column(script: Script, call: GroupWindow, window: GroupWindow) -> str:
    """The column that a call names; raises for another window than that of GROUP BY."""
    if call is window:
        return _COLUMNS["START"]
    kind, _, part = call.name.partition("_")
    if kind != window.name or call.expressions != window.expressions:
        message = f"{call.name} is of another window than that of GROUP BY; give both equal values"
        raise script.error_at(call, message)
    if part not in _COLUMNS:
        message = (
            f"{call.name} of a time column is not supported; write {kind}_ROWTIME, or leave it out"
            if part
            else f"{call.name} occurs twice; write {kind}_START for its start"
        )
        raise script.unsupported(call, message)
    return _COLUMNS[part]


def _replace(call: exp.Expr, column: exp.Expr) -> None:
    """Replace a call by a column, which keeps the name of an expression."""
    parent = call.parent
    if isinstance(parent, exp.Select) and call.arg_key == "expressions":
        call.replace(exp.Alias(this=column, alias=quoted(f"EXPR${call.index}")))
    else:
        call.replace(column)
