"""The tables that a query looks up, as one process has them, bound to its kernel."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.lookup.bucket import BucketDimension
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategy import Choice, open_dimension
from streamhouse.runtime.kernel import Kernel
from streamhouse.runtime.pins import pinned_partitions
from streamhouse.source import Offset


class Dimensions:
    """Dimensions that stay open between batches; `specs` and `choices` are in the query's order."""

    def __init__(self, specs: Sequence[DimensionSpec], choices: Sequence[Choice]) -> None:
        self._lookups = [spec.lookup for spec in specs]
        self._open = [open_dimension(*pair) for pair in zip(specs, choices, strict=True)]

    def at(self, end: Offset) -> None:
        """Go to the versions that the offset of a batch names (see `runtime.pins`)."""
        for lookup, dimension in zip(self._lookups, self._open, strict=True):
            snapshot: int = end["dims"][lookup.relation]
            dimension.at(snapshot or None, pinned_partitions(end, lookup.relation))

    def take(self, task: int, count: int) -> None:
        """Where a dimension's buckets are spread over tasks, hold those of one of `count`."""
        for dimension in self._open:
            if isinstance(dimension, BucketDimension):
                dimension.take(task, count)

    def bind(self, kernel: Kernel, src: pa.Table) -> None:
        """Give the kernel the rows of all dimensions that the rows of `src` may join.

        In the order of the joins, since a lookup may look for what one before it has found.
        """
        for lookup, dimension in zip(self._lookups, self._open, strict=True):
            keys = None
            if dimension.keyed:
                assert lookup.keys_sql is not None
                keys = kernel.keys(lookup.keys_sql, src)
            kernel.bind_dimension(lookup.relation, dimension.rows(keys))

    def close(self) -> None:
        """Free what they hold."""
        for dimension in self._open:
            dimension.close()
