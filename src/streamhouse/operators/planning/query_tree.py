"""Builds the tree of operators of a resolved query.

What no operator expresses becomes a `QueryBlock`: the smallest query around it, computed as a whole
from the operators below. So each tree gives the rows of its query.
"""

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from streamhouse.operators.distinct import Distinct
from streamhouse.operators.operator import Key, Operator
from streamhouse.operators.planning.correlation import with_all
from streamhouse.operators.planning.from_clause import FromClause
from streamhouse.operators.planning.pruning import pruned
from streamhouse.operators.planning.rows import (
    NotExpressedError,
    Rows,
    Sources,
    check_args,
    checked,
    item,
    passing,
    reference,
)  # fmt: skip
from streamhouse.operators.planning.select_list import (
    Grouping,
    aggregates_in,
    grouping_sets,
    limited,
    with_windows,
)
from streamhouse.operators.planning.subqueries import Subqueries
from streamhouse.operators.project import Item, Project
from streamhouse.operators.query_block import QueryBlock
from streamhouse.operators.set_operation import SetKind, SetOperation
from streamhouse.sql.expressions.binder import generate
from streamhouse.sql.parser.matched_rows import INPUT, MATCHED
from streamhouse.sql.plan import BoundedScan
from streamhouse.sql.select_parts import conjuncts, with_expressions

_SELECT_ARGS = (
    "expressions", "from_", "joins", "where", "group", "having", "qualify", "distinct", "order",
    "limit", "offset", "with_",
)  # fmt: skip
_SET_ARGS = ("this", "expression", "distinct", "order", "limit", "offset", "with_")


def tree_of(tree: exp.Query, scans: Iterable[BoundedScan]) -> Operator:
    """The tree of a query in DuckDB's terms, over the relations of its scans.

    Its operators have only the columns that are read, so that a column PROCTIME() that nothing
    reads does not make it depend on the time.
    """
    sources = Sources({scan.relation: scan for scan in scans}, {}, _built)
    try:
        return pruned(sources.operator(tree))
    except NotExpressedError as failure:
        # DuckDB binds the query as a whole, but not over relations in the place of its tables.
        found = {name: sources.find(name, "") for name in sources.scans}
        inputs = tuple(each for each in found.values() if each is not None)
        names = _unique([each.alias_or_name for each in tree.selects])
        return QueryBlock(generate(tree), tuple(found), inputs, tuple(names), str(failure))


def _built(sources: Sources, tree: exp.Expr, domain: Rows | None) -> Operator:
    return _Query(sources, domain).operator(tree)


class _Query:
    """Builds the tree of one query with the WITH queries in scope.

    `domain` has the values of columns around a subquery; see `correlation`.
    """

    def __init__(self, sources: Sources, domain: Rows | None = None) -> None:
        self._sources, self._domain = sources, domain

    @property
    def _given(self) -> list[exp.Expr]:
        """The columns of the domain, which come last in the result."""
        names = () if self._domain is None else self._domain.operator.columns
        return list(map(reference, names))

    def operator(self, tree: exp.Expr) -> Operator:
        """The tree of a query; a `QueryBlock` for one that other operators do not express."""
        try:
            return self._operator(tree)
        except NotExpressedError as failure:
            if self._domain is not None:
                raise
            return self._block(tree, str(failure))

    def _operator(self, tree: exp.Expr) -> Operator:
        if isinstance(tree, exp.Subquery):
            check_args(tree, ("this", "alias"), " after parentheses")
            return self._operator(tree.this)
        with_ = tree.args.get("with_")
        if with_ is None:
            return self._body(tree)
        body = tree.copy()
        if isinstance(body, exp.Select) and MATCHED in body.meta:
            return self._matches(body)
        body.set("with_", None)
        return self._with(with_).operator(body, self._domain)

    def _with(self, with_: exp.With) -> Sources:
        if with_.args.get("recursive"):
            raise NotExpressedError("WITH RECURSIVE")
        queries = dict(self._sources.queries)
        sources = replace(self._sources, queries=queries)
        for cte in with_.expressions:
            operator = sources.operator(cte.this)
            names = [each.name for each in cte.args["alias"].columns]
            if names:
                pairs = zip(operator.columns, names, strict=False)
                items = tuple(Item.of(column, name) for column, name in pairs)
                operator = checked(Project(operator, items))
            queries[cte.alias.lower()] = operator
        return sources

    def _matches(self, select: exp.Select) -> Operator:
        """The matches of MATCH_RECOGNIZE: SQL over the partitions of its input."""
        source, *_ = select.args["with_"].expressions
        operator = self._sources.operator(source.this)
        source.pop()
        by = tuple(column for column in operator.columns if column in select.meta[MATCHED])
        names = tuple(_unique([each.alias_or_name for each in select.selects]))
        reason = "MATCH_RECOGNIZE"
        block = QueryBlock(generate(select), (INPUT,), (operator,), names, reason, by=by)
        return checked(block)

    def _body(self, tree: exp.Expr) -> Operator:
        match tree:
            case exp.SetOperation():
                return self._set_operation(tree)
            case exp.Select():
                return self._select(tree)
        raise NotExpressedError(type(tree).__name__.upper())

    def _set_operation(self, tree: exp.SetOperation) -> Operator:
        check_args(tree, _SET_ARGS)
        left, right = self.operator(tree.this), self.operator(tree.expression)
        kind = SetKind(type(tree).__name__.upper())
        operator = checked(SetOperation(left, right, kind, not tree.args.get("distinct")))
        rows = Rows(operator, {("", name.lower()): name for name in operator.columns})
        return limited(rows, tree, _order(tree), self._given)

    def _select(self, select: exp.Select) -> Operator:
        check_args(select, _SELECT_ARGS)
        subqueries = Subqueries(self._sources)
        rows = self._filtered(select, subqueries)
        items = [*(each.unalias() for each in select.selects), *self._given]
        by_name = {each.alias_or_name: each.unalias() for each in select.selects}
        order = [with_expressions(each.this, by_name, lateral=True) for each in _order(select)]
        having, group = select.args.get("having"), select.args.get("group")
        qualify = select.args.get("qualify")
        tests = [each.this for each in (qualify, having) if each is not None]
        nodes = [*items, *order, *tests]
        if group is not None or having is not None or any(aggregates_in(node) for node in nodes):
            rows, nodes = subqueries.with_scalars(rows, nodes, aggregated=True)
            sets = grouping_sets(group or exp.Group())
            if self._domain is not None and () in sets:
                if any(sets):
                    raise NotExpressedError("the total of a correlated subquery beside its groups")
                rows, nodes = with_all(self._domain, rows, nodes)
            grouping = Grouping(rows, group, self._given)
            nodes = [grouping.replaced(node) for node in nodes]
            rows = grouping.rows()
        rows, nodes = subqueries.with_scalars(rows, nodes)
        if having is not None:
            rows = passing(rows, conjuncts(nodes.pop()))
        first = len(select.selects)
        rows, nodes = with_windows(rows, nodes, nodes[first : first + len(self._given)])
        if qualify is not None:
            rows = passing(rows, conjuncts(nodes.pop()))
        return _projected(select, rows, nodes, self._given)

    def _filtered(self, select: exp.Select, subqueries: Subqueries) -> Rows:
        """The rows that pass WHERE."""
        terms = conjuncts(select.args.get("where"))
        from_ = FromClause(self._sources, terms, subqueries.with_scalars, self._domain)
        rows = from_.rows(select)
        rows = passing(rows, [term for term in terms if not term.find(exp.Query)])
        for term in (term for term in terms if term.find(exp.Query)):
            matched = subqueries.filtered(rows, term)
            if matched is None:
                rows, (term,) = subqueries.with_scalars(rows, [term])
                matched = passing(rows, [term])
            rows = matched
        return rows

    def _block(self, tree: exp.Expr, reason: str) -> Operator:
        assert isinstance(tree, exp.Query)
        own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        found: dict[str, Operator] = {}
        for table in tree.find_all(exp.Table):
            if table.name.lower() in own and table.name.lower() in self._sources.queries:
                raise NotExpressedError("two WITH queries of the same name")
            operator = None if table.name.lower() in own else self._sources.find(table.name, "")
            if operator is not None:
                found.setdefault(table.name, operator)
        names = tuple(_unique([each.alias_or_name for each in tree.selects]))
        known = self._without_subqueries(tree)
        keys = known.keys if known else frozenset[Key]()
        if tree.args.get("distinct"):
            keys |= {frozenset(names)}
        return checked(
            QueryBlock(
                generate(tree), tuple(found), tuple(found.values()), names, reason,
                keys, known.not_null if known else frozenset(),
            )
        )  # fmt: skip

    def _without_subqueries(self, tree: exp.Expr) -> Operator | None:
        """The tree of a SELECT without the subqueries of its conditions and items, if it has one.

        Its rows are those of the SELECT and more, so its keys hold there, too.
        """
        if not isinstance(tree, exp.Select) or tree.args.get("distinct"):
            return None
        select = tree.copy()
        for clause in ("where", "having", "qualify"):
            node = select.args.get(clause)
            if node is not None:
                kept = [term for term in conjuncts(node.this) if not term.find(exp.Query)]
                node.set("this", exp.and_(*kept) if kept else exp.true())
        for each in select.selects:
            if each.find(exp.Query):
                each.unalias().replace(exp.Null())
        try:
            return self._select(select)
        except NotExpressedError:
            return None


def _unique(names: list[str]) -> list[str]:
    """The names, with a number where one has been used before: their consumer counts positions."""
    used: set[str] = set()
    found = []
    for name in names:
        number, new = 0, name
        while new.lower() in used:
            number, new = number + 1, f"{name}_{number}"
        used.add(new.lower())
        found.append(new)
    return found


def _order(tree: exp.Expr) -> list[exp.Ordered]:
    """The terms of ORDER BY, if there is a LIMIT or OFFSET that they matter for."""
    order = tree.args.get("order")
    if order is None or not (tree.args.get("limit") or tree.args.get("offset")):
        return []
    return list(order.expressions)


def _projected(
    select: exp.Select, rows: Rows, nodes: list[exp.Expr], given: list[exp.Expr]
) -> Operator:
    """DISTINCT, ORDER BY and LIMIT of the projection of `nodes`: items, then terms of ORDER BY."""
    names = _unique([each.alias_or_name for each in (*select.selects, *given)])
    items = [item(name, node, rows) for name, node in zip(names, nodes, strict=False)]
    order = _order(select)
    called = []
    for term, node in zip(order, nodes[len(names) :], strict=True):
        column = term.this
        if isinstance(column, exp.Column) and not column.table and column.name in names:
            called.append(column.name)
        else:
            called.append(f"_o{len(called)}")
            items.append(item(called[-1], node, rows))
    added = len(items) > len(names)
    operator = checked(Project(rows.operator, tuple(items)))
    distinct = select.args.get("distinct")
    if distinct is not None:
        if added:
            raise NotExpressedError("DISTINCT in the order of another column")
        operator = checked(Distinct(operator))
    terms = [
        exp.Ordered(**{**term.args, "this": reference(name)})
        for term, name in zip(order, called, strict=True)
    ]
    first = limited(Rows(operator), select, terms, given)
    return checked(Project(first, tuple(map(Item.of, names)))) if added else first
