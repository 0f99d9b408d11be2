"""The tables that a query looks up, as one process has them, bound to its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from streamhouse.lookup.bucket import BucketDimension
from streamhouse.lookup.dimension import Dimension, DimensionSpec, Taken, is_server
from streamhouse.lookup.strategy import Choice, open_dimension
from streamhouse.runtime.kernel import Kernel
from streamhouse.runtime.pins import pinned_partitions
from streamhouse.source import Offset

if TYPE_CHECKING:
    from streamhouse.lookup.server import ServerDimension


class Dimensions:
    """Dimensions that stay open between batches; `specs` and `choices` are in the query's order."""

    def __init__(self, specs: Sequence[DimensionSpec], choices: Sequence[Choice]) -> None:
        self._lookups = [spec.lookup for spec in specs]
        self._open = [open_dimension(*pair) for pair in zip(specs, choices, strict=True)]

    def at(self, end: Offset, recorded: Mapping[str, pa.Table] | None = None) -> None:
        """Go to the versions that the offset of a batch names (see `runtime.pins`).

        `recorded` is what the batch found on servers when it ran before.
        """
        for lookup, dimension in zip(self._lookups, self._open, strict=True):
            if is_server(lookup):
                found = None if recorded is None else recorded[lookup.relation]
                _server(dimension).begin(found)
                continue
            snapshot: int = end["dims"][lookup.relation]
            dimension.at(snapshot or None, pinned_partitions(end, lookup.relation))

    def taken(self) -> dict[str, Taken]:
        """What the batch has found on servers so far, by relation."""
        return {
            lookup.relation: _server(dimension).taken()
            for lookup, dimension in zip(self._lookups, self._open, strict=True)
            if is_server(lookup)
        }

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


def _server(dimension: Dimension) -> ServerDimension:
    return cast("ServerDimension", dimension)
