"""The source of a query, and its offset in the offset of a batch.

The offset of a batch has the source's offset under `source`, and what that is an offset of
(`SourceSpec.origin`) under `of`.
"""

from __future__ import annotations

from streamhouse.connectors.bad_records import DeadLetterReplays, SkippingSource
from streamhouse.errors import DataLossError
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import Lag, Offset, Source


def source_offset(offset: Offset) -> Offset:
    """The source's offset in the offset of a batch; `{}` before the first batch."""
    found: Offset = offset["source"] if offset else {}
    return found


def open_source(spec: QuerySpec) -> Source:
    """Open the source; raises as `SourceSpec.open`.

    It has only the columns that the query needs, unless rows wait: those are kept as a whole.
    """
    opened = spec.source.open(spec.query.scan.columns if spec.retry is None else None)
    if spec.dead_letters is not None and isinstance(opened, SkippingSource):
        opened.replay_from(DeadLetterReplays(spec.dead_letters, spec.query_id))
    return opened


def source_caught_up(source: Source, offset: Offset) -> bool:
    """Whether a source has no rows after `offset`, and has ended if it is bounded."""
    return (not source.bounded or source.finished(offset)) and source.caught_up(offset)


class QuerySource:
    """The source of a query, `opened`, by the offsets of batches; driver only, not thread-safe."""

    def __init__(self, source: Source, origin: str, target: str) -> None:
        """`origin`: what its offsets belong to; `target`: its name, for messages."""
        self.opened = source
        self._origin = origin
        self._target = target

    @classmethod
    def open(cls, spec: QuerySpec) -> QuerySource:
        """Open the source of a query; raises as `SourceSpec.open`."""
        source = open_source(spec)
        try:
            return cls(source, spec.source.origin(spec.query.source.name), spec.target.identifier)
        except BaseException:
            source.close()
            raise

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if the query cannot resume from the offset of a batch.

        Its source is another table than before, or the table has another history.
        """
        if not offset:
            self.opened.check_start()
            return
        before = offset.get("of")
        if before is not None and before != self._origin:
            raise DataLossError(
                f"the query that writes {self._target} has read {before} so far, and its SELECT "
                f"now reads {self._origin}: its offsets are not those of this source. Go on with "
                "the old FROM, run the script with --from-scratch to start anew, or SET another "
                "'pipeline.name'"
            )
        self.opened.check(source_offset(offset))

    def offset(self, offset: Offset) -> Offset:
        """The source's offset at the end of a batch; its initial offset before the first."""
        return source_offset(offset) if offset else self.opened.initial_offset()

    def recorded(self, offset: Offset) -> Offset:
        """The entries `of` and `source` of a batch's offset."""
        return {"of": self._origin, "source": offset}

    def caught_up(self, offset: Offset) -> bool:
        """Whether the source has no rows after the offset of a batch, and a bounded one ended."""
        return source_caught_up(self.opened, self.offset(offset))

    def lag(self, offset: Offset) -> Lag | None:
        """The lag of a reader at the offset of a batch; None if the source does not know it."""
        return self.opened.lag(self.offset(offset))

    def rows_left(self, offset: Offset) -> int | None:
        """About how many rows of the source's snapshot are left; None if it is complete."""
        return self.opened.rows_left(self.offset(offset))
