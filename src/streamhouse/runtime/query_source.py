"""The source of a query, and its offset in the offset of a batch.

The offset of a batch has the source's offset under `source`, and what that is an offset of
(`SourceSpec.origin`) under `of`.
"""

from streamhouse.connectors.bad_records import DeadLetterReplays, SkippingSource
from streamhouse.errors import DataLossError
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import Offset, Source


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


def offset_of(source: Source, offset: Offset) -> Offset:
    """The source's offset at the end of a batch; its initial offset before the first."""
    return source_offset(offset) if offset else source.initial_offset()


def check_offset(source: Source, origin: str, target: str, offset: Offset) -> None:
    """Raise `DataLossError` if a query cannot resume from the offset of a batch.

    Its source is another table than before, or the table has another history. `origin`: what the
    offsets of `source` belong to; `target`: the name of what the query writes, for messages.
    """
    if not offset:
        source.check_start()
        return
    before = offset.get("of")
    if before is not None and before != origin:
        raise DataLossError(
            f"the query that writes {target} has read {before} so far, and its SELECT "
            f"now reads {origin}: its offsets are not those of this source. Go on with "
            "the old FROM, run the script with --from-scratch to start anew, or SET another "
            "'pipeline.name'"
        )
    source.check(source_offset(offset))
