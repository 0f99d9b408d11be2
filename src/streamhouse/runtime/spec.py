"""All that a task needs to know of one continuous query; picklable, fixed for the query's life."""

from __future__ import annotations

from dataclasses import dataclass

from streamhouse.connectors.base import Sink
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.lookup.dimension import DimensionSpec, is_server
from streamhouse.lookup.strategies.selection import BUCKET, Choice
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.kernel import Combine
from streamhouse.source import Source
from streamhouse.sql.plan import LookupJoin, LookupRetry, StreamQuery, TableInfo

LOOKED_UP = "looked_up"
"""What follows `__` in the name of the table of what was looked up on servers."""


@dataclass(frozen=True)
class QuerySpec:
    """One continuous query: what it computes, from where, into which tables.

    `query_id` is the id of its checkpoint and the commit user of all its commits. `lookups` are
    the tables of `query.lookups`, in order, `choices` how each is looked up (by default all are
    kept whole); of a server's table, `looked_up` stands there. Where one is looked up by bucket
    shuffle, `gathered` says that one task writes.
    `pending` and `unmatched` are there when a lookup has a retry policy, `distinct` when distinct
    values are counted.

    `sink` is None where `target` is a Paimon table; else it says where rows go, and `target` is
    only a name, beside which the query keeps its own tables.
    """

    query: StreamQuery
    source: SourceSpec
    lookups: tuple[TableAddress, ...]
    target: TableAddress
    pending: TableAddress | None
    unmatched: TableAddress | None
    query_id: str
    parallelism: int
    max_rows: int | None = None
    choices: tuple[Choice, ...] = ()
    distinct: TableAddress | None = None
    gathered: bool = False
    sink: SinkSpec | None = None

    def open_sink(self) -> Sink:
        """Where the rows go; raises `OptionError`, `TableError` or `ConnectError`."""
        if self.sink is not None:
            return self.sink.open()
        target = self.target.planned()
        commutes = not target.primary_key or self.combine() is not None
        return SinkSpec("paimon", {}, target.columns, self.target, commutes).open()

    @property
    def side_tables(self) -> tuple[TableAddress, ...]:
        """The query's own tables, to which every batch commits after the target, in this order."""
        tables = (self.unmatched, self.pending, self.distinct, self.looked_up)
        return tuple(address for address in tables if address is not None)

    @property
    def written(self) -> tuple[TableAddress, ...]:
        """All Paimon tables that every batch commits to."""
        return self.side_tables if self.sink is not None else (self.target, *self.side_tables)

    @property
    def looked_up(self) -> TableAddress | None:
        """Where batches keep what they found in tables of a server, if there are any.

        What stands there is committed before the target.
        """
        there = any(is_server(lookup) for lookup in self.query.lookups)
        return self.target.side_table(LOOKED_UP) if there else None

    @property
    def pinned(self) -> list[tuple[LookupJoin, TableAddress]]:
        """The lookups of Paimon tables, whose versions stand in the offsets, with their tables."""
        pairs = zip(self.query.lookups, self.lookups, strict=True)
        return [(lookup, address) for lookup, address in pairs if not is_server(lookup)]

    def dimensions(self) -> list[DimensionSpec]:
        """The lookups with their tables."""
        return [
            DimensionSpec(lookup, address.warehouse, address.identifier, address.schema_id)
            for lookup, address in zip(self.query.lookups, self.lookups, strict=True)
        ]

    @property
    def shuffle(self) -> int | None:
        """The place of the lookup whose buckets are spread over tasks, if there is one."""
        return next((i for i, one in enumerate(self.choices) if one.strategy == BUCKET), None)

    @property
    def retry(self) -> LookupRetry | None:
        """How long missed rows wait: the shortest delay and the most attempts of the lookups."""
        policies = [lookup.retry for lookup in self.query.lookups if lookup.retry is not None]
        if not policies:
            return None
        return LookupRetry(
            min(policy.delay_ms for policy in policies),
            max(policy.max_attempts for policy in policies),
        )

    def combine(self) -> Combine | None:
        """How rows may be combined before they are written, if at all."""
        if self.query.row_kinds or self.sink is not None:
            return None
        target = self.target.planned()
        return Combine.of(target.columns, target.primary_key, target.options)

    def one_task(self, source: Source) -> bool:
        """Whether a batch must be one task, lest the changes of a key lose their order."""
        if source.ordered or self.query.distinct is not None or self.looked_up is not None:
            return True
        if self.sink is not None:
            return source.changelog
        target = self.target.planned()
        return bool(target.primary_key) and (self.combine() is None or target.bucket < 0)


def unshuffled(query: StreamQuery, target: TableInfo) -> str | None:
    """Why the rows of a query cannot be sent to other tasks before they are joined; or None."""
    if any(is_server(lookup) for lookup in query.lookups):
        return "keys are asked of MySQL by one task"
    combine = Combine.of(target.columns, target.primary_key, target.options)
    if query.distinct is not None:
        return "distinct values are counted by one task"
    if query.grouped and (query.row_kinds or combine is None):
        return "the order of rows decides what they are grouped to"
    return None
