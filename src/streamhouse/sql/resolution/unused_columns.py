"""Leaves out the columns of subqueries that no query around them reads."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp
from sqlglot.optimizer.pushdown_projections import pushdown_projections

Q = TypeVar("Q", bound=exp.Expr)

# For sqlglot every function that it does not know may return several rows. Here none does in a
# SELECT list; else a column PROCTIME() that nobody reads would make a view depend on the time.
vars(exp)["SET_RETURNING_FUNCTIONS"] = (exp.UDTF, exp.ExplodingGenerateSeries)


def without_unused_columns(tree: Q) -> Q:
    """The tree, changed in place; all names must be qualified, and stars expanded."""
    return pushdown_projections(tree)
