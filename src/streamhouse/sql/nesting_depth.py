"""Limits how deep a statement may be nested: parentheses, subqueries, CASE, operator chains.

The parser and each pass over its tree make one or several recursive calls per level. Python's
default limit of 1,000 calls is reached at about 45 parentheses. Calls of Python functions take no C
stack, so the limit can be higher. A statement beyond it, or beyond DuckDB's own limit, is an error.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql.syntax import Query

TOO_DEEP = (
    "this is nested too deeply; use fewer levels, for example IN or VALUES for a list of values, "
    "or split it into several statements"
)
_CALLS = 6000
_LONG_CHAIN = 32


def allow_depth() -> None:
    """Raise Python's recursion limit to what the deepest allowed statement needs."""
    if sys.getrecursionlimit() < _CALLS:
        sys.setrecursionlimit(_CALLS)


@contextmanager
def limited_depth(query: Query) -> Iterator[None]:
    """Raise `SqlError` at the query's position if its tree is too deep for the passes over it."""
    allow_depth()
    try:
        yield
    except RecursionError:
        raise SqlError.at(query.position, TOO_DEEP) from None


def balanced(tree: exp.Expr) -> exp.Expr:
    """The tree with long chains of AND and OR rebuilt as balanced trees.

    The parser nests `a OR b OR c …` as deep as the chain is long, and passes over the tree visit
    all ancestors of a column.
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
