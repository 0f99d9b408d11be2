"""How deep a statement may be nested: parentheses, subqueries, CASE in CASE, chains of operators.

The parser and each pass over its tree recurse once or several times for a level. Python's default
limit of 1,000 calls is reached at about 45 parentheses; calls of Python functions take no C stack,
so the limit can be higher. Past it, and past DuckDB's own limit, the statement is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql.plan import Query

TOO_DEEP = (
    "this is nested too deeply; write it with fewer levels, for instance a list of values with IN "
    "or VALUES, or several statements"
)
_CALLS = 6000
_LONG_CHAIN = 32


def allow_depth() -> None:
    """Raise Python's recursion limit to what statements may take."""
    if sys.getrecursionlimit() < _CALLS:
        sys.setrecursionlimit(_CALLS)


@contextmanager
def limited_depth(query: Query) -> Iterator[None]:
    """Report a tree that is too deep for the passes over it as `SqlError` at the query."""
    allow_depth()
    try:
        yield
    except RecursionError:
        place = query.position
        raise SqlError(TOO_DEEP, line=place.line, column=place.column) from None


def balanced(tree: exp.Expr) -> exp.Expr:
    """The tree with long chains of AND and OR as shallow as they can be.

    The parser nests `a OR b OR c …` as deep as it is long, and passes over the tree look at all
    that is around a column.
    """
    for node in list(tree.find_all(exp.And, exp.Or)):
        kind = type(node)
        if type(node.parent) is kind or type(node.left) is not kind:
            continue
        terms = list(node.flatten(unnest=False))
        if len(terms) < _LONG_CHAIN:
            continue
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            rest = terms[-1:] if len(terms) % 2 else []
            terms = [*(kind(this=one, expression=two) for one, two in pairs), *rest]
        if node is tree:
            return terms[0]
        node.replace(terms[0])
    return tree
