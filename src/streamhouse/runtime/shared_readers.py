"""Shared source readers of a pipeline: one per connector reads once for all its queries."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.connectors.base import SharedReader, SharingQuery
from streamhouse.connectors.registry import connector


class SharedReaders:
    """Starts the readers that a pipeline's queries share, and raises their errors."""

    def __init__(self) -> None:
        self._readers: dict[str, SharedReader] = {}

    def start(self, queries: Sequence[SharingQuery]) -> None:
        """Start the readers that these queries share; call it before the queries are prepared."""
        for name in {query.source.connector: None for query in queries}:
            if name not in self._readers:
                reader = connector(name).shared_reader()
                if reader is None:
                    continue
                self._readers[name] = reader
            followers = [query for query in queries if query.source.connector == name]
            self._readers[name].start(followers)

    def step(self) -> None:
        """Raise the error that ended a reader; drop data that no query needs any more."""
        for reader in self._readers.values():
            reader.step()

    def close(self) -> None:
        """Stop all readers."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()
