"""Comparisons of rows, and with all rows of a query or list, in terms that DuckDB has."""

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.optimizer.simplify import Simplifier

from streamhouse.sql.expressions import comparisons
from streamhouse.sql.functions.expression_builders import quoted
from streamhouse.sql.functions.macros import filled


def rewrite(tree: exp.Query) -> None:
    """Rewrite them in a query whose names are not resolved yet."""
    _values_as_queries(tree)
    _quantified_lists(tree)
    _row_comparisons(tree)


def of_values(tree: exp.Values) -> exp.Select:
    """A SELECT over VALUES, with Flink's column names `EXPR$0`, `EXPR$1`, …."""
    width = len(tree.expressions[0].expressions)
    column_names = [quoted(f"EXPR${i}") for i in range(width)]
    tree = tree.copy()
    alias = exp.TableAlias(this=quoted("given"), columns=column_names)
    tree.set("alias", alias)
    items = [exp.alias_(exp.column(name.copy()), name.copy()) for name in column_names]
    select = exp.Select(expressions=items)
    for clause in ("order", "limit", "offset"):
        select.set(clause, tree.args.pop(clause, None))
    select.set("from_", exp.From(this=tree))
    return select


def _values_as_queries(tree: exp.Query) -> None:
    """Make VALUES outside of FROM a SELECT: a scalar, or what IN, ANY and ALL compare with."""
    for node in list(tree.find_all(exp.Values)):
        parent = node.parent
        if isinstance(parent, exp.Subquery) and not isinstance(parent.parent, exp.From | exp.Join):
            node.replace(of_values(node))
        elif isinstance(parent, exp.In):
            parent.set("query", of_values(node).subquery())
            parent.set("expressions", None)
        elif isinstance(parent, exp.Anonymous):
            kinds: dict[str, type[exp.Expr]] = {"ALL": exp.All, "EXISTS": exp.Exists}
            kind = kinds.get(parent.name.upper(), exp.Any)
            parent.replace(kind(this=of_values(node).subquery()))


def rows_in_correlated_queries(tree: exp.Query) -> None:
    """Rewrite (a, b) IN (SELECT c, d … WHERE o.x = …), which DuckDB does not take.

    All columns must be qualified.
    """
    for number, scope in enumerate(traverse_scope(tree)):
        node = scope.expression.find_ancestor(exp.In, exp.Select)
        row = isinstance(node, exp.In) and isinstance(node.this.unnest(), exp.Tuple)
        if row and node is not None and scope.is_correlated_subquery:
            node.replace(by_exists(node, f"_in{number}"))


def by_exists(test: exp.Expr, alias: str) -> exp.Expr | None:
    """IN, ANY or ALL of a subquery by EXISTS: true if a row passes a comparison, else NULL if one
    is unknown, else false; None for anything else. `alias` is that of the subquery."""
    compared, negated = test.args.get("expression"), Simplifier.COMPLEMENT_COMPARISONS
    kind, query = type(test), test.args.get("query")
    if isinstance(test, exp.In):
        kind = exp.EQ
    elif isinstance(compared, exp.Any | exp.All) and kind in negated:
        query = compared.this
        kind = negated[kind] if isinstance(compared, exp.All) else kind
    if query is None:
        return None
    values = _fields(test.this) or [test.this]
    names = [quoted(f"_c{n}") for n in range(len(values))]
    table = quoted(alias)
    columns = exp.TableAlias(this=table, columns=names)
    found: list[exp.Expr] = [exp.column(name.copy(), table.copy()) for name in names]
    passed = _compared(kind, list(zip(values, found, strict=True)))

    def exists(condition: exp.Expr) -> exp.Expr:
        source = exp.Subquery(this=query.unnest().copy(), alias=columns.copy())
        return exp.Exists(this=exp.select("1").from_(source).where(condition))

    unknown = exp.Is(this=exp.Paren(this=passed.copy()), expression=exp.Null())
    case = tested(exists(passed), exists(unknown))
    return exp.Paren(this=exp.Not(this=case)) if isinstance(compared, exp.All) else case


def tested(passes: exp.Expr, is_unknown: exp.Expr) -> exp.Expr:
    """The value of a test: true if it passes, else NULL if it is unknown, else false."""
    parts = {"passes": passes, "is_unknown": is_unknown}
    text = "CASE WHEN passes THEN TRUE WHEN is_unknown THEN NULL::BOOLEAN ELSE FALSE END"
    return filled(text, **parts)


def _quantified_lists(tree: exp.Query) -> None:
    """`x > ALL (1, 2)` is `x > 1 AND x > 2`; ANY and SOME combine by OR.

    The list may be the elements of one ARRAY[…].
    """
    for node in list(tree.find_all(exp.Anonymous)):
        word, comparison = node.name.upper(), node.parent
        if word in ("ALL", "ANY", "SOME") and isinstance(comparison, exp.Binary):
            parts, values = [], node.expressions
            if len(values) == 1 and isinstance(values[0], exp.Array) and values[0].expressions:
                values = values[0].expressions
            for value in values:
                part = comparison.copy()
                part.set("expression", value.copy())
                parts.append(part)
            combine = exp.and_ if word == "ALL" else exp.or_
            comparison.replace(exp.Paren(this=combine(*parts)))


def _fields(node: exp.Expr, count: int = 0) -> list[exp.Expr] | None:
    """The fields of a row constructor, (a, b) or ROW(a, b), or of a subquery with `count` columns.

    None for anything else.
    """
    node = node.unnest()
    if isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and node.name == "ROW"):
        return list(node.expressions)
    if not isinstance(node, exp.Query) or not count:
        return None
    names = [quoted(f"_f{n}") for n in range(count)]
    alias = exp.TableAlias(this=quoted("_fields"), columns=names)
    rows = exp.Subquery(this=node.copy(), alias=alias)
    fields = (exp.select(exp.column(name.copy(), alias.this.copy())) for name in names)
    return [each.from_(rows.copy()).subquery() for each in fields]


def _row_comparisons(tree: exp.Query) -> None:
    """Compare rows column by column: for DuckDB a null in a row equals another one."""
    found = list(tree.find_all(*comparisons.OPERATORS, *_EVEN_NULLS, exp.In))
    for number, node in enumerate(reversed(found)):
        others = node.expressions if isinstance(node, exp.In) else [node.expression]
        left, known = _fields(node.this), [_fields(other) for other in others]
        if left is not None and not others:
            node.set("this", exp.Tuple(expressions=left))
        if left is not None and others and isinstance(others[0], exp.Any | exp.All):
            node.replace(by_exists(node, f"_any{number}"))
            continue
        size = next((len(row) for row in (left, *known) if row is not None), 0)
        left, rows = _fields(node.this, size), [_fields(other, size) for other in others]
        if left is None or not rows or any(row is None or len(row) != len(left) for row in rows):
            continue
        kind = exp.EQ if isinstance(node, exp.In) else type(node)
        pairs = [list(zip(left, row, strict=True)) for row in rows if row is not None]
        node.replace(exp.Paren(this=exp.or_(*(_compared(kind, row) for row in pairs))))


def _compared(kind: type[exp.Expr], pairs: list[tuple[exp.Expr, exp.Expr]]) -> exp.Expr:
    """The comparison of two rows: the first fields that differ decide."""

    def fields(kind: type[exp.Expr], pair: tuple[exp.Expr, exp.Expr]) -> exp.Expr:
        left, right = map(_fields, pair)
        if left and right and len(left) == len(right):
            return exp.Paren(this=_compared(kind, list(zip(left, right, strict=True))))
        return kind(this=pair[0].copy(), expression=pair[1].copy())

    if kind in (exp.EQ, exp.NullSafeEQ):
        return exp.and_(*(fields(kind, pair) for pair in pairs))
    if kind in (exp.NEQ, exp.NullSafeNEQ):
        return exp.or_(*(fields(kind, pair) for pair in pairs))
    *first, last = pairs
    answer = fields(kind, last)
    strict = exp.LT if kind in (exp.LT, exp.LTE) else exp.GT
    for pair in reversed(first):
        answer = exp.or_(fields(strict, pair), exp.and_(fields(exp.EQ, pair), answer))
    return answer


_EVEN_NULLS = (exp.NullSafeEQ, exp.NullSafeNEQ)
"""IS [NOT] DISTINCT FROM."""
