"""Holds the dimensions of a query in one process, and binds their rows to its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.lookup.dimension import DimensionSpec, ServerRows
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
        self._servers: dict[str, ServerDimension] = {}
        self._held: dict[str, DoubleBufferedDimension] = {}
        for spec, choice in zip(specs, choices, strict=True):
            relation = spec.lookup.relation
            if spec.lookup.on_server:
                # The modules for MySQL are slow to import.
                from streamhouse.lookup.strategies.server_lookup import ServerDimension

                self._servers[relation] = ServerDimension(spec)
            else:
                early = refresh_rule(spec.lookup, choice).behind > 0
                dimension = open_dimension(spec, choice)
                self._held[relation] = DoubleBufferedDimension(dimension, early)

    def at(self, end: Offset, recorded: Mapping[str, pa.Table] | None = None) -> None:
        """Switch to the versions in the offset of a batch (see `versions`).

        Also starts the preload of `coming` versions. `recorded` is what an earlier run of the batch
        found on servers.
        """
        for relation, server in self._servers.items():
            server.begin(None if recorded is None else recorded[relation])
        for relation, held in self._held.items():
            version = end["dims"][relation], pinned_partitions(end, relation)
            held.at(version, preloading_version(end, relation))

    def loaded(self, end: Offset) -> list[str]:
        """The relations whose `coming` version a batch can join in this process without waiting.

        These are preloaded, their preload has failed, or their strategy needs no preload.
        """
        coming = ((relation, preloading_version(end, relation)) for relation in self._held)
        return [name for name, next_ in coming if next_ and self._held[name].loaded(next_)]

    def kept(self) -> dict[str, list[tuple[int, int]]]:
        """What this process keeps of each Paimon table, by relation; see `TableDimension.kept`."""
        return {relation: held.current.kept() for relation, held in self._held.items()}

    def server_rows(self) -> dict[str, ServerRows]:
        """The rows that the batch has found on servers so far, by relation."""
        return {relation: server.server_rows() for relation, server in self._servers.items()}

    def take(self, task: int, count: int) -> None:
        """In a bucket shuffle, hold only the buckets of task number `task` of `count`."""
        for held in self._held.values():
            held.take(task, count)

    def bind(self, operator: QueryOperator, src: pa.Table) -> None:
        """Bind to the operator all dimension rows that the rows of `src` may join.

        Binds in the order of the joins, since the keys of a lookup may be columns of an earlier
        one.
        """
        for lookup in self._lookups:
            server, keys = self._servers.get(lookup.relation), None
            dimension = self._held[lookup.relation].current if server is None else server
            if dimension.keyed:
                assert lookup.keys_sql is not None
                keys = operator.keys(lookup.keys_sql, src)
            operator.bind_dimension(lookup.relation, dimension.rows(keys))

    def close(self) -> None:
        """Free memory and files."""
        for server in self._servers.values():
            server.close()
        for held in self._held.values():
            held.close()
