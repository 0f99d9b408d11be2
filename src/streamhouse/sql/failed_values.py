"""Finds the column and the row whose value made a query fail, for error messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from streamhouse.sql.expressions.binder import generate

_PLAIN = {"kind", "expressions", "from_", "with_"}
"""The clauses of a SELECT that computes each row from one row of its FROM."""


def failed_value(
    sql: str, names: Sequence[str], keys: Sequence[int], run: Callable[[str], Sequence[object]]
) -> str:
    """Such as "column 'total' of the row with id = 7: ", or an empty text if it is not found.

    `sql` is the DuckDB query that failed, `names` are those of its columns, `keys` the positions of
    those that identify a row (none: the row is not named). `run` returns the first row of a query,
    or nothing if that fails.
    """
    try:
        row = run(_diagnosis(parse_one(sql, dialect="duckdb"), names, keys))
    except (SqlglotError, ValueError):
        return ""
    if not row:
        return ""
    values, failed = row[: len(keys)], list(row[len(keys) :])
    column = names[failed.index(True)]
    texts = [
        f"{names[at]} = {'NULL' if value is None else value}"
        for at, value in zip(keys, values, strict=True)
        if names[at] != column
    ]
    of_row = f" of the row with {', '.join(texts)}" if texts else ""
    return f"column '{column}'{of_row}: "


def _diagnosis(tree: exp.Expr, names: Sequence[str], keys: Sequence[int]) -> str:
    """A query of the rows that fail: the values of `keys`, and for each column whether it fails."""
    select = _flat(tree)
    by_alias = {item.alias: item.unalias() for item in select.expressions}
    items = [_with(item.unalias(), by_alias, lateral=True) for item in select.expressions]
    if len(items) < len(names) or any(isinstance(item, exp.Star) for item in items):
        raise ValueError("the columns are not known")
    columns = [_named(_tried(exp.cast(items[at].copy(), "VARCHAR")), f"k{at}") for at in keys]
    tests: list[exp.Expr] = []
    for at, item in enumerate(items[: len(names)]):
        # A hash is never null, and DuckDB does not simplify it.
        hashed = _tried(exp.func("HASH", item.copy()))
        columns.append(_named(exp.Is(this=hashed, expression=exp.Null()), f"f{at}"))
        tests.append(exp.column(f"f{at}", quoted=True))
    select.set("expressions", columns)
    for clause in ("order", "limit", "distinct"):
        select.set(clause, None)
    inner = exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier("rows_")))
    outer = exp.Select(expressions=[exp.Star()]).from_(inner).where(exp.or_(*tests)).limit(1)
    return generate(outer)


def _flat(tree: exp.Expr) -> exp.Select:
    """The query with the expressions of the queries that it only reads in place of their names."""
    while True:
        if not isinstance(tree, exp.Select):
            raise ValueError("the query has no columns of its own")
        source = tree.args.get("from_")
        inner = None if source is None else source.this
        if not isinstance(inner, exp.Subquery) or not isinstance(inner.this, exp.Select):
            return tree
        star = len(tree.expressions) == 1 and isinstance(tree.expressions[0], exp.Star)
        plain = {key for key, value in tree.args.items() if value} <= _PLAIN
        if star:
            tree = inner.this
            continue
        aggregates = inner.this.args.get("group") or inner.this.find(exp.AggFunc, exp.Window)
        if not plain or aggregates or tree.args.get("with_") or inner.this.args.get("distinct"):
            return tree
        by_name = {item.alias_or_name: item.unalias() for item in inner.this.expressions}
        items = [_with(item, by_name) for item in tree.expressions]
        tree = inner.this.copy()
        tree.set("expressions", items)


def _with(item: exp.Expr, by_name: Mapping[str, exp.Expr], lateral: bool = False) -> exp.Expr:
    """An expression with those of `by_name` in place of their names.

    `lateral`: only names without a table can be such, and others are columns.
    """

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or (lateral and (node.table or node is item)):
            return node
        if node.name in by_name:
            return exp.paren(by_name[node.name].copy())
        if lateral:
            return node
        raise ValueError("the columns are not known")

    return item.copy().transform(replaced)


def _tried(node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="TRY", expressions=[node])


def _named(node: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(node, name, quoted=True)
