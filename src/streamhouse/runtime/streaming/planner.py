"""Where a continuous query stands: offsets that hold all that a batch reads, and its tasks.

An offset is `{"batch", "now", "of", "source", "dims", "pending"}`:

- `batch`: the number of the batch that ends there (from 0; Spark's own numbers also count an empty
  first batch);
- `now`: the time that the batch takes for its own (epoch ms);
- `of`: what it reads (`SourceSpec.origin`), and `source`: the source's own offset;
- `dims`: the snapshot of each lookup's table (0: before the first; with what
  `streaming.dimension_versions` adds);
- `pending`: the snapshot of the pending table (0: no row of it is due);
- `distinct`, where distinct values are counted: the snapshot of their table (0: before the first).

Spark writes it to its log before the batch runs, so a batch that runs again reads the same, to the
row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from streamhouse.errors import DataLossError
from streamhouse.runtime.spec import QuerySpec
from streamhouse.runtime.state.pending_rows import PendingRows
from streamhouse.runtime.streaming import preload_reports
from streamhouse.runtime.streaming.dimension_versions import Pins
from streamhouse.runtime.streaming.small_batches import SmallBatches
from streamhouse.source import Checked, Lag, Lagging, Offset, Settling, Source

SHARED_ROWS = 500_000
"""From so many rows on, pieces that are fewer than the tasks could be are shared by several."""


@dataclass(frozen=True)
class TaskInput:
    """What one task of a batch does: `pieces` of the source, and with `due` the waiting rows.

    Of each piece, cut into chunks, it takes every `shares`th from the one of number `share` on:
    other tasks take the others.
    """

    index: int
    start: Offset = field(repr=False)
    end: Offset
    pieces: tuple[Any, ...] = field(repr=False)
    due: bool
    share: int = 0
    shares: int = 1

    @property
    def batch(self) -> int:
        return int(self.end["batch"])

    @property
    def now_ms(self) -> int:
        return int(self.end["now"])


class Planner:
    """Plans the batches of one query; driver only."""

    def __init__(self, spec: QuerySpec, folder: Path | None = None) -> None:
        """`folder` is where `preload_reports` tells what tasks have loaded, and where
        `small_batches` tells which batches are joined where they are read."""
        self._folder = folder
        self._spec = spec
        self._source: Source = spec.source.open(spec.query.source_columns)
        self._origin = spec.source.origin(spec.query.source.name)
        self._one_task = spec.one_task(self._source)
        self._pins = Pins(spec.query.lookups, spec.lookups, spec.choices)
        self._pending = None if spec.pending is None else PendingRows(spec.pending, spec.query_id)
        self._small = None if folder is None else SmallBatches(spec, self._source, folder)

    @property
    def source(self) -> Source:
        return self._source

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if the query cannot go on from an offset: it reads another table,
        or one whose history is another."""
        of = offset.get("of")
        if of is not None and of != self._origin:
            raise DataLossError(
                f"the query that writes {self._spec.target.identifier} has read {of} so far, and "
                f"its SELECT now reads {self._origin}: its offsets are not those of this source. "
                "Go on with the old FROM, run the script with --from-scratch to start anew, or "
                "SET another 'pipeline.name'"
            )
        if offset and isinstance(self._source, Checked):
            self._source.check(offset["source"])

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end of the next batch; `start` itself when nothing came and no row is due."""
        now = max(time.time_ns() // 1_000_000, int(start.get("now", 0)) + 1)
        before: Offset = start["source"] if start else self._source.initial_offset()
        source = self._source.latest_offset(before, max_rows)
        waiting = None if self._pending is None else self._pending.waiting()
        due = waiting is not None and waiting.due(now)
        if source == before and not due:
            return start
        end = {
            "batch": int(start.get("batch", -1)) + 1,
            "now": now,
            "of": self._origin,
            "source": source,
            **self._pins.chosen(start, now, preload_reports.loaded(self._folder, start)),
            "pending": (waiting.snapshot or 0) if due and waiting is not None else 0,
            **self._distinct(),
        }
        if self._small is not None:
            self._small.plan(start, end)
        return end

    def _distinct(self) -> Offset:
        """The snapshot of the counted values before the batch; 0 before the first."""
        address = self._spec.distinct
        return {} if address is None else {"distinct": address.open().latest_snapshot_id() or 0}

    def tasks(self, start: Offset, end: Offset, one: bool = False) -> list[TaskInput]:
        """The tasks of the batch from `start` to `end`; at least one, and no more with `one`."""
        if start == end:
            return []
        before: Offset = start["source"] if start else self._source.initial_offset()
        parallelism = 1 if one or self._one_task else self._spec.parallelism
        pieces: Sequence[Any] = []
        if before != end["source"]:
            pieces = self._source.partitions(before, end["source"], parallelism)
        count = max(1, min(parallelism, len(pieces)))
        shares = self._shares(pieces, parallelism // count)
        bounds = [len(pieces) * i // count for i in range(count + 1)]
        groups = [tuple(pieces[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]
        return [
            TaskInput(i, start, end, group, i == 0 and end["pending"] > 0, share, shares)
            for i, (group, share) in enumerate(product(groups, range(shares)))
        ]

    def _shares(self, pieces: Sequence[Any], most: int) -> int:
        """How many tasks share a piece: one large file is one piece, and may be all there is.

        Only pieces that know how many rows they have give them in one order whoever reads them.
        """
        if most < 2 or self._spec.shuffle is not None:
            return 1
        rows = [getattr(piece, "rows", None) for piece in pieces]
        known = [count for count in rows if count is not None]
        return most if len(known) == len(rows) and sum(known) >= SHARED_ROWS else 1

    def committed(self, end: Offset) -> None:
        if end:
            self._source.committed(end["source"])

    def settled(self, start: Offset) -> bool:
        """Whether there is nothing after `start`, nothing waits, and a bounded source has ended."""
        before: Offset = start["source"] if start else self._source.initial_offset()
        if getattr(self._source, "bounded", False) and not self._source.finished(before):
            return False
        if self._pending is not None and self._pending.waiting().rows:
            return False
        if isinstance(self._source, Settling):
            return self._source.settled(before)
        return self._source.latest_offset(before) == before

    def lag(self, start: Offset) -> Lag | None:
        """How far `start` is behind what the source has, where that can be told."""
        if not isinstance(self._source, Lagging):
            return None
        return self._source.lag(start["source"] if start else self._source.initial_offset())

    def close(self) -> None:
        self._source.close()
