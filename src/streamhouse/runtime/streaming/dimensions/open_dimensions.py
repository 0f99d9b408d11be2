"""Holds the dimensions of a query in one process, and binds their rows to its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from streamhouse.lookup.dimension import Dimension, DimensionSpec, ServerRows, is_server
from streamhouse.lookup.strategies.background_refresh import DoubleBufferedDimension
from streamhouse.lookup.strategies.selection import Choice, open_dimension, refresh_rule
from streamhouse.runtime.query_operator import QueryOperator
from streamhouse.runtime.streaming.dimensions.versions import pinned_partitions, preloading_version
from streamhouse.source import Offset

if TYPE_CHECKING:
    from streamhouse.lookup.strategies.server_lookup import ServerDimension


class Dimensions:
    """Dimensions that stay open between batches; `specs` and `choices` are in the query's order."""

    def __init__(self, specs: Sequence[DimensionSpec], choices: Sequence[Choice]) -> None:
        self._lookups = [spec.lookup for spec in specs]
        self._held = [
            DoubleBufferedDimension(open_dimension(spec, choice), _early(spec, choice))
            for spec, choice in zip(specs, choices, strict=True)
        ]

    def at(self, end: Offset, recorded: Mapping[str, pa.Table] | None = None) -> None:
        """Switch to the versions in the offset of a batch (see `versions`).

        Also starts the preload of `coming` versions. `recorded` is what an earlier run of the batch
        found on servers.
        """
        for lookup, held in zip(self._lookups, self._held, strict=True):
            relation = lookup.relation
            if is_server(lookup):
                _server(held.current).begin(None if recorded is None else recorded[relation])
                continue
            version = end["dims"][relation], pinned_partitions(end, relation)
            held.at(version, preloading_version(end, relation))

    def loaded(self, end: Offset) -> list[str]:
        """The relations whose `coming` version a batch can join in this process without waiting.

        These are preloaded, their preload has failed, or their strategy needs no preload.
        """
        found = []
        for lookup, held in zip(self._lookups, self._held, strict=True):
            next_version = preloading_version(end, lookup.relation)
            if next_version is not None and held.loaded(next_version):
                found.append(lookup.relation)
        return found

    def server_rows(self) -> dict[str, ServerRows]:
        """The rows that the batch has found on servers so far, by relation."""
        return {
            lookup.relation: _server(held.current).server_rows()
            for lookup, held in zip(self._lookups, self._held, strict=True)
            if is_server(lookup)
        }

    def take(self, task: int, count: int) -> None:
        """In a bucket shuffle, hold only the buckets of task number `task` of `count`."""
        for held in self._held:
            held.take(task, count)

    def bind(self, operator: QueryOperator, src: pa.Table) -> None:
        """Bind to the operator all dimension rows that the rows of `src` may join.

        Binds in the order of the joins, since the keys of a lookup may be columns of an earlier
        one.
        """
        for lookup, held in zip(self._lookups, self._held, strict=True):
            keys = None
            if held.current.keyed:
                assert lookup.keys_sql is not None
                keys = operator.keys(lookup.keys_sql, src)
            operator.bind_dimension(lookup.relation, held.current.rows(keys))

    def close(self) -> None:
        """Free memory and files."""
        for held in self._held:
            held.close()


def _early(spec: DimensionSpec, choice: Choice) -> bool:
    return not is_server(spec.lookup) and refresh_rule(spec.lookup, choice).behind > 0


def _server(dimension: Dimension) -> ServerDimension:
    return cast("ServerDimension", dimension)
