"""What an expression of a query block is computed from: the source's row, lookups, the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from streamhouse.sql import functions

if TYPE_CHECKING:
    from streamhouse.sql.streaming.query_blocks import QueryBlock


@dataclass(frozen=True)
class Input:
    """A column of the source or of a `lookup`, or a function that returns the `time`."""

    node: exp.Expr
    lookup: bool = False
    time: bool = False


def inputs(block: QueryBlock, item: exp.Expr) -> Iterator[Input]:
    """The inputs of an expression, through the subqueries below its block."""
    for node in item.walk():
        if functions.current_time_name(node) is not None:
            yield Input(node, time=True)
        elif isinstance(node, exp.Column):
            if node.table != block.alias:
                yield Input(node, lookup=True)
            elif block.below is None:
                yield Input(node)
            else:
                yield from inputs(block.below, block.below.definition(node.name))


def reads_source_only(block: QueryBlock, item: exp.Expr) -> bool:
    """Whether an expression has the same value whenever it is computed for a row of the source."""
    return not any(found.lookup or found.time for found in inputs(block, item))


def source_column(block: QueryBlock, item: exp.Expr) -> str | None:
    """The source's column that an expression of a block copies; None for anything else."""
    inner = item.unalias().unnest()
    if not isinstance(inner, exp.Column) or inner.table != block.alias:
        return None
    below = block.below
    return inner.name if below is None else source_column(below, below.definition(inner.name))
