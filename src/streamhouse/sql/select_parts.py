"""Parts of a parsed SELECT: its relations, its rows, and its columns in terms of what it reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from sqlglot import exp

_PLAIN = {"kind", "expressions", "from_", "with_", "order"}
"""The clauses of a SELECT that computes each row from one row of its FROM, in any order."""


def relation(name: str, alias: str) -> exp.Table:
    """A relation of FROM, by names in any case and with any characters."""
    return exp.Table(this=exp.to_identifier(name, quoted=True), alias=_alias(alias))


def derived(query: exp.Expr, alias: str) -> exp.Subquery:
    """A query as an element of FROM."""
    return exp.Subquery(this=query, alias=_alias(alias))


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def rows_of(
    element: exp.Expr, columns: Mapping[str, exp.Expr] = MappingProxyType({})
) -> exp.Select:
    """A SELECT of all columns of an element of FROM, and of further ones."""
    more = [exp.alias_(each.copy(), name, quoted=True) for name, each in columns.items()]
    return exp.Select(expressions=[exp.Star(), *more], from_=exp.From(this=element))


def over(function: exp.Expr, by: Iterable[exp.Expr], order: Iterable[exp.Expr] = ()) -> exp.Window:
    """A window function over partitions, in an order."""
    terms = [each.copy() for each in order]
    return exp.Window(
        this=function, partition_by=[each.copy() for each in by],
        order=exp.Order(expressions=terms) if terms else None, over="OVER",
    )  # fmt: skip


def sources(select: exp.Select) -> list[exp.Expr]:
    """The relations of FROM and its joins."""
    from_, joins = select.args.get("from_"), select.args.get("joins") or ()
    return [*([] if from_ is None else [from_.this]), *(join.this for join in joins)]


def aliases(select: exp.Select) -> set[str]:
    """The names of the relations of FROM, also of those that are joined in parentheses."""
    found = set()
    for each in sources(select):
        inner = each.this if isinstance(each, exp.Subquery) and not each.alias else each
        joins = inner.args.get("joins") if isinstance(inner, exp.Table) else None
        found |= {source.alias_or_name for source in (each, inner)}
        found |= {join.this.alias_or_name for join in joins or ()}
    return found


def group_expressions(group: exp.Expr) -> Iterator[exp.Expr]:
    """The expressions of GROUP BY, also those of its grouping sets."""
    for node in group.iter_expressions():
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple | exp.Paren):
            yield from group_expressions(node)
        else:
            yield node


def branches(query: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs whose rows are those of a query: itself, or the parts of its set operations."""
    inner = query.unnest()
    if isinstance(inner, exp.SetOperation):
        yield from branches(inner.left)
        yield from branches(inner.right)
    elif isinstance(inner, exp.Select):
        yield inner


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The AND-ed terms of a condition or a WHERE clause, without parentheses around them."""
    node = condition
    # `unnest` would take a scalar subquery for parentheses, too.
    while isinstance(node, exp.Where | exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [*conjuncts(node.this), *conjuncts(node.expression)]
    return [] if node is None else [node]


def rows_read(
    select: exp.Select, source: exp.Expr | None = None, joins: Sequence[exp.Expr] = ()
) -> exp.Select:
    """The rows that a SELECT computes its columns and groups from; or those of other relations."""
    if source is None:
        made = clauses_of(select, "from_", "joins", "laterals", "where")
    else:
        made = exp.Select(from_=exp.From(this=source.copy()), joins=[each.copy() for each in joins])
    made.set("with_", with_queries(select))
    return made


def clauses_of(select: exp.Select, *clauses: str) -> exp.Select:
    """A SELECT without columns that has some clauses of another one."""
    made = exp.Select()
    for clause in clauses:
        value = select.args.get(clause)
        if isinstance(value, list):
            made.set(clause, [each.copy() for each in value])
        elif value is not None:
            made.set(clause, value.copy())
    return made


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The WITH query in scope that a name means: an earlier one, or any one if it is RECURSIVE."""
    inside: exp.Expr | None = None
    current: exp.Expr | None = table
    while current is not None:
        clause = current.args.get("with_") or exp.With(expressions=[])
        for cte in clause.expressions:
            if cte is inside and not clause.args.get("recursive"):
                break
            if isinstance(cte, exp.CTE) and cte.alias == table.name:
                return cte
        inside = current if isinstance(current, exp.CTE) else inside
        current = current.parent
    return None


def with_queries(node: exp.Expr | None) -> exp.With | None:
    """The WITH queries in whose scope the parts of a node are; None without any."""
    queries: list[exp.Expr] = []
    recursive = False
    while node is not None:
        clause = node.args.get("with_")
        if clause is not None:
            queries = [*(query.copy() for query in clause.expressions), *queries]
            recursive = recursive or bool(clause.args.get("recursive"))
        node = node.parent
    return exp.With(expressions=queries, recursive=recursive) if queries else None


def without(select: exp.Select, *clauses: str) -> exp.Select:
    left = select.copy()
    for clause in clauses:
        left.set(clause, None)
    return left


def flattened(tree: exp.Expr) -> exp.Select | None:
    """The query with the expressions of the queries that it only reads in place of their names."""
    while True:
        if not isinstance(tree, exp.Select):
            return None
        inner = next(iter(sources(tree)), None)
        if not isinstance(inner, exp.Subquery) or not isinstance(inner.this, exp.Select):
            return tree
        if len(tree.expressions) == 1 and isinstance(tree.expressions[0], exp.Star):
            tree = inner.this
            continue
        plain = {key for key, value in tree.args.items() if value} <= _PLAIN
        aggregates = inner.this.args.get("group") or inner.this.find(exp.AggFunc, exp.Window)
        if not plain or aggregates or tree.args.get("with_") or inner.this.args.get("distinct"):
            return tree
        by_name = {item.alias_or_name: item.unalias() for item in inner.this.expressions}
        read = [column.name for item in tree.expressions for column in item.find_all(exp.Column)]
        if not set(read) <= set(by_name):
            return None
        items = [with_expressions(item, by_name) for item in tree.expressions]
        tree = inner.this.copy()
        tree.set("expressions", items)


def replaced_columns(expression: exp.Expr, new: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """An expression with others in place of its columns."""
    return expression.transform(lambda node: new(node) if isinstance(node, exp.Column) else node)


def with_expressions(
    item: exp.Expr, by_name: Mapping[str, exp.Expr], lateral: bool = False
) -> exp.Expr:
    """An expression with those of `by_name` in place of their names.

    `lateral`: only names without a table can be such, and others are columns.
    """

    def new(column: exp.Column) -> exp.Expr:
        if column.name not in by_name or (lateral and column.table):
            return column
        return exp.paren(by_name[column.name].copy())

    if lateral and isinstance(item, exp.Column):
        return item
    return replaced_columns(item, new)
