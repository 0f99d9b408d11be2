"""The specification of one continuous query, as its tasks receive it; picklable and immutable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from streamhouse.connectors.base import Sink
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import BUCKET, FULL, IN_ORDER, Choice
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.source import Source
from streamhouse.sql.options.merge_functions import (
    keeps_removals_apart,
    merge_function,
    removes_records,
)
from streamhouse.sql.plan import Column, LookupJoin, LookupRetry, StreamQuery, TableInfo

LOOKUP_JOURNAL = "looked_up"
"""The suffix after `__` in the name of the journal table of lookups on servers."""
_COMBINERS = ("sum", "min", "max")
"""The merge functions that may be applied in parts; DuckDB's have the same names."""


@dataclass(frozen=True)
class PartialAggregation:
    """How the rows of a batch are combined.

    `keys` is the target's primary key, `functions` the other columns with their functions.
    """

    keys: tuple[str, ...]
    functions: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls, columns: Sequence[Column], primary_key: Sequence[str], options: Mapping[str, str]
    ) -> Self | None:
        """How to combine rows of a table; None if it must get all rows, in their order."""
        if options.get("merge-engine") != "aggregation" or not primary_key:
            return None
        if any(key.endswith("sequence.field") or "sequence-group" in key for key in options):
            return None
        if "rowkind.field" in options:
            return None
        functions = []
        for column in columns:
            if column.name in primary_key:
                continue
            name = merge_function(options, column.name)
            if name not in _COMBINERS:
                return None
            functions.append((column.name, name))
        return cls(tuple(primary_key), tuple(functions))

    def sql(self, relation: str, columns: Sequence[str]) -> str:
        """The DuckDB SELECT that pre-aggregates the rows of a relation."""
        functions = dict(self.functions)
        parts = [
            f'{functions[name]}("{name}") AS "{name}"' if name in functions else f'"{name}"'
            for name in columns
        ]
        keys = ", ".join(f'"{key}"' for key in self.keys)
        return f"SELECT {', '.join(parts)} FROM {relation} GROUP BY {keys}"


@dataclass(frozen=True)
class QuerySpec:
    """One continuous query: what it computes, its source, its lookups and the tables it writes.

    `query_id` is the id of its checkpoint and the commit user of all its commits. `lookups` are
    the tables of `query.lookups`, in order; for a table on a server, the query's `lookup_journal`
    takes its place. `choices` are the lookup strategies (default: full cache for all). `gathered`
    says, for a bucket shuffle, that a single task writes.

    `sink` is None if `target` is a Paimon table. Else `sink` describes where rows are written, and
    `target` only names the auxiliary tables. `dead_letters` is the table of records that the source
    could not decode, which other queries may share; None if there is none.
    """

    query: StreamQuery
    source: SourceSpec
    lookups: tuple[TableAddress, ...]
    target: TableAddress
    query_id: str
    parallelism: int
    max_rows: int | None = None
    choices: tuple[Choice, ...] = ()
    gathered: bool = False
    sink: SinkSpec | None = None
    dead_letters: TableAddress | None = None
    planner: ClassVar[str] = "streamhouse.runtime.streaming.batch_planner:BatchPlanner"

    @property
    def task(self) -> str:
        tasks = "tasks.task" if self.shuffle is None else "shuffle.shuffle"
        return f"streamhouse.runtime.streaming.{tasks}:run"

    @property
    def retried_in(self) -> Mapping[str, str]:
        """Empty for a task that is not to be repeated: it writes elsewhere, or queries a server."""
        repeatable = self.sink is None and self.lookup_journal is None
        return self.target.warehouse if repeatable else {}

    def open_sink(self) -> Sink:
        """Open the sink of the rows; raises `OptionError`, `TableError` or `ConnectError`."""
        if self.sink is not None:
            return self.sink.open()
        columns = self.target.planned().columns
        return SinkSpec("paimon", {}, columns, self.target, commutes=self.commutes).open()

    @property
    def commutes(self) -> bool:
        """Whether the order of the target's commits, also of others' commits, changes no row.

        A `-D` that removes a record also removes the rows that were merged into it before.
        """
        target = self.target.planned()
        if not target.primary_key:
            return True
        return self.combine() is not None and not removes_records(target.options)

    @property
    def pending(self) -> TableAddress | None:
        """The table of rows that wait for a lookup; None if no lookup has a retry policy."""
        return None if self.query.misses_sql is None else self.target.auxiliary_table("pending")

    @property
    def unmatched(self) -> TableAddress | None:
        """The table of rows that have waited in vain; None if none waits."""
        return None if self.query.misses_sql is None else self.target.auxiliary_table("unmatched")

    @property
    def auxiliary_tables(self) -> tuple[TableAddress, ...]:
        """The query's own tables, to which every batch commits after the target, in this order.

        The exception is `lookup_journal`, which is committed before the target.
        """
        tables = (self.unmatched, self.pending, self.lookup_journal, self.dead_letters)
        return tuple(address for address in tables if address is not None)

    @property
    def written(self) -> tuple[TableAddress, ...]:
        """All Paimon tables that every batch commits to."""
        own = self.auxiliary_tables
        return own if self.sink is not None else (self.target, *own)

    @property
    def lookup_journal(self) -> TableAddress | None:
        """The journal table of what batches found in tables on servers; None without such lookups.

        It is committed before the target.
        """
        used = any(lookup.on_server for lookup in self.query.lookups)
        return self.target.auxiliary_table(LOOKUP_JOURNAL) if used else None

    @property
    def source_tables(self) -> list[TableAddress]:
        """The source, if it is a Paimon table."""
        return [] if self.source.address is None else [self.source.address]

    @property
    def pinned(self) -> list[tuple[LookupJoin, TableAddress]]:
        """The lookups of Paimon tables, with their tables; the offsets record their snapshots."""
        pairs = zip(self.query.lookups, self.lookups, strict=True)
        return [(lookup, address) for lookup, address in pairs if not lookup.on_server]

    def dimensions(self) -> list[DimensionSpec]:
        """The lookups with their tables."""
        return list(map(DimensionSpec, self.query.lookups, self.lookups))

    @property
    def strategies(self) -> Sequence[Choice]:
        """The strategies of the lookups."""
        return self.choices or [Choice(FULL, "by default")] * len(self.lookups)

    @property
    def shuffle(self) -> int | None:
        """The index of the lookup that uses a bucket shuffle; None if there is none."""
        return next((i for i, choice in enumerate(self.choices) if choice.strategy == BUCKET), None)

    @property
    def retry(self) -> LookupRetry | None:
        """The retry policy of missed rows: the lookups' shortest delay and most attempts."""
        policies = [lookup.retry for lookup in self.query.lookups if lookup.retry is not None]
        if not policies:
            return None
        return LookupRetry(
            min(policy.delay_ms for policy in policies),
            max(policy.max_attempts for policy in policies),
        )

    @property
    def waits_in_order(self) -> bool:
        """Whether rows that wait for a lookup must keep the order of their key's changes."""
        return self.retry is not None and self.query.row_kinds

    def combine(self) -> PartialAggregation | None:
        """How rows are pre-aggregated before the write; None if they must not be."""
        if self.query.row_kinds or self.sink is not None:
            return None
        target = self.target.planned()
        return PartialAggregation.of(target.columns, target.primary_key, target.options)

    def keeps_rows(self) -> bool:
        """Whether a task may keep all rows of its batch in memory until it has read the last."""
        if self.sink is not None or self.shuffle is not None or self.auxiliary_tables:
            return True
        return bool(self.target.planned().primary_key)

    def one_task(self, source: Source) -> bool:
        """Whether a batch must be one task, to keep the order of the changes of each key."""
        if self.lookup_journal is not None or source.ordered:
            return True
        if self.sink is not None:
            return source.changelog
        target = self.target.planned()
        if not target.primary_key:
            return False
        ordered = self.combine() is None and not self._keeps_keys(source, target.primary_key)
        return ordered or target.bucket < 0

    def _keeps_keys(self, source: Source, primary_key: Sequence[str]) -> bool:
        """Whether all rows of a key of the target come from one key of the source.

        Then a partition of the source has all of them.
        """
        if self.lookups:
            return False
        passed = {self.query.rows.passed.get(name) for name in primary_key}
        return bool(source.keyed_by) and passed.issuperset(source.keyed_by)


def unshuffled(query: StreamQuery, target: TableInfo) -> str | None:
    """Why the rows of a query cannot be shuffled before the join; None if they can."""
    if query.scan.watermarks:
        return "the task that reads the rows also finds their watermark"
    if any(lookup.on_server for lookup in query.lookups):
        return "a single task looks up the keys in MySQL"
    combine = PartialAggregation.of(target.columns, target.primary_key, target.options)
    if query.source.options.get("bad-records", "fail") != "fail":
        return "the task that reads the records also writes the bad ones"
    if query.row_kinds and keeps_removals_apart(target.options):
        return "a single task checks which updates leave the result"
    if query.row_kinds and any(lookup.retry is not None for lookup in query.lookups):
        return IN_ORDER
    if query.merging.grouped and (query.row_kinds or combine is None):
        return "the result of the grouping depends on the order of rows"
    return None
