"""Plans the micro-batches of a continuous query: their offsets and tasks.

The offset at which a batch ends determines all that the batch reads. It is a JSON object:

- `batch`: the number of the batch, from 0;
- `now`: the time of the batch in epoch milliseconds, which CURRENT_TIMESTAMP returns in it;
- `source`: the offset of the source, and `of`: the source that this offset belongs to
  (`runtime.query_source`);
- `dims`: the snapshot of each lookup's table (0: before the first), with the keys that
  `streaming.dimensions.versions` adds;
- `watermark`: that of the rows before, if the query has CURRENT_WATERMARK (`streaming.watermark`);
- `pending`: the snapshot of the pending table. 0 if the batch does not read that table: no row
  of it is due, and none must be written before later rows.

The query logs the offset before the batch runs, so a batch that runs again reads exactly
the same rows.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from streamhouse.runtime.query_source import (
    check_offset,
    offset_of,
    open_source,
    source_caught_up,
    source_offset,
)
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.batch_logs import next_batch, next_time
from streamhouse.runtime.state.pending_rows import PendingRows, PendingState
from streamhouse.runtime.streaming.dimensions.versions import DimensionVersions, reported_loaded
from streamhouse.runtime.streaming.shuffle.blocks import WHOLE, skips_shuffle
from streamhouse.runtime.streaming.tasks.task_input import SplitsInput
from streamhouse.runtime.streaming.tasks.task_protocol import RowFiles
from streamhouse.runtime.streaming.watermark import before_batch
from streamhouse.source import Lag, Offset

_PENDING_WITHIN_S = 10.0
"""The greatest age of what is known about pending rows. Only this query writes its pending rows,
and commits from this machine are noticed at once."""
SHARED_ROWS = 500_000
"""From this number of rows on, several tasks share a split, if there are more tasks than splits."""


class BatchPlanner:
    """Plans the batches of one query; driver only."""

    def __init__(self, spec: QuerySpec, folder: Path | None = None) -> None:
        """`folder` is the query's run folder, with the reports of preloads."""
        self._folder = folder
        self._spec = spec
        self._origin = spec.source.origin(spec.query.source.name)
        self.source = open_source(spec)
        if not spec.keeps_rows():
            self.source.allow_large_batches()
        self._one_task = spec.one_task(self.source)
        self._versions = DimensionVersions(spec.dimensions(), spec.strategies)
        self._pending = None if spec.pending is None else PendingRows(spec.pending, spec.query_id)

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end offset of the next batch; `start` if nothing is new and no pending row is due."""
        now = next_time(start)
        before = offset_of(self.source, start)
        after = self.source.latest_offset(before, max_rows)
        waiting = None if self._pending is None else self._pending.waiting(_PENDING_WITHIN_S)
        due = waiting is not None and waiting.due(now)
        if after == before and not due:
            return start
        end = {
            "batch": next_batch(start),
            "now": now,
            "of": self._origin,
            "source": after,
            **self._versions.offset_keys(start, now, reported_loaded(self._folder, start)),
            "pending": self._pending_snapshot(waiting, due),
        }
        if self._spec.query.scan.watermarks and self._folder is not None:
            checkpoint = self._folder.parent
            end["watermark"] = before_batch(checkpoint, self._spec.query, start, now)
        if self._spec.shuffle is not None:
            end[WHOLE] = skips_shuffle(self._spec, self.source, start, end)
        return end

    def _pending_snapshot(self, waiting: PendingState | None, due: bool) -> int:
        """The snapshot of the waiting rows, if the batch retries them or must know them."""
        if waiting is None or not (due or (waiting.rows and self._spec.waits_in_order)):
            return 0
        return waiting.snapshot or 0

    def tasks(self, start: Offset, end: Offset) -> list[SplitsInput]:
        """The tasks of the batch from `start` to `end`: at least one, none if the two are equal."""
        if start == end:
            return []
        folder, shuffles = self._folder, self._spec.shuffle is not None
        single = shuffles and end.get(WHOLE, False)
        parallelism = 1 if single or self._one_task else self._spec.parallelism
        before, after = offset_of(self.source, start), offset_of(self.source, end)
        splits = []
        if before != after:
            splits = list(self.source.partitions(before, after, parallelism))
        count = max(1, min(parallelism, len(splits)))
        shares = self._shares(splits, parallelism // count)
        bounds = [len(splits) * i // count for i in range(count + 1)]
        groups = [tuple(splits[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]
        tail = shares, shuffles and not single, None if folder is None else RowFiles.at(folder)
        return [
            SplitsInput(i, start, end, group, i == 0 and end["pending"] > 0, share, *tail)
            for i, (group, share) in enumerate(product(groups, range(shares)))
        ]

    def _shares(self, splits: Sequence[Any], most: int) -> int:
        """How many tasks share each split: 1, or up to `most`, since a large file is one split.

        Splits are shared only if all report their number of rows: only these return their rows in
        the same order to every reader. A task that reorders rows needs all rows of a key.
        """
        if most < 2 or self._spec.shuffle is not None or self._spec.query.reorder_key:
            return 1
        rows: list[int | None] = [getattr(split, "rows", None) for split in splits]
        known = [count for count in rows if count is not None]
        return most if len(known) == len(rows) and sum(known) >= SHARED_ROWS else 1

    def committed(self, end: Offset) -> None:
        """Notify the source that the batch up to `end` is committed."""
        if end:
            self.source.committed(source_offset(end))

    def caught_up(self, start: Offset) -> bool:
        """Whether no rows are left after `start` or pending, and a bounded source has ended."""
        if self._pending is not None and self._pending.waiting().rows:
            return False
        return source_caught_up(self.source, offset_of(self.source, start))

    def lag(self, start: Offset) -> Lag | None:
        """How far `start` is behind the source; None if unknown."""
        return self.source.lag(offset_of(self.source, start))

    def rows_left(self, start: Offset) -> int | None:
        """About how many rows of the source's snapshot are left; None if it is complete."""
        return self.source.rows_left(offset_of(self.source, start))

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if the query cannot resume from the offset of a batch."""
        check_offset(self.source, self._origin, self._spec.target.identifier, offset)

    def close(self) -> None:
        self.source.close()
