"""A feed over a table as of one point in time: it returns a single change with all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.paimon.read.time_travel import parse_as_of, resolve, snapshot_of, table_as_of
from streamhouse.serve.feeds.feed import FeedChange
from streamhouse.serve.feeds.row_kinds import as_inserts
from streamhouse.serve.feeds.table_feed import TableFeed

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse


class StaticFeed(TableFeed):
    """The rows as of one point in time; the first `poll` returns them, later ones None.

    `text` is a tag, a snapshot id, a time in UTC or a duration such as `5 min ago`. Raises
    `TableError` or `DataLossError`, which name what exists, if there is no such point in time.
    """

    def __init__(self, warehouse: Warehouse, identifier: str, text: str) -> None:
        super().__init__(warehouse, identifier)
        as_of = resolve(self._table, parse_as_of(self._table, text))
        self._record = snapshot_of(self._table, as_of)
        self._table = table_as_of(self._table, as_of)
        self._columns = self._select_columns()

    def poll(self) -> FeedChange | None:
        """All rows as `+I`; None afterwards, and if the table had no snapshot."""
        if self._record is None or self._seen is not None:
            return None
        self._seen = self._record.id
        if self.primary_key:
            self.kept.table = self.state_at(self._record.id)
        rows = self.rows
        if rows is None:
            rows = self._read(self._record.id, self._columns)
        batches = as_inserts(rows).to_batches()
        return FeedChange(
            self._record.id,
            self._record.time_ms,
            is_whole_table=True,
            rows=rows.num_rows,
            batches=batches,
        )

    def _read(self, snapshot: int, columns: Sequence[str]) -> pa.Table:
        # Not by the snapshot id: a tag outlives its snapshot.
        batches = list(self.shown.read(columns))
        return pa.Table.from_batches(batches, self.shown.read_schema(columns))
