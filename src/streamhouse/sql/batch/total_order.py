"""Ends orders by all columns that a query uses, so that its result depends on its rows alone.

Rows that are alike in ORDER BY have no order of their own: ROW_NUMBER and LIMIT would take them as
they come. Rows that are alike in all used columns give the same result in any order, if only one
function tells them apart. Several functions take them in one order.
"""

from collections.abc import Mapping, Sequence
from itertools import count

from sqlglot import exp

from streamhouse.sql.functions.expression_builders import column_of, quoted
from streamhouse.sql.select_parts import aliases, derived, over, sources

_TOTAL = "total_order"
_COPY = "_copy"
"""The column with the numbers of rows that are alike."""
_ROUNDED = (
    exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.CovarPop,
    exp.CovarSamp, exp.Corr, exp.RegrSlope, exp.RegrIntercept, exp.RegrR2, exp.RegrSxx,
    exp.RegrSyy, exp.RegrSxy, exp.RegrAvgx, exp.RegrAvgy, exp.Skewness, exp.Kurtosis,
)  # fmt: skip
"""Aggregates whose last digits depend on the order in which they take their values."""
_NUMBERS = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead)
"""Functions of OVER that tell rows apart that are alike in ORDER BY, whatever the frame."""
_PLACES = (exp.FirstValue, exp.LastValue, exp.NthValue)
"""Functions of OVER that take one row of the frame; they have an order of their own."""


def complete(
    tree: exp.Query, always: bool = False, keys: Mapping[str, Sequence[str]] | None = None
) -> None:
    """End the orders of window functions and of LIMIT; `always`: also of LIMIT without ORDER BY.

    `keys` has the columns of the primary keys of tables.
    """
    for node in list(tree.find_all(exp.AggFunc)):
        _values(node)
    for query in list(tree.find_all(exp.Query)):
        if isinstance(query, exp.Select):
            _windows(query, keys or {})
        if query.args.get("limit") or query.args.get("offset"):
            _limit(query, always)


def is_total(node: exp.Expr) -> bool:
    """Whether the order of a window function, or of a query with LIMIT, leaves no ties."""
    return bool(node.meta.get(_TOTAL))


def _values(node: exp.AggFunc) -> None:
    """End the order in which an aggregate takes its values by these values."""
    arguments, group = list(node.iter_expressions()), node.parent
    orders = (each for each in arguments if isinstance(each, exp.Order))
    order: exp.Order | None = next(orders, None)
    if isinstance(group, exp.WithinGroup):
        order = group.expression
    elif order is None and isinstance(node, _ROUNDED):
        if not node.find(exp.Column):
            node.meta[_TOTAL] = True
            return
        order = exp.Order(this=arguments[-1].copy())
        arguments[-1].replace(order)
    if order is None:
        return
    known = [each.this for each in order.expressions]
    values = [each.this if isinstance(each, exp.Order) else each for each in arguments]
    values = [each.expressions[0] if isinstance(each, exp.Distinct) else each for each in values]
    ends = [each for each in values if each not in known and each.find(exp.Column)]
    order.set("expressions", _ended(order, ends).expressions)
    node.meta[_TOTAL] = True


def in_rows(window: exp.Window) -> bool:
    """Whether the frame of a window function counts rows."""
    spec = window.args.get("spec")
    return spec is not None and str(spec.args.get("kind")).upper() == "ROWS"


def _limit(query: exp.Query, always: bool) -> None:
    names = [each.alias_or_name for each in query.selects]
    order = query.args.get("order")
    if (order is None and not always) or len({*map(str.lower, names)}) < len(names):
        return
    terms = [each.this for each in order.expressions] if order else []
    known = {each.name for each in terms if isinstance(each, exp.Column) and not each.table}
    ends = [exp.column(quoted(name)) for name in names if name not in known]
    query.set("order", _ended(order, ends))
    query.meta[_TOTAL] = True


def _windows(select: exp.Select, keys: Mapping[str, Sequence[str]]) -> None:
    windows = [
        window
        for window in select.find_all(exp.Window)
        if window.find_ancestor(exp.Query) is select
        and (_tells_rows_apart(window) or isinstance(_function(window), _PLACES))
    ]
    used = _used(select) if windows else None
    several = len({window.sql() for window in windows if _tells_rows_apart(window)}) > 1
    if used and several:
        used = _told_apart(select, used, keys)
    for window in windows if used is not None else ():
        order = window.args.get("order")
        known = [each.this for each in order.expressions] if order else []
        ended = _ended(order, [each for each in used or () if each not in known])
        function = _function(window)
        if not ended.expressions:
            # All rows are alike, but several functions must take them in the same order.
            window.meta[_TOTAL] = not several
            continue
        if _tells_rows_apart(window):
            window.set("order", ended)
        else:
            # An order follows the last argument.
            last = "offset" if isinstance(function, exp.NthValue) else "this"
            total = exp.Order(this=function.args[last], expressions=ended.expressions)
            function.set(last, total)
            function.meta[_TOTAL] = True
        window.meta[_TOTAL] = True


def _told_apart(
    select: exp.Select, used: list[exp.Expr], keys: Mapping[str, Sequence[str]]
) -> list[exp.Expr]:
    """Columns that no two rows before OVER have alike: those used, and the keys of the tables.

    Without keys, a subquery numbers the rows that are alike.
    """
    relations = sources(select)
    if select.args.get("group") is not None:
        return used
    plain = all(isinstance(each, exp.Table) and not each.args.get("joins") for each in relations)
    if plain and all(keys.get(each.name) for each in relations):
        named = [(each.alias_or_name, name) for each in relations for name in keys[each.name]]
        ends = [column_of(alias, name) for alias, name in named]
        return [*used, *(each for each in ends if each not in used)]
    taken = {each.alias_or_name for each in select.root().find_all(exp.Table, exp.Subquery)}
    alias = next(name for n in count() if (name := f"_rows{n}") not in taken)
    names: dict[exp.Expr, str] = {}
    for n, column in enumerate(used):
        known = [name.lower() for name in (*names.values(), _COPY)]
        names[column] = f"{column.name}_{n}" if column.name.lower() in known else column.name
    number = over(exp.RowNumber(), used)
    number.meta[_TOTAL] = True
    items = [exp.alias_(column.copy(), name, quoted=True) for column, name in names.items()]
    inner = exp.Select(expressions=[*items, exp.alias_(number, _COPY, quoted=True)])
    for clause in ("from_", "joins", "laterals", "where"):
        inner.set(clause, select.args.get(clause))
        select.set(clause, None)
    for item in list(select.selects):
        if isinstance(item, exp.Column):
            item.replace(exp.alias_(item.copy(), item.name, quoted=True))
    for column in list(select.find_all(exp.Column)):
        if column in names:
            new = column_of(alias, names[column])
            new.meta.update(column.meta)
            column.replace(new)
    select.set("from_", exp.From(this=derived(inner, alias)))
    return [column_of(alias, name) for name in (*names.values(), _COPY)]


def _tells_rows_apart(window: exp.Window) -> bool:
    return in_rows(window) or isinstance(_function(window), _NUMBERS)


def _function(window: exp.Window) -> exp.Expr:
    wrapped = isinstance(window.this, exp.IgnoreNulls | exp.RespectNulls)
    function: exp.Expr = window.this.this if wrapped else window.this
    return function


def _ended(order: exp.Order | None, ends: Sequence[exp.Expr]) -> exp.Order:
    terms = [*(order.expressions if order else ()), *(exp.Ordered(this=end.copy()) for end in ends)]
    return exp.Order(expressions=terms)


def _used(select: exp.Select) -> list[exp.Expr] | None:
    """The columns of the rows before OVER that the result depends on; None if they are unknown."""
    group = select.args.get("group")
    if group is not None:
        sets = any(group.args.get(kind) for kind in ("rollup", "cube", "grouping_sets"))
        return None if sets else list(group.expressions)
    own_aggregates = (a for a in select.find_all(exp.AggFunc) if a.parent_select is select)
    if any(each.find_ancestor(exp.Window) is None for each in own_aggregates):
        return []
    own, derived_tables = aliases(select), sources(select)
    inside = {
        id(column)
        for each in derived_tables
        if not isinstance(each, exp.Unnest)
        for column in each.find_all(exp.Column)
    }
    found: dict[str, exp.Expr] = {}
    for column in select.find_all(exp.Column):
        if column.table not in own or id(column) in inside:
            continue
        inner = column.find_ancestor(exp.Select)
        while inner is not None and inner is not select:
            if own & aliases(inner):
                return None
            inner = inner.find_ancestor(exp.Select)
        found.setdefault(column.sql(), column)
    return list(found.values())
