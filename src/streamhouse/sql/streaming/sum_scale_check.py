"""Refuses a SUM whose partial results would be rounded to the target's type.

Each micro-batch writes the sum of its own rows, and the table adds it to the stored value. If each
partial sum were rounded to fewer digits, the total would depend on how the rows were split into
batches.
"""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution.insert_target import Slot, aggregate
from streamhouse.sql.streaming.generated_sql import Stream, bound
from streamhouse.sql.types import base, scale


def check(stream: Stream, target: TableInfo, filled: list[Slot]) -> None:
    """Raise `UnsupportedSqlError` for a SUM with a larger scale than its DECIMAL column."""
    sums_of_slots: list[tuple[Slot, exp.Expr]] = []
    for slot in filled:
        item = None if slot.index is None else aggregate(stream.top.items[slot.index])
        if isinstance(item, exp.Sum) and base(slot.column.type) == "DECIMAL":
            sums_of_slots.append((slot, item))
    if not sums_of_slots:
        return
    names = [f"c{number}" for number in range(len(sums_of_slots))]
    sums = stream.rows([item for _, item in sums_of_slots], names, False, signed=True)
    for (slot, item), (_, kind) in zip(sums_of_slots, bound(stream, sums), strict=True):
        if base(kind) == "DECIMAL" and scale(kind) <= scale(slot.column.type):
            continue
        if base(kind) in ("DECIMAL", "FLOAT", "DOUBLE"):
            raise node_errors.unsupported(
                stream.script,
                item,
                f"column '{slot.column.name}' of table {'.'.join(target.name)} is "
                f"{slot.column.type}, but the sum is {kind}: each batch would round its partial "
                f"sum; write SUM(CAST(… AS {slot.column.type})), or declare the column with as "
                "many digits",
            )
