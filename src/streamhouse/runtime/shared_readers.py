"""Shared source readers of a pipeline: one per connector reads for all its queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamhouse.connectors.registry import connector

if TYPE_CHECKING:
    from streamhouse.connectors.mysql_cdc.relay.relays import Relays
    from streamhouse.runtime.streaming.query import JobQuery


class SharedReaders:
    """Starts the readers that a pipeline's queries share, and raises their errors."""

    def __init__(self) -> None:
        self._readers: dict[str, Relays] = {}

    def start(self, queries: Sequence[JobQuery]) -> None:
        """Start the readers that these queries share; call it before the queries are prepared."""
        groups: dict[str, list[JobQuery]] = {}
        for query in queries:
            if query.source_spec is not None:
                groups.setdefault(query.source_spec.connector, []).append(query)
        for name, sharing in groups.items():
            reader = self._readers.get(name) or connector(name).shared_reader()
            if reader is not None:
                self._readers[name] = reader
                reader.start(sharing)

    def step(self) -> None:
        """Raise the error that ended a reader; drop data that no query needs any more."""
        for reader in self._readers.values():
            reader.step()

    def close(self) -> None:
        """Stop all readers."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()
