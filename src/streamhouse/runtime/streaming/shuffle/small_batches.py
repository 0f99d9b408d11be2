"""Small batches skip the bucket shuffle: the task that reads the rows also joins them.

The planner decides this for a batch before Spark begins it, and both the planner and the driver
need the decision. They are two processes, so it is a file in the query's run folder, with the
number of the batch. A batch that runs again in another run finds no file and is shuffled; it writes
the same rows.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from streamhouse.lookup.options import CacheOptions
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import Offset, Source

_FILE = "small-batch.json"
_DIMENSION_ROWS = 100_000
"""With a larger dimension every batch is shuffled, since a join scans all its rows."""


class SmallBatches:
    """Decides for each batch of a query whether it skips the shuffle; planner only."""

    def __init__(self, spec: QuerySpec, source: Source, folder: Path) -> None:
        self._source, self._folder = source, folder
        self._address: TableAddress | None = None
        if spec.shuffle is not None:
            lookup = spec.query.lookups[spec.shuffle]
            self._relation, address = lookup.relation, spec.lookups[spec.shuffle]
            options = CacheOptions.parse(address.open().options, lookup.options)
            self._most_rows = options.shuffled_rows
            self._address = address

    def plan(self, start: Offset, end: Offset) -> None:
        """Decide for the batch from `start` to `end`, and write the decision."""
        if self._address is None:
            return
        small = self._few(start, end) and self._small_dimension(self._address, end)
        part = self._folder / f"{_FILE}.part"
        # The folder may be gone if the run is being stopped.
        with contextlib.suppress(FileNotFoundError):
            part.write_text(json.dumps({"batch": end["batch"], "small": small}))
            part.replace(self._folder / _FILE)

    def _few(self, start: Offset, end: Offset) -> bool:
        """Whether the batch is known to have few source rows; pending rows are not counted."""
        if not start:
            return False
        rows = self._source.rows(source_offset(start), source_offset(end))
        return rows is not None and rows < self._most_rows

    def _small_dimension(self, address: TableAddress, end: Offset) -> bool:
        snapshot = int(end["dims"][self._relation])
        if not snapshot:
            return True
        found = address.follow().snapshots.find(snapshot)
        rows = None if found is None else found.total_record_count
        return rows is not None and rows <= _DIMENSION_ROWS


def is_small_batch(folder: Path, batch: int) -> bool:
    """Whether the batch with this number skips the shuffle."""
    try:
        decision = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return False
    return bool(decision["small"]) and int(decision["batch"]) == batch
