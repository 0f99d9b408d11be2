"""A feed of one table: its current state, then each change, without a changelog producer.

For a table with a primary key, a poll compares the whole newest snapshot with the last one seen.
This works for every merge engine and needs no changelog; snapshots in between are skipped. A table
without a primary key is read snapshot by snapshot, and only the added rows are read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import DataLossError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumer_progress import ConsumerOptions, ConsumerProgress
from streamhouse.paimon.read.time_travel import parse_as_of, resolve, snapshot_of, table_as_of
from streamhouse.paimon.schema.evolution import name_mapping
from streamhouse.paimon.storage.files import is_local
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.serve.feeds.feed import Feed, FeedChange, as_inserts
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.source import ROW_KIND


class TableFeed(Feed):
    """Polls one table for changes.

    `columns` are the wanted columns, by default all. With a `consumer` the first poll resumes from
    the progress of that consumer id, and `store_progress` saves that of this feed. Renamed columns
    continue under their new names. The constructor and `poll` raise `TableError` if the table or a
    column is missing.

    For a table without a primary key, a snapshot that expired before it was read is a
    `DataLossError`. With `lost`, the feed instead calls it with the first and the last of the lost
    snapshot ids, and skips them.
    """

    _progress: ConsumerProgress | None = None

    def __init__(
        self,
        warehouse: Warehouse,
        identifier: str,
        columns: Sequence[str] | None = None,
        consumer: ConsumerOptions | None = None,
        lost: Callable[[int, int], None] | None = None,
    ) -> None:
        self._warehouse = warehouse
        self._wanted = None if columns is None else tuple(columns)
        self._lost = lost
        self._seen: int | None = None
        self.table = warehouse.table(identifier)
        """The table as of the last poll."""
        super().__init__(self.table.identifier)
        self._columns = self._select_columns()
        if consumer is not None:
            self._progress = ConsumerProgress(consumer)
            self._resume(self._progress)

    @property
    def schema(self) -> pa.Schema:
        """The wanted columns with their current types, without the row kind."""
        return self.shown.read_schema(self._columns)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The table's primary key; empty for an append-only table."""
        return tuple(self.table.primary_key)

    @property
    def incarnation(self) -> str:
        return self._identity.digest

    def was_replaced(self, snapshot: int, time_ms: int, immediate: bool = True) -> bool:
        """Whether the table was recreated or rolled back since `snapshot`, committed at `time_ms`.

        Unless `immediate`, queries an object store every two seconds only; in between returns
        False.
        """
        return not self._identity.is_unchanged(snapshot, time_ms, immediate)

    def refresh(self) -> bool:
        """Apply schema changes that came without a commit; returns whether there was one.

        Works in local warehouses only; elsewhere the next commit reveals the change.
        """
        if not is_local(self.table.location) or self.table.schema_stamp() is not None:
            return False
        self._reopen()
        return True

    def resume_after(self, snapshot: int, state: pa.Table | None) -> None:
        self._seen, self.kept = snapshot, state

    def store_progress(self, change: FeedChange) -> None:
        if self._progress is not None:
            position = {"snapshot": change.snapshot}
            self._progress.reached(self.table, position, bool(self.primary_key))

    def _resume(self, progress: ConsumerProgress) -> None:
        """Resume after the snapshot that the consumer has reached."""
        next_id = progress.start(self.table)
        if next_id is None or next_id == 1:
            return
        self._seen = next_id - 1
        if self.primary_key:
            self.kept = self.state_at(self._seen)

    def close(self) -> None:
        """Save the consumer's progress and free all memory; the feed cannot be used afterwards."""
        super().close()
        if self._progress is not None:
            self._progress.flush(self.table)

    def poll(self) -> FeedChange | None:
        """The next change, or None if nothing was committed since the last poll.

        The first change is the whole table. Raises `DataLossError` if the next snapshot of an
        append-only table expired before it was read, and `lost` is not set.
        """
        latest = self.table.latest_snapshot_id()
        if self._progress is not None:
            self._progress.keep_alive(self.table)
        if latest == self._seen:
            if latest is not None and self.primary_key:
                # Start DuckDB while idle, not when the first change waits for it.
                self.differ.prepare()
            return None
        # Reopen, for a new schema, or if the table was dropped and created again.
        self._reopen()
        if latest is None:
            self._seen = None
            return None
        if self.primary_key:
            return self._newest_state(latest)
        if self._seen is None or latest < self._seen:
            return self._all_rows(latest)
        return self._next_rows(self._next_snapshot(self._seen + 1, latest))

    @cached_property
    def _identity(self) -> Identity:
        return Identity(self.table)

    def _reopen(self) -> None:
        previous, self.table = self.table, self._warehouse.table(self.identifier)
        altered = self.table.schema_id > previous.schema_id
        if altered and self._wanted is not None:
            names = name_mapping(self.table, previous.schema_id, self._wanted)
            self._wanted = tuple(names[name] or name for name in self._wanted)
        self._columns = self._select_columns()
        if altered and self.kept is not None and self._seen is not None:
            # A rename by itself is not a change of any row. Without these rows, all are changes.
            seen, self.kept = self._seen, None
            with suppress(DataLossError):
                self.kept = self.state_at(seen)

    def _next_snapshot(self, next_id: int, latest: int) -> int:
        """The next snapshot to read; with `lost`, skips expired snapshots and reports them."""
        first = next_id
        while self._lost is not None and next_id < latest:
            if self.table.snapshots.find(next_id) is not None:
                break
            next_id = max(next_id + 1, self.table.earliest_snapshot_id() or 0)
        if self._lost is not None and next_id > first:
            self._lost(first, next_id - 1)
        return next_id

    def _select_columns(self) -> tuple[str, ...]:
        self.shown = ShownTable(self.table)
        column_names = self.shown.names
        if ROW_KIND in (column_names if self._wanted is None else self._wanted):
            raise TableError(
                f"table '{self.identifier}' has a column '{ROW_KIND}', a name that is "
                "reserved for the row kind; leave it out of the columns, or rename it"
            )
        if self._wanted is None:
            return column_names
        for name in self._wanted:
            if name not in column_names:
                raise TableError(
                    f"table '{self.identifier}' has no column '{name}'; "
                    f"{nearest(name, column_names)}"
                )
        return self._wanted

    def _newest_state(self, latest: int) -> FeedChange:
        while True:
            try:
                return self._next_state(latest)
            except DataLossError:
                # The snapshot expired while it was read: retry, unless there is no newer one.
                newest = self.table.latest_snapshot_id()
                if newest is None or newest <= latest:
                    raise
                latest = newest

    def _next_state(self, latest: int) -> FeedChange:
        new = self.state_at(latest)
        changes, first = self._replace_state(new, self.primary_key, self._seen is None)
        self._seen = latest
        visible = changes.select([ROW_KIND, *self._columns])
        return self._change(latest, first, new.num_rows, visible.to_batches())

    def state_at(self, snapshot: int) -> pa.Table:
        """The rows of a snapshot: the wanted columns, then the rest of the key; sorted by key."""
        key = self.primary_key
        columns = [*self._columns, *(name for name in key if name not in self._columns)]
        return self._read(snapshot, columns).sort_by([(name, "ascending") for name in key])

    def inserts(self, snapshot: int) -> tuple[int, Iterable[pa.RecordBatch]]:
        if self.kept is not None or not snapshot:
            return super().inserts(snapshot)
        batches = self.shown.read(self._columns, snapshot=snapshot)
        inserts = (as_inserts(batch.select(self._columns)) for batch in batches)
        return self.table.snapshot(snapshot).total_record_count or 0, inserts

    def _all_rows(self, latest: int) -> FeedChange:
        self._seen = latest
        return self._change(latest, True, None, self.inserts(latest)[1])

    def _next_rows(self, next_id: int) -> FeedChange:
        kind = self.table.snapshot(next_id).commit_kind
        self._seen = next_id
        batches: Iterable[pa.RecordBatch] = ()
        if kind == "APPEND":
            batches = self._read_in_time(next_id)
        elif kind == "OVERWRITE":
            # Incremental reads skip overwrites, so compare the two snapshots.
            columns = list(self._columns)
            old, new = self._read(next_id - 1, columns), self._read(next_id, columns)
            changes = self.differ.by_row(old, new)
            batches = changes.to_batches()
        return self._change(next_id, False, None, batches)

    def _read_in_time(self, snapshot: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._added(snapshot)
        except DataLossError:
            # It expired between the poll and the read.
            if self._lost is None:
                raise
            self._lost(snapshot, snapshot)

    def _added(self, snapshot: int) -> Iterator[pa.RecordBatch]:
        splits = self.table.changes(snapshot - 1, snapshot)
        for batch in self.shown.read(self._columns, splits=splits):
            yield as_inserts(batch.select(self._columns))

    def _change(
        self, snapshot: int, first: bool, rows: int | None, batches: Iterable[pa.RecordBatch]
    ) -> FeedChange:
        record = self.table.snapshot(snapshot)
        total = record.total_record_count if rows is None else rows
        return FeedChange(snapshot, record.time_ms, first, total, batches)

    def _read(self, snapshot: int, columns: Sequence[str]) -> pa.Table:
        schema = self.shown.read_schema(columns)
        batches = self.shown.read(columns, snapshot=snapshot)
        table = self.memory.collect(batches, schema, self.identifier)
        # States are compared, so their schemas must not differ in nullability.
        return table.cast(pa.schema([field.with_nullable(True) for field in schema]))


class StaticFeed(TableFeed):
    """The rows as of one point in time; the first `poll` returns them, later ones None.

    `text` is a tag, a snapshot id, a time in UTC or a duration such as `5 min ago`. Raises
    `TableError` or `DataLossError`, which name what exists, if there is no such point in time.
    """

    def __init__(self, warehouse: Warehouse, identifier: str, text: str) -> None:
        super().__init__(warehouse, identifier)
        as_of = resolve(self.table, parse_as_of(self.table, text))
        self._record = snapshot_of(self.table, as_of)
        self.table = table_as_of(self.table, as_of)
        self._columns = self._select_columns()

    def poll(self) -> FeedChange | None:
        """All rows as `+I`; None afterwards, and if the table had no snapshot."""
        if self._record is None or self._seen is not None:
            return None
        self._seen, time_ms = self._record.id, self._record.time_ms
        if self.primary_key:
            self.kept = self.state_at(self._seen)
        rows = self.rows
        if rows is None:
            rows = self._read(self._seen, self._columns)
        return FeedChange(self._seen, time_ms, True, rows.num_rows, as_inserts(rows).to_batches())

    def _read(self, snapshot: int, columns: Sequence[str]) -> pa.Table:
        # Not by the snapshot id: a tag outlives its snapshot.
        batches = list(self.shown.read(columns))
        return pa.Table.from_batches(batches, self.shown.read_schema(columns))
