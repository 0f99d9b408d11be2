"""Counts the changes that a reader of the binlog returns, by their row kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.source import ROW_KIND


class ChangeCounts:
    """Counts rows by their kinds."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch) -> None:
        """Count rows, which have a row kind."""
        for counted in pc.value_counts(rows.column(ROW_KIND)).to_pylist():
            self._counts[counted["values"]] += counted["counts"]

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and count their rows."""
        for batch in batches:
            self.add(batch)
            yield batch

    def taken(self) -> dict[str, int]:
        """How many rows there were of each kind since the last call."""
        counts, self._counts = self._counts, Counter()
        return dict(counts)
