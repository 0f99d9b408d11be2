"""Joins with one row as of a time: `FOR SYSTEM_TIME AS OF o.ts`, and `ASOF JOIN`.

Each becomes a plain join: rows of the right side get the time at which the next one of their key
replaces them, and a left row meets those between whose times it is. So a row that comes late
corrects what was joined before, and the delta form is that of OVER and of joins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.optimizer.simplify import Simplifier

from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions.expression_builders import cast, column_of, number
from streamhouse.sql.parser.windowed_rows import MOMENTS, VERSIONS, WINDOWED, Window
from streamhouse.sql.resolution.as_of_clause import JOINED_AS_OF
from streamhouse.sql.resolution.visible_columns import visible_in
from streamhouse.sql.select_parts import conjuncts, derived, over, rows_of, sources
from streamhouse.sql.text import Script

NEAREST = "nearest"
"""Key in the `meta` of a term of a join: the names of right columns. If there are some, and
equalities of all of them, a left row has one match at most."""
_GAPS = "gaps"
"""Key in the `meta` of such a term: whether there are times between two rows at which none is."""
_FROM, _UNTIL = "time$from", "time$until"
"""The columns of the times between which a row is the newest of its key."""
FLIPPED = Simplifier.INVERSE_COMPARISONS
"""A comparison with its sides exchanged."""
_BEFORE_NEXT: Mapping[Any, type[exp.Expr]] = Simplifier.COMPLEMENT_COMPARISONS
"""How a left time compares with that of the next row, by how it does with that of its own."""
_UNVERSIONED = (
    "FOR SYSTEM_TIME AS OF a stored time needs all versions of the rows, and '{}' has none that "
    "can be read; join a view with the newest row of each key of a table that only grows: SELECT "
    "… FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY key ORDER BY time DESC) AS n FROM history) "
    "WHERE n = 1"
)


def rewrite(script: Script, tree: exp.Expr, relations: Relations) -> None:
    """Rewrite all such joins of a query whose columns are resolved."""
    for join in list(tree.find_all(exp.Join)):
        mark = _mark(join)
        if mark is not None:
            _join_versions(script, join, mark)
        elif join.method.upper() == "ASOF":
            _join_nearest(script, join, relations)


def wait(tree: exp.Query) -> None:
    """Let such joins read moments and versions, which a watermark closes as it does windows.

    Both sides must be tables, the right one below the view of its versions.
    """
    for join in list(tree.find_all(exp.Join)):
        mark, select = _mark(join), join.parent
        versions = _Versions.of(join.this)
        if mark is None or versions is None or not isinstance(select, exp.Select):
            continue
        time, history = mark.expressions[0], versions.inner.args["from_"].this
        for element in sources(select):
            if element.alias_or_name == time.table and isinstance(element, exp.Table):
                element.replace(_at_times(element, time, MOMENTS))
        own = [each.this for each in sources(select) if each.alias_or_name == time.table]
        of_time = any(WINDOWED in each.meta and each.meta[WINDOWED].at == time.name for each in own)
        if of_time and isinstance(history, exp.Table):
            since = versions.item.this.args["order"].expressions[0].this
            history.replace(_at_times(history, since, VERSIONS))


def _at_times(table: exp.Table, time: exp.Expr, kind: str) -> exp.Subquery:
    """The rows of a table in windows that each have the rows of one time."""
    select = rows_of(table.copy())
    select.meta[WINDOWED] = Window(kind, 1, at=time.name)
    return derived(select, table.alias_or_name)


def _mark(join: exp.Join) -> exp.Anonymous | None:
    """The term of ON with the time as of which a join reads versions."""
    on = join.args.get("on")
    calls = () if on is None else on.find_all(exp.Anonymous)
    own = (each for each in calls if each.find_ancestor(exp.Join) is join)
    return next((each for each in own if each.name == JOINED_AS_OF), None)


def _join_versions(script: Script, join: exp.Join, mark: exp.Anonymous) -> None:
    """Join a view of the newest row of each key as of a time."""
    alias, time = join.this.alias_or_name, mark.expressions[0]
    versions = _Versions.of(join.this)
    if versions is None:
        raise script.unsupported(join.this, _UNVERSIONED.format(alias))
    versions.show_times()
    matched = _between(time, exp.GTE, alias, versions.keys(alias))
    for term in matched.find_all(exp.Or):
        term.meta[_GAPS] = bool(versions.conditions)
    mark.replace(matched)


@dataclass(frozen=True)
class _Versions:
    """A subquery of the rows that have the number 1, the `item`, from the last time on.

    `conditions` are those that its rows meet besides: of a version that does not there is no row.
    """

    outer: exp.Select
    inner: exp.Select
    item: exp.Expr
    conditions: Sequence[exp.Expr]

    @classmethod
    def of(cls, element: exp.Expr) -> Self | None:
        """The parts of such a subquery; None for any other element of FROM."""
        outer = element.this if isinstance(element, exp.Subquery) else None
        if not isinstance(outer, exp.Select) or not _reads_one(outer):
            return None
        source = outer.args["from_"].this
        inner = source.this if isinstance(source, exp.Subquery) else None
        if not isinstance(inner, exp.Select):
            return None
        terms = conjuncts(outer.args.get("where"))
        for term in terms:
            test = term.unnest()
            if isinstance(test, exp.EQ | exp.LTE) and test.expression == exp.Literal.number(1):
                for item in inner.selects:
                    named = isinstance(item, exp.Alias) and item.alias == test.this.name
                    if named and _numbers_down(item.this):
                        others = [each for each in terms if each is not term]
                        return cls(outer, inner, item, others)
        return None

    def keys(self, alias: str) -> list[exp.Expr]:
        """The columns, under an alias, that differ between keys; empty if some are not there."""
        known = {item.alias_or_name: item.unalias() for item in self.inner.selects}
        found = []
        for key in self.item.this.args.get("partition_by") or ():
            shown = (item.alias for item in self.outer.selects if known.get(item.this.name) == key)
            found.append(next(shown, ""))
        return [column_of(alias, name) for name in found] if all(found) else []

    def show_times(self) -> None:
        """Let the subquery have all rows, each with the times between which it is the newest."""
        window = self.item.this
        time = window.args["order"].expressions[0].this
        until = window.copy()
        # Of rows with one time it is the one that has the number 1 in the end.
        until.set("this", exp.Lag(this=time.copy()))
        for value, name in ((until, _UNTIL), (time.copy(), _FROM)):
            self.inner.append("expressions", exp.alias_(value, name, quoted=True))
        self.inner.set("qualify", _without_ties(until, time))
        # The newest row as of a time has the number 1.
        window.replace(cast(number(1), "BIGINT"))
        self.inner.where(exp.Not(this=exp.Is(this=time.copy(), expression=exp.Null())), copy=False)
        source = self.outer.args["from_"].this.alias_or_name
        for name in (_FROM, _UNTIL):
            column = column_of(source, name)
            self.outer.append("expressions", exp.alias_(column, name, quoted=True))
        self.outer.set("where", None)
        self.outer.where(*self.conditions, copy=False)


def _reads_one(select: exp.Select) -> bool:
    """Whether a SELECT reads one relation, without any clause but WHERE."""
    clauses = {key for key, value in select.args.items() if value}
    return "from_" in clauses and clauses <= {"expressions", "from_", "where"}


def _numbers_down(node: exp.Expr) -> bool:
    """Whether a window function numbers the rows of a partition from the last time on."""
    if not isinstance(node, exp.Window) or not isinstance(node.this, exp.RowNumber):
        return False
    order = node.args.get("order")
    return order is not None and bool(order.expressions[0].args.get("desc"))


def _join_nearest(script: Script, join: exp.Join, relations: Relations) -> None:
    """ASOF JOIN: the right row with equal keys whose time is the nearest on one side."""
    alias, condition = join.this.alias_or_name, join.args.get("match_condition")
    terms = conjuncts(join.args.get("on"))
    tests: list[exp.Expr] = [condition] if condition is not None else [
        term for term in terms if isinstance(term, tuple(FLIPPED))
    ]  # fmt: skip
    equal = [term for term in terms if not any(term is each for each in tests)]
    keys = [_right_side(term, alias) for term in equal if isinstance(term, exp.EQ)]
    test: exp.Expr | None = tests[0].unnest() if len(tests) == 1 else None
    time = _right_side(test, alias) if isinstance(test, tuple(FLIPPED)) else None
    if time is None or None in keys or len(keys) < len(equal) or join.side not in ("", "LEFT"):
        message = (
            "an ASOF JOIN is JOIN or LEFT JOIN with one comparison of times (<, <=, >, >=) and "
            "equalities, each of a column of either side; write other conditions in WHERE"
        )
        raise script.unsupported(join.this, message)
    assert test is not None
    kind = type(test) if time is test.expression else FLIPPED[type(test)]
    left = test.this if time is test.expression else test.expression
    by = [key for key in keys if key is not None]
    rows = _with_next(join.this, by, time, kind in (exp.GT, exp.GTE), relations)
    matched = _between(left, kind, alias, by)
    join.set("on", exp.and_(*(each.copy() for each in equal), matched))
    join.this.replace(rows)
    if condition is not None:
        join.set("side", "LEFT")
    join.set("match_condition", None)
    join.set("method", None)


def _right_side(test: exp.Expr | None, alias: str) -> exp.Expr | None:
    """The side of a comparison that reads the relation `alias` alone; None if there is none."""
    if test is None or test.find(exp.Query):
        return None
    sides: list[exp.Expr] = [test.this, test.expression]
    read = [{column.table for column in side.find_all(exp.Column)} for side in sides]
    found = (side for side, own in zip(sides, read, strict=True) if own == {alias})
    return next(found, None) if sum(alias in own for own in read) == 1 else None


def _with_next(
    element: exp.Expr, by: Sequence[exp.Expr], time: exp.Expr, ascending: bool, relations: Relations
) -> exp.Subquery:
    """An element of FROM with the time of each row, and that of the next one of its keys."""
    alias = element.alias_or_name
    until = over(exp.Lead(this=time.copy()), by, [exp.Ordered(this=time, desc=not ascending)])
    items = [
        exp.alias_(column_of(alias, name), name, quoted=True)
        for name in _columns(element, relations)
    ]
    items += [
        exp.alias_(time.copy(), _FROM, quoted=True), exp.alias_(until, _UNTIL, quoted=True)
    ]  # fmt: skip
    present = exp.Not(this=exp.Is(this=time.copy(), expression=exp.Null()))
    select = exp.Select(
        expressions=items, from_=exp.From(this=element.copy()), where=exp.Where(this=present),
        qualify=_without_ties(until, time),
    )  # fmt: skip
    return derived(select, alias)


def _without_ties(until: exp.Expr, time: exp.Expr) -> exp.Qualify:
    """The condition that no other row replaces a row at its own time."""
    return exp.Qualify(this=exp.NullSafeNEQ(this=until.copy(), expression=time.copy()))


def _columns(element: exp.Expr, relations: Relations) -> list[str]:
    """The names of the columns of an element of FROM."""
    select = element.find_ancestor(exp.Select)
    (scope,) = (each for each in traverse_scope(element.root()) if each.expression is select)
    return visible_in(scope, relations)[element.alias_or_name] or []


def in_duckdb(tree: exp.Query) -> exp.Query:
    """A query in DuckDB's terms, with its ASOF JOIN instead of such plain joins.

    It sorts both sides; a plain join would compare each row with all of its key.
    """
    if not any(each.meta.get(NEAREST) is not None for each in tree.find_all(exp.Or)):
        return tree
    made = tree.copy()
    for join in made.find_all(exp.Join):
        terms = conjuncts(join.args.get("on"))
        rest = [term for term in terms if NEAREST not in term.meta or term.meta.get(_GAPS)]
        times = [term for term in rest if not isinstance(term, exp.EQ)]
        if len(rest) < len(terms) and len(times) == 1 and isinstance(times[0], tuple(FLIPPED)):
            join.set("on", exp.and_(*rest))
            join.set("method", "ASOF")
    return made


def _between(
    time: exp.Expr, kind: type[exp.Expr], alias: str, keys: Sequence[exp.Expr]
) -> exp.Expr:
    """The condition that a left time meets a row, and none of its key that is nearer."""
    own, until = (column_of(alias, name) for name in (_FROM, _UNTIL))
    last = exp.Is(this=until.copy(), expression=exp.Null())
    before = _BEFORE_NEXT[kind](this=time.copy(), expression=until)
    either = exp.or_(last, before)
    columns = [(key.table, key.name) for key in keys if isinstance(key, exp.Column)]
    either.meta[NEAREST] = columns if len(columns) == len(keys) else []
    return exp.and_(kind(this=time.copy(), expression=own), exp.Paren(this=either))
