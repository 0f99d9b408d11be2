"""Shared source readers of a pipeline: one per connector reads for all its queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.connectors.base import SharedReader
from streamhouse.connectors.registry import connector
from streamhouse.connectors.specs import SourceSpec
from streamhouse.runtime.query_sources import source_offsets
from streamhouse.source import Offset

if TYPE_CHECKING:
    from streamhouse.runtime.streaming.query import JobQuery


class FollowedSource:
    """One source of a continuous query; the `SharingSource` of a shared reader."""

    def __init__(self, query: JobQuery, number: int) -> None:
        """`number`: the index of the source in the description's `sources`."""
        self._query, self._number = query, number

    @property
    def spec(self) -> SourceSpec:
        return self._query.description.sources[self._number]

    @property
    def checkpoint_path(self) -> Path:
        return self._query.description.checkpoint_path

    @property
    def last_offset(self) -> Offset:
        offsets = source_offsets(self._query.progress.last_offset)
        return offsets[self._number] if offsets else {}

    def use_shared(self, folder: Path) -> None:
        self._query.use_shared(self._number, folder)


class SharedReaders:
    """Starts the readers that a pipeline's queries share, and raises their errors."""

    def __init__(self) -> None:
        self._readers: dict[str, SharedReader] = {}

    def start(self, queries: Sequence[JobQuery]) -> None:
        """Start the readers that these queries share; call it before the queries are prepared."""
        sources = [
            FollowedSource(query, number)
            for query in queries
            for number in range(len(query.description.sources))
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
