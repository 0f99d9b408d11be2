"""All that a task needs to know of one continuous query; picklable, fixed for the query's life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamhouse.datagen.source import DatagenSource
from streamhouse.errors import OptionError
from streamhouse.lookup.dimension import DimensionSpec, is_server
from streamhouse.lookup.strategies.selection import BUCKET, Choice
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.kernel import Combine
from streamhouse.source import Source
from streamhouse.sql.plan import Column, LookupJoin, LookupRetry, StreamQuery, TableInfo

LOOKED_UP = "looked_up"
"""What follows `__` in the name of the table of what was looked up on servers."""


@dataclass(frozen=True)
class TableAddress:
    """A Paimon table: the options of its warehouse, and `database.table`.

    `schema_id` is the version of its schema by which the query names its columns; None: the newest.
    """

    warehouse: Mapping[str, str] = field(repr=False)
    identifier: str
    schema_id: int | None = None

    def open(self) -> Table:
        """The table as it is now."""
        return Warehouse(self.warehouse).table(self.identifier)

    def planned(self) -> Table:
        """The table with the columns by which the query was planned."""
        table = self.open()
        return table if self.schema_id is None else table.find_schema(self.schema_id) or table

    def same(self, other: TableAddress) -> bool:
        """Whether it is the same table, by whatever version of its schema."""
        return (self.warehouse, self.identifier) == (other.warehouse, other.identifier)

    def beside(self, suffix: str) -> TableAddress:
        """The table of the same database whose name ends in `__suffix`, also beside a branch."""
        name = self.identifier.replace("$", "__")
        return TableAddress(self.warehouse, f"{name}__{suffix}")


@dataclass(frozen=True)
class SourceSpec:
    """Where a query reads: a connector, its options and all physical columns of its table.

    `relay`: the folder where one reader keeps the changes of all MySQL tables of the pipeline.
    """

    connector: str
    options: Mapping[str, str] = field(repr=False)
    columns: tuple[Column, ...]
    address: TableAddress | None = None
    relay: Path | None = None

    def origin(self, name: Sequence[str]) -> str:
        """What offsets of the source are offsets of; `name` is what FROM calls it.

        Offsets of a Paimon table say themselves which table they are of, whatever it is called. A
        MySQL server may have moved to another host.
        """
        if self.connector == "paimon":
            return "paimon"
        if self.connector == "mysql-cdc":
            table = (self.options.get(key, "") for key in ("database-name", "table-name"))
            return f"{self.connector} {'.'.join(table)}"
        return f"{self.connector} {'.'.join(name)}"

    def open(self, names: Sequence[str] | None = None) -> Source:
        """The source; `names` are the columns needed, where the connector can leave out others.

        Raises `OptionError`, `TableError` or `ConnectError` for what is set up wrongly.
        """
        if self.connector == "paimon":
            assert self.address is not None
            wanted = [c.name for c in self.columns] if names is None else list(names)
            address = self.address
            return PaimonSource(
                address.warehouse, address.identifier, wanted, self.options, address.schema_id
            )
        if self.connector == "datagen":
            return DatagenSource(self.columns, self.options)
        if self.connector == "mysql-cdc":
            # A third of what a worker loads, for those who need it.
            from streamhouse.mysql import MySqlSource

            return MySqlSource(self.options, self.columns, self.relay)
        raise OptionError(f"connector '{self.connector}' cannot be read as a stream")


@dataclass(frozen=True)
class QuerySpec:
    """One continuous query: what it computes, from where, into which tables.

    `query_id` is the id of its checkpoint and the commit user of all its commits. `lookups` are
    the tables of `query.lookups`, in order, `choices` how each is looked up (by default all are
    kept whole); of a server's table, `looked_up` stands there. Where one is looked up by bucket
    shuffle, `gathered` says that one task writes.
    `pending` and `unmatched` are there when a lookup has a retry policy, `distinct` when distinct
    values are counted.
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

    @property
    def written(self) -> tuple[TableAddress, ...]:
        """The tables that every batch commits to, in this order."""
        tables = (self.target, self.unmatched, self.pending, self.distinct, self.looked_up)
        return tuple(address for address in tables if address is not None)

    @property
    def looked_up(self) -> TableAddress | None:
        """Where batches keep what they found in tables of a server, if there are any.

        What stands there is committed before the target.
        """
        there = any(is_server(lookup) for lookup in self.query.lookups)
        return self.target.beside(LOOKED_UP) if there else None

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

    def combine(self, target: Table) -> Combine | None:
        """How rows may be combined before they are written to the `planned` target, if at all."""
        if self.query.row_kinds:
            return None
        return Combine.of(target.columns, target.primary_key, target.options)

    def one_task(self, source: Source) -> bool:
        """Whether a batch must be one task, lest the changes of a key lose their order."""
        target = self.target.planned()
        if source.ordered or self.query.distinct is not None or self.looked_up is not None:
            return True
        return bool(target.primary_key) and (self.combine(target) is None or target.bucket < 0)


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
