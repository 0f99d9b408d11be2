"""Shared source readers of a pipeline: one per connector reads for all its queries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamhouse.connectors.base import SharingSource
from streamhouse.connectors.registry import connector
from streamhouse.runtime.query_source import source_offset
from streamhouse.source import Offset

if TYPE_CHECKING:
    from streamhouse.connectors.mysql_cdc.relay.relays import Relays
    from streamhouse.runtime.streaming.query import JobQuery


class SharedReaders:
    """Starts the readers that a pipeline's queries share, and raises their errors."""

    def __init__(self) -> None:
        self._readers: dict[str, Relays] = {}

    def start(self, queries: Sequence[JobQuery]) -> None:
        """Start the readers that these queries share; call it before the queries are prepared."""
        sources = [
            SharingSource(
                query.description.source,
                query.description.checkpoint_path,
                partial(_last_offset, query),
                query.use_shared,
            )
            for query in queries
            if query.description.source is not None
        ]
        for name in {source.spec.connector: None for source in sources}:
            if name not in self._readers:
                reader = connector(name).shared_reader()
                if reader is None:
                    continue
                self._readers[name] = reader
            self._readers[name].start([s for s in sources if s.spec.connector == name])

    def step(self) -> None:
        """Raise the error that ended a reader; drop data that no query needs any more."""
        for reader in self._readers.values():
            reader.step()

    def close(self) -> None:
        """Stop all readers."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()


def _last_offset(query: JobQuery) -> Offset:
    return source_offset(query.progress.last_offset)
