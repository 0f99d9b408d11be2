"""A continuous query for its pipeline and its reports: a description, and its progress."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.source import Lag, Offset
from streamhouse.sql.plan import Name

Strategy: TypeAlias = Literal["incremental", "recomputed"]


@dataclass(frozen=True)
class QueryDescription:
    """Names one query of a pipeline, what it reads and where it writes.

    `part` is its unique name in the pipeline, that of its checkpoint. `target` is the name of what
    it writes, `address` the same with its warehouse; of a sync only the warehouse counts.

    `reads` is the full name of its source, and `looks_up` are those of its lookup tables
    (`database.table`), for reports. `source`: the one that a pipeline can share. `source_tables`
    and `lookups` are the Paimon tables among them. `strategy`: how it keeps its target up to date.
    """

    pipeline: str
    part: str
    target: str
    address: TableAddress
    checkpoint_path: Path
    reads: Name
    looks_up: tuple[str, ...] = ()
    source: SourceSpec | None = None
    source_tables: tuple[TableAddress, ...] = ()
    lookups: tuple[TableAddress, ...] = ()
    strategy: Strategy = "incremental"

    def follows(self) -> list[TableAddress]:
        """The Paimon tables whose compaction makes rows visible to the query."""
        return [*self.source_tables, *(at for at in self.lookups if hides_new_rows(at.open()))]


class Planner(Protocol):
    """Plans the batches of a query, and tells how far they are; on the driver.

    `start`: the offset at which a batch begins.
    """

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end offset of the next batch; `start` if there is nothing to do."""

    def tasks(self, start: Offset, end: Offset) -> Sequence[Any]:
        """The picklable tasks of a batch; none if the offsets are equal."""

    def committed(self, end: Offset) -> None:
        """Called once the batch up to `end` is committed."""

    def caught_up(self, start: Offset) -> bool: ...
    def lag(self, start: Offset) -> Lag | None: ...
    def rows_left(self, start: Offset) -> int | None: ...
    def close(self) -> None: ...


class QueryProgress:
    """How far a query has read its sources, which it compares by its `planner`.

    `last_offset`: the end of the last committed batch; `{}` before the first. `replayed`: no
    interrupted batch of an earlier run is left to run again.
    """

    def __init__(self, last_offset: Offset, replayed: bool) -> None:
        self.last_offset, self.replayed = last_offset, replayed
        self.planner: Planner | None = None
        self._running = False

    def committed(self, end: Offset) -> None:
        """Note that the batch up to `end` is committed."""
        self.last_offset, self.replayed = end, True

    @contextmanager
    def batch(self) -> Iterator[None]:
        """While a batch runs."""
        self._running = True
        try:
            yield
        finally:
            self._running = False

    def close(self) -> None:
        """Close the planner."""
        planner, self.planner = self.planner, None
        if planner is not None:
            planner.close()

    def caught_up_offset(self) -> Offset | None:
        """The last offset if nothing is left to do, else None."""
        assert self.planner is not None
        if self._running:
            # Checking the sources would take processor time from the batch.
            return None
        return self.last_offset if self.planner.caught_up(self.last_offset) else None

    def lag(self) -> Lag | None:
        """How far the query is behind its sources; None if unknown."""
        return None if self.planner is None else self.planner.lag(self.last_offset)

    def rows_left(self) -> int | None:
        """About how many rows of its sources' snapshots are left; None once they are complete."""
        return None if self.planner is None else self.planner.rows_left(self.last_offset)
