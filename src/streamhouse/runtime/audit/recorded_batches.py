"""Batches of a table's queries as its lineage records them, and what these have not read yet."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from types import MappingProxyType
from typing import Any, Self

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.invisible_rows import InvisibleRows
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.lineage import recorded_lineage
from streamhouse.runtime.state.recorded_query import spec_of
from streamhouse.source import Lag, Offset


@dataclass(frozen=True)
class Batch:
    """One row of a lineage table."""

    query_id: str
    number: int
    fingerprint: str
    start: Offset
    end: Offset

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The batch of a row that `read_lineage` returned."""
        return cls(
            row["query_id"],
            row["batch_id"],
            row["fingerprint"],
            json.loads(row["start_offset"]),
            json.loads(row["end_offset"]),
        )

    @property
    def now_ms(self) -> int:
        return int(self.end["now"])


class Commits:
    """The snapshots of a table in which its queries have committed batches."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        """`snapshots`: newest first."""
        self._of: dict[str, tuple[list[int], list[int]]] = {}
        for snapshot in reversed(list(snapshots)):
            numbers, ids = self._of.setdefault(snapshot.commit_user, ([], []))
            numbers.append(snapshot.commit_identifier)
            ids.append(snapshot.id)

    def first_from(self, user: str, number: int) -> int | None:
        """The snapshot of a query's first commit of batch `number` or a later one."""
        numbers, ids = self._of.get(user, ([], []))
        return next(iter(ids[bisect_left(numbers, number) :]), None)

    def last_up_to(self, batch: Batch) -> int:
        """The snapshot of the query's last commit up to a batch, which may have written nothing.

        0 if there is none.
        """
        numbers, ids = self._of.get(batch.query_id, ([], []))
        return next(iter(ids[: bisect_right(numbers, batch.number)][-1:]), 0)

    def in_snapshot(self, user: str, snapshot: int) -> tuple[int | None, int | None]:
        """The last batch of a query that a snapshot has, and the first that was committed after."""
        numbers, ids = self._of.get(user, ([], []))
        count = bisect_right(ids, snapshot)
        return next(iter(numbers[:count][-1:]), None), next(iter(numbers[count:]), None)


@dataclass(frozen=True)
class RecordedBatches:
    """The batches of a table: `of_query` by query, each in order; `definitions` by fingerprint."""

    target: TableAddress
    batches: tuple[Batch, ...]
    definitions: Mapping[str, str]

    @classmethod
    def read(cls, target: TableAddress, after: Mapping[str, int] = MappingProxyType({})) -> Self:
        """Read the lineage of a table; `TableError` if it has none.

        `after`: the batch of each query after which batches count; by default all count.
        """
        rows = recorded_lineage(target)
        definitions = {row["fingerprint"]: row["definition"] for row in rows if row["definition"]}
        later = (row for row in rows if row["batch_id"] > after.get(row["query_id"], -1))
        return cls(target, tuple(map(Batch.of, later)), definitions)

    @cached_property
    def of_query(self) -> Mapping[str, list[Batch]]:
        by_query = groupby(self.batches, key=lambda batch: batch.query_id)
        return {user: list(batches) for user, batches in by_query}

    @property
    def last(self) -> Mapping[str, Batch]:
        """The last batch of each query."""
        return {user: batches[-1] for user, batches in self.of_query.items()}

    def up_to(self, snapshot: int, user: str, commits: Commits) -> list[Batch]:
        """The batches of a query that a snapshot of the table has.

        Batches that wrote nothing make no snapshot; they count for the snapshot before them.
        """
        _, end = commits.in_snapshot(user, snapshot)
        return [b for b in self.of_query[user] if end is None or b.number < end]

    def spec(self, batch: Batch) -> QuerySpec:
        """The query that ran a batch; `TableError` if the lineage lacks its definition."""
        definition = self.definitions.get(batch.fingerprint)
        if definition is None:
            raise TableError(
                f"the lineage of {self.target.identifier} lacks the definition of query "
                f"{batch.fingerprint[:12]}: rows of the lineage were deleted"
            )
        return spec_of(definition, self.target, batch.query_id)


@dataclass(frozen=True)
class Unread:
    """What one query has not read of the table `table`.

    `snapshots` counts the snapshots with changes after its last batch; None if that is unknown,
    since the table was dropped or rolled back. `waiting_rows` counts committed rows that no stream
    sees before a compaction.
    """

    table: str
    snapshots: int | None
    waiting_rows: int

    def __str__(self) -> str:
        parts = []
        if self.snapshots is None:
            parts.append(f"{self.table}: the number of unread snapshots is unknown")
        elif self.snapshots:
            parts.append(f"{self.table}: {self.snapshots:,} snapshots are not read yet")
        if self.waiting_rows:
            parts.append(str(InvisibleRows(self.table, self.waiting_rows)))
        return "; ".join(parts)


def unread(recorded: RecordedBatches) -> tuple[Unread, ...]:
    """What is missing from a view, by source; empty if nothing is.

    Of several queries over one source, only the one that ran last counts: it replaced the others.
    """
    newest: dict[str, tuple[Batch, QuerySpec]] = {}
    for batch in sorted(recorded.last.values(), key=lambda entry: entry.now_ms):
        spec = recorded.spec(batch)
        if spec.source.address is not None:
            newest[spec.source.address.identifier] = (batch, spec)
    results = [_unread(name, *entry) for name, entry in sorted(newest.items())]
    return tuple(entry for entry in results if entry.snapshots != 0 or entry.waiting_rows)


def _unread(name: str, batch: Batch, spec: QuerySpec) -> Unread:
    """What a query has not read of its source."""
    try:
        with closing(spec.source.open(spec.query.scan.columns)) as source:
            lag = source.lag(source_offset(batch.end))
    except StreamhouseError:
        return Unread(name, None, 0)
    lag = lag or Lag()
    return Unread(name, lag.snapshots, lag.waiting_rows or 0)
