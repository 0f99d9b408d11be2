"""Drops the changes of keys that the snapshot has not read yet."""

from __future__ import annotations

from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import ROW_BITS
from streamhouse.connectors.mysql_cdc.binlog.rows.event import Row, RowEvent
from streamhouse.mysql.connection import Session
from streamhouse.mysql.keys import KeySpace
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import KeyJson
from streamhouse.mysql.values.types import key_of_value


class SnapshotFilter:
    """Selects the rows that the snapshot has read: those with keys up to `up_to` (None: all)."""

    def __init__(
        self, captured: CapturedTable, up_to: KeyJson | None, options: MySqlOptions
    ) -> None:
        self._columns = [(column, captured.date_reading(column)) for column in captured.table.key]
        names = [column.name for column in captured.columns]
        self._key_indexes = [names.index(column.name) for column in captured.table.key]
        self._up_to = up_to
        self._space = KeySpace(captured.table)
        self._session = Session(options)
        self._cache: dict[KeyJson, bool] = {}

    def includes(self, row: tuple[Any, ...] | None) -> bool:
        """Whether the snapshot has read the row's key; False for None."""
        if row is None or self._up_to is None:
            return row is not None
        key = tuple(
            key_of_value(column, row[index], reading)
            for (column, reading), index in zip(self._columns, self._key_indexes, strict=True)
        )
        if key not in self._cache:
            self._cache[key] = self._space.within([key], None, self._up_to, self._session)[0]
        return self._cache[key]

    def changes_key(self, before: tuple[Any, ...] | None, after: tuple[Any, ...] | None) -> bool:
        """Whether a change is an insert, a delete, or an update that changes the key."""
        if before is None or after is None:
            return True
        return any(before[index] != after[index] for index in self._key_indexes)

    def close(self) -> None:
        self._session.close()


class FilteredChanges:
    """Collects changes with their row kinds, without keys that the snapshot has not read yet."""

    def __init__(self, snapshot_filter: SnapshotFilter) -> None:
        self._filter = snapshot_filter
        self.kinds: list[str] = []
        self.rows: list[Row] = []
        self.seconds: list[int] = []
        self.numbers: list[int] = []

    def add(self, event: RowEvent, number: int = 0) -> None:
        """Add the changes in an event; `number`: its index among the events of all tables."""
        snapshot_filter = self._filter
        first = number << ROW_BITS
        for index, change in enumerate(event.changes()):
            before = change.before if snapshot_filter.includes(change.before) else None
            after = change.after if snapshot_filter.includes(change.after) else None
            moved = snapshot_filter.changes_key(before, after)
            for kind, row in (("-D" if moved else "-U", before), ("+I" if moved else "+U", after)):
                if row is not None:
                    self.kinds.append(kind)
                    self.rows.append(row)
                    self.seconds.append(change.seconds)
                    self.numbers.append(first + 2 * index + (row is after))

    def clear(self) -> None:
        """Remove all changes."""
        self.kinds, self.rows, self.seconds, self.numbers = [], [], [], []
