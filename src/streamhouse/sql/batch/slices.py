"""Rewrites a SELECT that groups rows in windows to one that groups slices of time first.

Aggregates must combine: that of a window must follow from those of its slices. Sums of doubles do
not, since they depend on where they are cut.
"""

from collections.abc import Callable

from sqlglot import exp

from streamhouse.sql.expressions.binder import (
    BindError,
    Relations,
    describe,
    generate,
    is_aggregate_function,
)  # fmt: skip
from streamhouse.sql.functions.expression_builders import cast, column_of, number, when
from streamhouse.sql.parser.windowed_rows import SLICE
from streamhouse.sql.select_parts import conjuncts, group_expressions, sources, with_queries

_COMBINED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.Count: exp.Sum, exp.CountIf: exp.Sum, exp.Sum: exp.Sum, exp.Min: exp.Min, exp.Max: exp.Max,
    exp.LogicalAnd: exp.LogicalAnd, exp.LogicalOr: exp.LogicalOr,
}  # fmt: skip
"""Aggregates, and those that combine them."""
_EXACT = ("HUGEINT", "DECIMAL")
CLAUSES = ("expressions", "group", "having", "qualify", "order")
"""The clauses that read the groups of a SELECT."""


class NotSlicedError(Exception):
    """A SELECT must be computed from the rows of each window."""


class Slices:
    """The rewriting of one SELECT over an element of FROM with rows in windows."""

    def __init__(self, select: exp.Select, element: exp.Subquery) -> None:
        self._select, self._element = select, element
        self._rows: exp.Select = element.this
        # The windowed rows have the columns of the rows and those of the windows.
        self._windows = {
            item.alias for item in self._rows.selects if not isinstance(item.this, exp.Column)
        }
        self._keys: dict[exp.Expr, exp.Expr] = {}
        self._partial: dict[exp.Expr, exp.Expr] = {}
        """The keys of the slices, and the aggregates of each, with their columns."""

    def rewrite(self, relations: Relations) -> None:
        """Change the SELECT; `NotSlicedError`, without a change, if that is not possible."""
        for node in group_expressions(self._select.args["group"]):
            if isinstance(node, exp.Literal):
                continue
            if not self._reads_window(node):
                self._group_by(node)
            elif not self._reads_windows_only(node):
                raise NotSlicedError
        below, above = self._conditions()
        replaced = [
            (node, self._over_slices(node))
            for clause in CLAUSES
            for node in _nodes(self._select.args.get(clause))
        ]
        self._check(below)
        grouped = self._grouped(below)
        self._check_types(grouped, relations)
        for node, new in replaced:
            keeps_name = isinstance(node, exp.Column) and node.parent is self._select
            node.replace(exp.alias_(new, node.name, quoted=True) if keeps_name else new)
        self._set_rows(grouped, above)

    def _group_by(self, node: exp.Expr) -> None:
        """Let slices have a key of GROUP BY."""
        self._key(node)

    def _check(self, terms: list[exp.Expr]) -> None:
        """Raise `NotSlicedError` if rows that pass these terms have other windows."""

    def _slice(self) -> tuple[exp.Expr, dict[str, exp.Expr]]:
        """The slice of a row, and columns that the rows of each slice need for its windows."""
        return self._column(SLICE), {SLICE: self._column(SLICE)}

    def _windowed(self, grouped: exp.Select) -> exp.Select:
        """What the columns of windows are computed from."""
        return grouped

    def _reads_window(self, node: exp.Expr) -> bool:
        alias = self._element.alias_or_name
        return any(
            each.table == alias and each.name in self._windows for each in node.find_all(exp.Column)
        )

    def _reads_windows_only(self, node: exp.Expr) -> bool:
        return node.find(exp.Query) is None and all(
            self._reads_window(each) for each in node.find_all(exp.Column)
        )

    def _conditions(self) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """The terms of WHERE that rows must pass, and those that windows must pass."""
        joins = self._select.args.get("joins") or ()
        if any(map(self._reads_window, joins)):
            raise NotSlicedError
        terms = conjuncts(self._select.args.get("where"))
        above = [term for term in terms if self._reads_window(term)]
        if not all(map(self._reads_windows_only, above)):
            raise NotSlicedError
        return [term for term in terms if not self._reads_window(term)], above

    def _over_slices(self, node: exp.Expr) -> exp.Expr:
        """An expression of the SELECT over the slices of each window."""
        if node in self._keys:
            return self._keys[node].copy()
        if isinstance(node, exp.Query):
            raise NotSlicedError
        if isinstance(node, exp.Column):
            if node.table and not self._reads_window(node):
                raise NotSlicedError
            return node.copy()
        if not isinstance(node, exp.Window):
            if _is_aggregate(node):
                return self._combined(node)
            return _with_children(node, self._over_slices)
        # The function of a window is over groups; only its arguments can be aggregates.
        function = node.this
        new = _with_children(
            node, lambda each: each if each is function else self._over_slices(each)
        )
        new.set("this", _with_children(function, self._over_slices))
        return new

    def _combined(self, node: exp.Expr) -> exp.Expr:
        """An aggregate of a window from those of its slices."""
        condition, core = None, node
        if isinstance(node, exp.Filter):
            condition, core = node.expression.this, node.this
        if isinstance(core, exp.Grouping):
            return _with_children(node, self._over_slices)
        if core.args.get("expressions") or any(
            _is_aggregate(each) or isinstance(each, exp.Window | exp.Query)
            for child in node.iter_expressions() if child is not core
            for each in child.walk()
        ):  # fmt: skip
            raise NotSlicedError
        if isinstance(core.this, exp.Distinct):
            return self._of_distinct(core, condition)
        combine = _COMBINED.get(type(core))
        if combine is None:
            raise NotSlicedError
        column = self._column(f"_p{len(self._partial)}")
        combined = combine(this=self._partial.setdefault(node.copy(), column).copy())
        if not isinstance(core, exp.Count | exp.CountIf):
            return combined
        return cast(exp.Coalesce(this=combined, expressions=[number(0)]), "BIGINT")

    def _of_distinct(self, core: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
        """An aggregate of distinct values, which become keys of the slices."""
        values = core.this.expressions
        if (
            not isinstance(core, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max)
            or len(values) > 1
        ):
            raise NotSlicedError
        (value,) = values
        value = value.copy() if condition is None else when(condition.copy(), value.copy())
        return type(core)(this=exp.Distinct(expressions=[self._key(value)]))

    def _key(self, node: exp.Expr) -> exp.Expr:
        """The column of a key of the slices, which is added if there is none."""
        column = self._column(f"_k{len(self._keys)}")
        return self._keys.setdefault(node.copy(), column).copy()

    def _column(self, name: str) -> exp.Expr:
        return column_of(self._element.alias_or_name, name)

    def _grouped(self, terms: list[exp.Expr]) -> exp.Select:
        """The aggregates of each slice."""
        piece, columns = self._slice()
        items = [(node, column.name) for node, column in (self._keys | self._partial).items()]
        items += [(node, name) for name, node in columns.items()]
        grouped = exp.Select(
            expressions=[exp.alias_(node.copy(), name, quoted=True) for node, name in items],
            group=exp.Group(expressions=[*(node.copy() for node in self._keys), piece]),
        ).where(*terms)
        joins = self._select.args.get("joins") or []
        grouped.set("from_", self._select.args["from_"].copy())
        grouped.set("joins", [each.copy() for each in joins])
        alias = self._element.alias_or_name
        element = next(each for each in sources(grouped) if each.alias_or_name == alias)
        element.set("this", self._source().this.copy())
        return grouped

    def _source(self) -> exp.Subquery:
        """The rows with their slices."""
        found: exp.Subquery = self._rows.args["from_"].this
        return found

    def _check_types(self, grouped: exp.Select, relations: Relations) -> None:
        """Raise `NotSlicedError` unless all sums are exact."""
        described = grouped.copy()
        described.set("with_", with_queries(self._select))
        try:
            kinds = describe(generate(described), relations)
        except BindError:
            raise NotSlicedError from None
        sums = {
            column.name
            for node, column in self._partial.items()
            if isinstance(node.this if isinstance(node, exp.Filter) else node, exp.Sum)
        }
        if not all(str(kind).startswith(_EXACT) for name, kind in kinds if name in sums):
            raise NotSlicedError

    def _set_rows(self, grouped: exp.Select, terms: list[exp.Expr]) -> None:
        """Let the SELECT read windows of slices."""
        source = self._rows.args["from_"].this
        alias = source.alias_or_name
        columns = (*self._keys.values(), *self._partial.values())
        windows = [item for item in self._rows.selects if item.alias in self._windows]
        kept = (exp.alias_(column_of(alias, each.name), each.name, quoted=True) for each in columns)
        source.set("this", self._windowed(grouped))
        self._rows.set("expressions", [*kept, *windows])
        self._select.set("from_", exp.From(this=self._element))
        self._select.set("joins", None)
        self._select.set("where", None)
        self._select.where(*terms, copy=False)


def _is_aggregate(node: exp.Expr) -> bool:
    core = node.this if isinstance(node, exp.Filter | exp.WithinGroup) else node
    return is_aggregate_function(core)


def _with_children(node: exp.Expr, new: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A copy of a node with others in place of its children."""
    made = node.copy()
    for old, child in zip(
        list(node.iter_expressions()), list(made.iter_expressions()), strict=True
    ):
        child.replace(new(old))
    return made


def _nodes(clause: object) -> list[exp.Expr]:
    return clause if isinstance(clause, list) else [clause] if isinstance(clause, exp.Expr) else []
