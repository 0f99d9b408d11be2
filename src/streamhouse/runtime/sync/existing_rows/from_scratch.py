"""`streamhouse sync --from-scratch`: forgets where a sync was, so that it reads its tables again.

A marker beside the checkpoint says that this has begun; it is removed once the new table set is
written. A run that finds it, with or without the option, starts from scratch, too.
"""

from __future__ import annotations

from collections.abc import Callable

from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSets
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.runtime.reset.former_query import find_table, remove_unfinished_files
from streamhouse.runtime.reset.marker import Reset, ResetMarker
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.checkpoint_registry import unregister_checkpoints
from streamhouse.runtime.sync.options import SyncOptions


class FromScratch:
    """The start of one sync from scratch; `checkpoint` must be locked."""

    def __init__(self, options: SyncOptions, checkpoint: Checkpoint, marker: ResetMarker) -> None:
        self._options, self._checkpoint, self._marker = options, checkpoint, marker
        self._name = checkpoint.path.name
        self.former: tuple[str, ...] = ()
        """The ids of the earlier queries, after `begin`."""

    def begin(self, asked: bool, notice: Callable[[str], None]) -> bool:
        """Clear the checkpoint if that is `asked` for, or was begun; returns whether it was."""
        checkpoint, before = self._checkpoint, self._marker.read().get(self._name)
        if not asked and before is None:
            return False
        current = checkpoint.known_id()
        queries = {*(before.queries if before else ()), *([current] if current else ())}
        self.former = tuple(sorted(queries))
        self._marker.add({self._name: Reset(False, self.former)})
        tables = TableSets(checkpoint.path).latest().tables.values()
        for target in {table.target for table in tables}:
            address = TableAddress(self._options.warehouse, target)
            table = find_table(address)
            if table is None:
                continue
            remove_unfinished_files(address, [checkpoint])
            for query in self.former:
                Consumers(table).drop(query_consumer(query))
        if checkpoint.path.exists():
            checkpoint.clear()
        unregister_checkpoints(self._options.warehouse, checkpoint)
        begun = "" if asked else ", as an interrupted run had begun to"
        notice(f"the sync of {self._options.name} starts from scratch{begun}")
        return True

    def end(self) -> None:
        """Remove the marker, after the new table set is written."""
        self._marker.remove([self._name])
