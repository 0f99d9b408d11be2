"""Removes what a former query has left in tables: rows, uncommitted files and consumers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import BEFORE, Consumers, query_consumer
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.state.auxiliary_tables import empty_table, unmatched_table
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.state.checkpoint import Checkpoint

_LOG = logging.getLogger("streamhouse.query")


def find_table(address: TableAddress) -> Table | None:
    """The table; None if it does not exist."""
    try:
        return address.open()
    except TableError:
        return None


def rows_in(address: TableAddress) -> int:
    """The number of rows of a table; 0 if it does not exist."""
    table = find_table(address)
    if table is None or table.latest_snapshot_id() is None:
        return 0
    name = next(iter(table.primary_key), table.columns[0].name)
    return sum(batch.num_rows for batch in table.read([name]))


def empty_target(address: TableAddress) -> None:
    """Remove all rows of a target and of its `__unmatched` table."""
    for table in (find_table(address), unmatched_table(address)):
        if table is not None:
            empty_table(table)


def remove_unfinished_files(target: TableAddress, checkpoints: Sequence[Checkpoint]) -> None:
    """Remove the data files of batches that were never committed to a target."""
    table = find_table(target)
    if table is None:
        return
    for checkpoint in checkpoints:
        query, first = checkpoint.known_id(), 0
        with suppress(OSError, ValueError, KeyError):
            first = next_batch(checkpoint.logs.last_offset())
        if query is not None:
            committer = TableCommitter(target.warehouse, target.identifier, query)
            committer.remove_leftovers(query_tag(query), first)


def drop_consumers(
    catalogs: Sequence[Mapping[str, str]],
    queries: Collection[str],
    readers: Sequence[tuple[TableAddress, str]],
) -> None:
    """Drop the consumers of `queries` at all tables of `catalogs`, and those that `readers` name.

    All tables are searched, since a query may have read or looked up other tables before.
    """
    for catalog in catalogs:
        for table in _tables(Warehouse(catalog)):
            for query in queries:
                Consumers(table).drop(query_consumer(query))
    for address, consumer in readers:
        read_table = find_table(address)
        if read_table is not None:
            Consumers(read_table).drop(f"{BEFORE}{consumer}")
            Consumers(read_table).drop(consumer)


def _tables(warehouse: Warehouse) -> Iterator[Table]:
    """All tables and branches that can be opened."""
    for database in warehouse.databases():
        for name in warehouse.tables(database):
            try:
                table = warehouse.table(f"{database}.{name}")
                yield table
                for branch in table.references.branches():
                    yield warehouse.table(f"{database}.{TableName.parse(name).on(branch)}")
            except StreamhouseError as error:
                # Its consumers expire by themselves.
                _LOG.debug("the consumers of %s.%s are not dropped: %s", database, name, error)
