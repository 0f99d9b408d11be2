"""Refuses a SUM whose partial results would be rounded to the target's type.

Each micro-batch writes the sum of its own rows, and the table adds it to the stored value. If each
partial sum were rounded to fewer digits, the total would depend on how the rows were split into
batches.
"""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.resolution.insert_target import ColumnMapping, aggregate
from streamhouse.sql.streaming.generated_sql import Stream, bound
from streamhouse.sql.types import base, scale


def check(stream: Stream, mappings: list[ColumnMapping]) -> None:
    """Raise `NotStreamedError` for a SUM with a larger scale than its DECIMAL column."""
    mapped_sums: list[tuple[ColumnMapping, exp.Expr]] = []
    for mapping in mappings:
        item = None if mapping.index is None else aggregate(stream.top.items[mapping.index])
        if isinstance(item, exp.Sum) and base(mapping.column.type) == "DECIMAL":
            mapped_sums.append((mapping, item))
    if not mapped_sums:
        return
    names = [f"c{number}" for number in range(len(mapped_sums))]
    sums = stream.rows([item for _, item in mapped_sums], names, False, signed=True)
    for (mapping, item), (_, kind) in zip(mapped_sums, bound(stream, sums), strict=True):
        if base(kind) == "DECIMAL" and scale(kind) <= scale(mapping.column.type):
            continue
        if base(kind) in ("DECIMAL", "FLOAT", "DOUBLE"):
            raise node_errors.not_streamed(
                stream.script, item, f"a sum of type {kind}, stored as {mapping.column.type}"
            )
