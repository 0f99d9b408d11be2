"""The batches of a table's queries as its lineage records them, with what each computed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.lineage import recorded_lineage
from streamhouse.runtime.state.recorded_query import spec_of
from streamhouse.source import Offset


@dataclass(frozen=True)
class Batch:
    """One row of a lineage table."""

    query_id: str
    number: int
    fingerprint: str
    start: Offset
    end: Offset

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Batch:
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


@dataclass(frozen=True)
class RecordedBatches:
    """The batches of a table: `of_query` by query, each in order; `definitions` by fingerprint."""

    target: TableAddress
    batches: tuple[Batch, ...]
    definitions: Mapping[str, str]

    @classmethod
    def read(cls, target: TableAddress) -> RecordedBatches:
        """Read the lineage of a table; `TableError` if it has none."""
        rows = recorded_lineage(target)
        definitions = {row["fingerprint"]: row["definition"] for row in rows if row["definition"]}
        return cls(target, tuple(map(Batch.of, rows)), definitions)

    @cached_property
    def of_query(self) -> Mapping[str, list[Batch]]:
        queries: dict[str, list[Batch]] = {}
        for batch in self.batches:
            queries.setdefault(batch.query_id, []).append(batch)
        return queries

    @property
    def last(self) -> Mapping[str, Batch]:
        """The last batch of each query."""
        return {user: batches[-1] for user, batches in self.of_query.items()}

    def spec(self, batch: Batch) -> QuerySpec:
        """The query that ran a batch; `TableError` if the lineage lacks its definition."""
        definition = self.definitions.get(batch.fingerprint)
        if definition is None:
            raise TableError(
                f"the lineage of {self.target.identifier} lacks the definition of query "
                f"{batch.fingerprint[:12]}: rows of the lineage were deleted"
            )
        return spec_of(definition, self.target, batch.query_id)
