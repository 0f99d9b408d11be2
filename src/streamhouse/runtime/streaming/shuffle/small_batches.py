"""Small batches skip the bucket shuffle: the task that reads the rows also joins them.

The planner decides this for a batch before Spark begins it. The decision is in the batch's offset,
under `whole`, where the driver finds it too.
"""

from __future__ import annotations

from streamhouse.lookup.options import CacheOptions
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import Offset, Source

WHOLE = "whole"
_DIMENSION_ROWS = 100_000
"""With a larger dimension every batch is shuffled, since a join scans all its rows."""


def skips_shuffle(spec: QuerySpec, source: Source, start: Offset, end: Offset) -> bool:
    """Whether a batch of a shuffled query has few rows, and its dimension too; planner only.

    Pending rows are not counted.
    """
    assert spec.shuffle is not None
    lookup, table = spec.query.lookups[spec.shuffle], spec.lookups[spec.shuffle].follow()
    rows = source.rows(source_offset(start), source_offset(end)) if start else None
    least = CacheOptions.parse(table.options, lookup.options).shuffled_rows
    if rows is None or rows >= least:
        return False
    snapshot = int(end["dims"][lookup.relation])
    found = table.snapshots.find(snapshot) if snapshot else None
    known = 0 if not snapshot else None if found is None else found.total_record_count
    return known is not None and known <= _DIMENSION_ROWS
