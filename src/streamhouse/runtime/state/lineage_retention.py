"""Retention of lineage rows: finds those that no audit needs any more.

An audit starts from a snapshot of the target that has not expired. So it needs no batches of a
query before the query's oldest commit that has not expired.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.read.table import Table
from streamhouse.source import of_kind

EVERY_S = 60.0
LEAST = 100
"""The least number of rows to remove at once, since each removal is written and compacted too."""
_MOST_ROWS = 50_000


def dead_before(target: Table, user: str) -> int | None:
    """The batch of `user`'s oldest remaining commit in `target`; None if nothing has expired."""
    earliest, latest = target.earliest_snapshot_id(), target.latest_snapshot_id()
    if earliest is None or latest is None or earliest == 1:
        return None
    for number in range(earliest, latest + 1):
        snapshot = target.snapshots.find(number)
        if snapshot is not None and snapshot.commit_user == user:
            return snapshot.commit_identifier
    return None


def removals(lineage: Table, user: str, before: int) -> pa.Table | None:
    """The changes that remove batches of `user` before `before`; None if there are too few yet.

    The definition is stored on the first row of its fingerprint. If that row is removed, the
    definition moves to the first remaining row of the fingerprint.
    """
    condition = {"method": "equal", "field": "query_id", "literals": [user]}
    rows = pa.Table.from_batches(lineage.read(filter=condition), schema=lineage.read_schema())
    rows = rows.filter(pc.equal(rows.column("query_id"), user)).sort_by("batch_id")
    expired = rows.filter(pc.less(rows.column("batch_id"), before)).slice(0, _MOST_ROWS)
    if expired.num_rows < LEAST:
        return None
    remaining = rows.slice(expired.num_rows)
    with_definition = expired.filter(pc.is_valid(expired.column("definition")))
    definitions = dict(
        zip(with_definition.column("fingerprint").to_pylist(),
            with_definition.column("definition").to_pylist(), strict=True)
    )  # fmt: skip
    new_holders = []
    for fingerprint, definition in definitions.items():
        first = remaining.filter(pc.equal(remaining.column("fingerprint"), fingerprint)).slice(0, 1)
        new_holders += [
            {**row, "definition": row["definition"] or definition} for row in first.to_pylist()
        ]
    updated = pa.Table.from_pylist(new_holders, schema=rows.schema)
    return pa.concat_tables([of_kind(updated, "+U"), of_kind(expired, "-D")])
