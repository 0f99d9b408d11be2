"""Groups slices of time before the windows of HOP, CUMULATE and SESSION.

A row is in many windows of HOP and CUMULATE, but in one slice. So rows are grouped once, and there
are far fewer slices to be unnested than rows. Rows of one key in a piece of time of the length of a
gap are in one session, so sessions follow from the first and last times of these pieces.
"""

from collections.abc import Iterator

from sqlglot import exp

from streamhouse.sql.batch.slices import CLAUSES, NotSlicedError, Slices
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions.expression_builders import call, cast, column_of, number, when
from streamhouse.sql.parser.windowed_rows import FIRST, LAST, SLICE, WINDOWED, Window
from streamhouse.sql.select_parts import derived, over, sources

_OTHERS = ("from_", "joins", "where", "with_", "distinct", "limit", "offset")
_SETS = ("grouping_sets", "rollup", "cube")
_PIECE, _LATEST = "window$piece", "window$latest"


def aggregate_slices(tree: exp.Expr, relations: Relations) -> None:
    """Rewrite each SELECT of a query in DuckDB's terms that groups rows in such windows."""
    for select in list(tree.find_all(exp.Select)):
        element = _windowed(select)
        if element is not None:
            try:
                is_session = element.this.meta[WINDOWED].kind == "SESSION"
                kind = _SessionSlices if is_session else Slices
                kind(select, element).rewrite(relations)
            except NotSlicedError:
                continue


def without_ends(tree: exp.Query) -> exp.Query:
    """A query in DuckDB's terms that groups windows of TUMBLE by their starts alone.

    A group by starts and ends takes nearly twice as long.
    """
    if not any(_grouped_windows(tree)):
        return tree
    made = tree.copy()
    for select, alias, window, (first, last) in list(_grouped_windows(made)):
        end = exp.Paren(
            this=exp.Add(this=first.copy(), expression=call("TO_MILLISECONDS", number(window.size)))
        )
        name = last.name
        last.pop()
        clauses = (select.args.get(key) for key in ("having", "order", "qualify"))
        for part in [*select.selects, *filter(None, clauses)]:
            for column in list(part.find_all(exp.Column)):
                if _is_of(column, alias) and column.name == name:
                    column.replace(cast(end.copy(), "TIMESTAMP_MS"))
    return made


def _grouped_windows(
    tree: exp.Expr,
) -> Iterator[tuple[exp.Select, str, Window, tuple[exp.Expr, exp.Expr]]]:
    """The SELECTs with a start and an end of TUMBLE in GROUP BY, and these two."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if group is None or any(group.args.get(key) for key in _SETS):
            continue
        for element in sources(select):
            window = element.this.meta.get(WINDOWED) if isinstance(element, exp.Subquery) else None
            if window is not None and window.kind == "TUMBLE":
                alias = element.alias
                named = {key.name: key for key in group.expressions if _is_of(key, alias)}
                for pair in (("window_start", "window_end"), ("window$start", "window$end")):
                    if named.keys() >= {*pair}:
                        yield select, alias, window, (named[pair[0]], named[pair[1]])


def _is_sliced(query: exp.Expr) -> bool:
    return WINDOWED in query.meta and query.meta[WINDOWED].sliced


def _is_of(node: exp.Expr, alias: str) -> bool:
    return isinstance(node, exp.Column) and node.table == alias


def _windowed(select: exp.Select) -> exp.Subquery | None:
    """The one element of FROM with rows in several windows, whose unnesting may come last."""
    found = [
        each for each in sources(select) if isinstance(each, exp.Subquery) and _is_sliced(each.this)
    ]
    others = {key for key, value in select.args.items() if value} - {*CLAUSES, *_OTHERS}
    if len(found) != 1 or others or not select.args.get("group"):
        return None
    joins = select.args.get("joins") or []
    number = next((n for n, join in enumerate(joins) if join.this is found[0]), -1)
    outer = any(join.side in ("RIGHT", "FULL") for join in joins[number + 1 :])
    own = joins[number] if number >= 0 else exp.Join()
    return None if outer or own.side or own.kind not in ("", "INNER", "CROSS") else found[0]


class _SessionSlices(Slices):
    """The rewriting of a SELECT that groups sessions by the keys that divide their rows."""

    def __init__(self, select: exp.Select, element: exp.Subquery) -> None:
        super().__init__(select, element)
        marked = self._rows.args["from_"].this.this
        window = marked.find(exp.Window)
        self._divided: list[exp.Expr] = window.args.get("partition_by") or []
        if not all(isinstance(each, exp.Column) for each in self._divided):
            raise NotSlicedError
        for each in self._divided:
            self._key(self._column(each.name))
        self._gap = call("TO_MILLISECONDS", number(element.this.meta[WINDOWED].size))

    def _group_by(self, node: exp.Expr) -> None:
        if node not in self._keys:
            raise NotSlicedError

    def _check(self, terms: list[exp.Expr]) -> None:
        # Sessions are those of all rows; rows of other keys are between those of a session.
        if terms or self._select.args.get("joins") or len(self._keys) > len(self._divided):
            raise NotSlicedError

    def _slice(self) -> tuple[exp.Expr, dict[str, exp.Expr]]:
        time = self._column(SLICE)
        piece = call("TIME_BUCKET", self._gap.copy(), cast(time.copy(), "TIMESTAMP"))
        first, last = exp.Min(this=time.copy()), exp.Max(this=time.copy())
        return piece.copy(), {_PIECE: piece, SLICE: first, _LATEST: last}

    def _source(self) -> exp.Subquery:
        found: exp.Subquery = super()._source().this.args["from_"].this
        return found

    def _windowed(self, grouped: exp.Select) -> exp.Select:
        """The pieces with the first and last times of sessions; the windows are divided by keys."""
        alias = super()._source().alias_or_name

        def own(name: str) -> exp.Expr:
            return column_of(alias, name)

        def beside(function: type[exp.Expr], name: str) -> exp.Expr:
            by = [own(column.name) for column in self._keys.values()]
            return over(function(this=_moment(own(name))), by, [exp.Ordered(this=own(_PIECE))])

        first, last = _moment(own(SLICE)), _moment(own(_LATEST))
        earliest = exp.Sub(this=first.copy(), expression=self._gap.copy())
        latest = exp.Add(this=last.copy(), expression=self._gap.copy())
        goes_on = exp.GTE(this=beside(exp.Lag, _LATEST), expression=earliest)
        ends_later = exp.LTE(this=beside(exp.Lead, SLICE), expression=latest)
        marks = {
            FIRST: when(goes_on, exp.Null(), first), LAST: when(ends_later, exp.Null(), last)
        }  # fmt: skip
        items = [exp.alias_(own(each.alias), each.alias, quoted=True) for each in grouped.selects]
        items += [exp.alias_(value, name, quoted=True) for name, value in marks.items()]
        for window in self._rows.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is self._rows:
                columns = [own(column.name) for column in self._keys.values()]
                window.set("partition_by", columns)
        return exp.Select(expressions=items, from_=exp.From(this=derived(grouped, alias)))


def _moment(time: exp.Expr) -> exp.Expr:
    return cast(time, "TIMESTAMP")
