"""The inputs of a query: its sources, each with its own offset in the offset of a batch.

The offset of a batch has the sources' offsets under `source`, and what they are offsets of
(`SourceSpec.origin`) under `of`: one value if the query has one source, else a list of values in
the order of `QuerySpec.sources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamhouse.connectors.dead_letter_table import DeadLetterReplays, SkippingSource
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import DataLossError
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import Lag, Offset, Source

Offsets: TypeAlias = tuple[Offset, ...]
"""One offset for each source, in the order of `QuerySpec.sources`."""


@dataclass(frozen=True)
class SourceSplit:
    """What a task reads at once: one of `Source.partitions`.

    `source` is the index of the source in `QuerySpec.sources`.
    """

    source: int
    partition: Any = field(repr=False)

    @property
    def rows(self) -> int | None:
        """The number of rows, if it is known before they are read."""
        rows: int | None = getattr(self.partition, "rows", None)
        return rows


def source_offsets(offset: Offset) -> Offsets:
    """The sources' offsets in the offset of a batch; empty before the first batch."""
    return _values(offset["source"]) if offset else ()


def _values(recorded: Any) -> tuple[Any, ...]:
    return tuple(recorded) if isinstance(recorded, list) else (recorded,)


def _record(values: Sequence[Any]) -> Any:
    return list(values) if len(values) > 1 else values[0]


def open_source(spec: QuerySpec, source: SourceSpec, pruned: bool = True) -> Source:
    """Open a source of a query; raises as `SourceSpec.open`. `pruned`: only the columns needed."""
    opened = source.open(spec.query.scan.columns if pruned else None)
    if spec.dead_letters is not None and isinstance(opened, SkippingSource):
        opened.replay_from(DeadLetterReplays(spec.dead_letters, spec.query_id))
    return opened


class QuerySources:
    """The open sources of a query, and their offsets; driver only, not thread-safe."""

    def __init__(self, sources: Sequence[Source], origins: Sequence[str], target: str) -> None:
        """`origins`: what the sources' offsets belong to; `target`: its name, for messages."""
        self._sources = list(sources)
        self._origins = list(origins)
        self._target = target

    @classmethod
    def open(cls, spec: QuerySpec) -> QuerySources:
        """Open the sources of a query; raises as `SourceSpec.open`."""
        sources: list[Source] = []
        try:
            for source in spec.sources:
                sources.append(open_source(spec, source))
            origins = [source.origin(spec.query.source.name) for source in spec.sources]
        except BaseException:
            for opened in sources:
                opened.close()
            raise
        return cls(sources, origins, spec.target.identifier)

    @property
    def sources(self) -> list[Source]:
        """The sources, in the order of `QuerySpec.sources`."""
        return list(self._sources)

    def allow_large_batches(self) -> None:
        """Called if tasks write rows as they read them; see `Source.allow_large_batches`."""
        for source in self._sources:
            source.allow_large_batches()

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if a query cannot resume from the offset of a batch.

        Its sources are other tables than before, or a table has another history.
        """
        if not offset:
            for source in self._sources:
                source.check_start()
        before = _values(offset["of"]) if offset.get("of") is not None else None
        if before is not None and list(before) != self._origins:
            raise DataLossError(
                f"the query that writes {self._target} has read {' and '.join(before)} so far, and "
                f"its SELECT now reads {' and '.join(self._origins)}: its offsets are not those of "
                "this source. Go on with the old FROM, run the script with --from-scratch to start "
                "anew, or SET another 'pipeline.name'"
            )
        for source, position in zip(self._sources, source_offsets(offset), strict=bool(offset)):
            source.check(position)

    def offsets(self, offset: Offset) -> Offsets:
        """The sources' offsets at the end of a batch; their initial offsets before the first."""
        if offset:
            return source_offsets(offset)
        return tuple(source.initial_offset() for source in self._sources)

    def latest(self, before: Offsets, max_rows: int | None = None) -> Offsets:
        """The newest offsets after `before`; `max_rows` is shared evenly by the sources."""
        most = None if max_rows is None else max(1, max_rows // len(self._sources))
        return tuple(
            source.latest_offset(offset, most)
            for source, offset in zip(self._sources, before, strict=True)
        )

    def recorded(self, offsets: Offsets) -> Offset:
        """The entries `of` and `source` of a batch's offset."""
        return {"of": _record(self._origins), "source": _record(offsets)}

    def splits(self, before: Offsets, end: Offsets, parallelism: int) -> list[SourceSplit]:
        """The rows between two offsets of each source, as splits in the order of the sources."""
        return [
            SourceSplit(number, partition)
            for number, source in enumerate(self._sources)
            if before[number] != end[number]
            for partition in source.partitions(before[number], end[number], parallelism)
        ]

    def rows(self, before: Offsets, end: Offsets) -> int | None:
        """The number of rows between two offsets of each source; None if it is unknown."""
        total = 0
        for source, first, last in zip(self._sources, before, end, strict=True):
            rows = source.rows(first, last)
            if rows is None:
                return None
            total += rows
        return total

    def caught_up(self, offset: Offset) -> bool:
        """Whether no source has rows after the offset of a batch, and all bounded ones ended."""
        before = self.offsets(offset)
        return all(
            source_caught_up(source, at) for source, at in zip(self._sources, before, strict=True)
        )

    def lag(self, offset: Offset) -> Lag | None:
        """The lag of a reader at the offset of a batch; None if no source knows it."""
        before = self.offsets(offset)
        lags = [source.lag(at) for source, at in zip(self._sources, before, strict=True)]
        return _combined([lag for lag in lags if lag is not None])

    def rows_left(self, offset: Offset) -> int | None:
        """About how many rows of the sources' snapshots are left; None if they are complete."""
        before = self.offsets(offset)
        lefts = [source.rows_left(at) for source, at in zip(self._sources, before, strict=True)]
        known = [left for left in lefts if left is not None]
        return sum(known) if known else None

    def committed(self, end: Offset) -> None:
        """Tell the sources that a batch up to `end` was committed."""
        for source, offset in zip(self._sources, source_offsets(end), strict=bool(end)):
            source.committed(offset)

    def close(self) -> None:
        """Close all sources."""
        for source in self._sources:
            source.close()


def source_caught_up(source: Source, offset: Offset) -> bool:
    """Whether a source has no rows after `offset`, and has ended if it is bounded."""
    return (not source.bounded or source.finished(offset)) and source.caught_up(offset)


def _combined(lags: Sequence[Lag]) -> Lag | None:
    """The longest delay and the sums of what is unread; None if there are no lags."""
    if len(lags) < 2:
        return lags[0] if lags else None

    def known(name: str) -> list[Any]:
        values = (getattr(lag, name) for lag in lags)
        return [value for value in values if value is not None]

    def total(name: str) -> int | None:
        return sum(known(name)) if known(name) else None

    return Lag(
        max(known("seconds"), default=None),
        total("rows"), total("snapshots"), total("bytes"), total("waiting_rows"),
    )  # fmt: skip
