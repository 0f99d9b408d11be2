"""A Paimon table as a stream: an initial snapshot, then the changes of each later snapshot."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumer_progress import ConsumerProgress
from streamhouse.paimon.changelog.differences.multi_snapshot_changes import (
    multi_snapshot_changes,
    snapshot_runs,
)
from streamhouse.paimon.changelog.differences.snapshot_changes import (
    StateDifference,
    changed_rows,
    check_only_added,
)
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.changelog.offset_origin import Origin, bare
from streamhouse.paimon.changelog.offset_planner import StreamPlanner
from streamhouse.paimon.changelog.scan_options import ScanOptions
from streamhouse.paimon.changelog.snapshot_units import SnapshotUnits, snapshots_between
from streamhouse.paimon.changelog.unread_commits import StreamLag
from streamhouse.paimon.read.rust_core.postpone_bucket import check_followed
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import PRODUCED, hides_new_rows, producer
from streamhouse.paimon.schema.evolution import current_columns, with_planned_types
from streamhouse.paimon.storage.split_groups import Bound, ScanPartition
from streamhouse.source import ROW_KIND, Lag, Offset, Source, of_kind
from streamhouse.sql.options.merge_functions import purges_remove_rows

_TARGET_SIZE = ("source.split.target-size", "16 mb")
"""Split size of append tables; Paimon's default of 128 MB leaves all but one core idle on a backlog
of 30 MB."""
_LATEST_WITHIN_S = 0.1
"""How old the newest snapshot may be for the next batch, if another machine wrote it."""


class PaimonSource(Source):
    """The rows of a table, then its changes; implements `streamhouse.source.Source`.

    Offsets: `{}` is before everything, `{"snapshot": 7}` after all of snapshot 7, and
    `{"snapshot": 7, "split": 3, "splits": 10}` after the first 3 of 10 units of the initial full
    read at snapshot 7 (of the changes of snapshot 7, with `"changes": true`); a unit is a split or
    a computed difference. Their field `of` identifies the table (`paimon.changelog.offset_origin`):
    `latest_offset` and `check` raise `DataLossError` for offsets of another table, of a history
    that was rolled back, or of a table whose changes became visible at another time.

    Tables with a primary key are changelogs, read snapshot by snapshot, in commit order. The source
    reads the changelog that a compaction writes (`changelog-producer` = `lookup`,
    `full-compaction`). Otherwise it computes the changes from the states before and after each
    snapshot. The changelog of `input` has the row kinds of the writer: an INSERT writes `+I` even
    for a key that exists. So it is read only with `scan.remove-normalize`. With that option, the
    rows of a table without a changelog are returned as written, too: inserts and updates both as
    `+I`, deletes as `-D`. COMPACT snapshots have changes only in tables whose changes become
    visible by compaction, and where a DELETE from a table that merges rows removes its records
    (decision 121). Append tables have only inserts, and many snapshots are read at once.
    `scan.overwrite` determines what is read of an OVERWRITE: by default the difference that it
    made. `options` are those of `ScanOptions`. With a `consumer-id`, the first offset is
    `{"snapshot": 6, "resumed": true}` if a reader of that id is to continue with snapshot 7, and
    `committed` stores this reader's progress.

    `row_kinds`: an append table too has a `rowkind` column, for rows that an overwrite removed
    (`-D`); without it, reading such an overwrite raises `StreamhouseError`.

    `columns` have the names of schema version `planned`, by default the newest. They are followed
    by their ids when they are renamed, and have the types of that version (`with_planned_types`).
    When one is dropped, `latest_offset` and `read` raise `SchemaChangeError`.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        identifier: str,
        columns: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        planned: int | None = None,
        *,
        row_kinds: bool = False,
    ) -> None:
        self._warehouse_options = dict(warehouse_options)
        self._identifier, self._row_kinds = identifier, row_kinds
        self._options = dict(options or {})
        self._scan = ScanOptions.parse(self._options, f"table {identifier}")
        self._scan_table: tuple[Table, Table] | None = None
        table = self.table
        check_followed(table)
        self._planned = table.schema_id if planned is None else planned
        planned_table = table.find_version(self._planned) or table
        self._columns = tuple(planned_table.shown_names if columns is None else columns)
        self._schema = planned_table.read_schema(self._columns)
        self._keyed = bool(table.primary_key)
        self._kinds = self._keyed or row_kinds
        producers = ("lookup", "full-compaction", "input") if self._scan.raw else PRODUCED
        produced = self._keyed and producer(table.options) in producers
        self._computed = self._keyed and not produced and not self._scan.raw
        self._hidden = self._computed and hides_new_rows(table)
        self._units = SnapshotUnits(
            identifier,
            "changelog" if produced else "delta",
            computed=self._computed,
            hidden=self._hidden,
            purged=self._computed and purges_remove_rows(table.options),
            overwrite=self._scan.overwrite,
        )
        self._origin = Origin(self._scan.visible_at(table))
        self._produced = produced
        self._differ = Differ()
        self._within_s = _LATEST_WITHIN_S
        consumer = self._scan.consumer
        self._progress = None if consumer is None else ConsumerProgress(consumer)
        self._planner = StreamPlanner(self._scan, self._units, self._progress, self._keyed)
        self._lag = StreamLag(self._units)

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        # Tasks read only: they do without what the driver has planned, and open the table again.
        opened = partial(type(self), row_kinds=self._row_kinds)
        identity = self._warehouse_options, self._identifier, self._columns
        return opened, (*identity, self._options, self._planned)

    @property
    def table(self) -> Table:
        """The followed table (`Warehouse.followed`), with the options of the scan."""
        table = Warehouse(self._warehouse_options).followed(self._identifier)
        if self._scan_table is None or self._scan_table[0] is not table:
            options = dict(self._scan.table_options)
            if not table.primary_key and _TARGET_SIZE[0] not in table.options:
                options.setdefault(*_TARGET_SIZE)
            self._scan_table = (table, table.copy(options))
        return self._scan_table[1]

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def changelog(self) -> bool:
        return self._kinds

    @property
    def ordered(self) -> bool:
        return self._keyed

    def oldest_needed(self, offset: Offset) -> int:
        """The oldest snapshot that may be needed to continue from `offset`."""
        if offset:
            # The snapshot itself too: computing changes takes the state before them.
            return max(1, int(offset["snapshot"]))
        if self._scan.snapshot_id is not None:
            return max(1, self._scan.snapshot_id - 1)
        return self.table.latest_snapshot_id() or 1

    def oldest_read(self, start: Offset, end: Offset) -> int:
        """The oldest snapshot that must exist for reading from `start` to `end`."""
        if start:
            includes_start = "split" in start or self._keyed
            return int(start["snapshot"]) if includes_start else int(start["snapshot"]) + 1
        if end.get("resumed"):
            return int(end["snapshot"]) + 1
        if self._scan.start == "snapshot" and self._scan.snapshot_id is not None:
            return self._scan.snapshot_id
        return int(end["snapshot"])

    def hold(self) -> None:
        """Read no further than the snapshot that is the newest now."""
        self._planner.stop_at(self.table.latest_snapshot_id() or 0)

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        return self.bounded_offset(start, None if max_rows is None else Bound("rows", max_rows))

    def bounded_offset(self, start: Offset, bound: Bound | None) -> Offset:
        """As `latest_offset`, with a limit on rows, files or bytes."""
        table = self.table
        self._current_columns(table)
        self._origin.check(table, start, self._scan.visible_at(table), sure=False)
        position = bare(start)
        offset = self._planner.next_offset(table, position, bound, self._within_s)
        return start if offset == position else self._origin.stamped(table, offset)

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if the table is not the one that `offset` was taken from."""
        table = self.table
        self._origin.check(table, offset, self._scan.visible_at(table))

    def caught_up(self, offset: Offset) -> bool:
        """Whether no change is visible after `offset`."""
        self.check(offset)
        self._within_s = 0.0
        try:
            return self.latest_offset(offset) == offset
        finally:
            self._within_s = _LATEST_WITHIN_S

    def partitions(
        self, start: Offset, end: Offset, parallelism: int = 1
    ) -> Sequence[ScanPartition]:
        if start == end or (not start and end.get("resumed")):
            return []
        return self._planner.partitions(self.table, start, end, parallelism)

    def rows(self, start: Offset, end: Offset) -> int | None:
        if not start or "split" in start or "split" in end or self._hidden:
            return None
        total = 0
        for snapshot in snapshots_between(self.table, start["snapshot"], end["snapshot"]):
            if snapshot.commit_kind == "OVERWRITE" and self._units.change_count(snapshot):
                return None
            total += self._units.change_count(snapshot)
        return total

    def read(self, partition: ScanPartition) -> Iterator[pa.RecordBatch]:
        table = self.table
        for batch in self._changes(table, partition, self._current_columns(table)):
            is_planned = table.schema_id == self._planned
            yield batch if is_planned else with_planned_types(batch, self._schema)

    def committed(self, end: Offset) -> None:
        self._units.forget()
        self.store_progress(end)

    def store_progress(self, end: Offset) -> None:
        """Store for the next reader of the same `consumer-id` that all up to `end` is processed."""
        if self._progress is not None:
            self._progress.reached(self.table, end, self._computed)

    def lag(self, offset: Offset) -> Lag | None:
        """How many snapshots with rows are after `offset`, and how many rows are invisible yet.

        During the initial full read, only the invisible rows are known; None without any. If many
        snapshots are unread, those without rows are counted too: checking reads a file for each.
        """
        table = self.table
        return self._lag.at(table, offset, self._scan.visible_at(table), self._within_s)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.flush(self.table)
        self._units.close()
        self._differ.close()

    def _current_columns(self, table: Table) -> list[str]:
        """The current names of the columns."""
        return current_columns(table, self._planned, self._columns)

    def _changes(
        self, table: Table, partition: ScanPartition, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; `columns` are the names that the table has now."""
        names = [*self._columns, *([ROW_KIND] if self._kinds else [])]
        for run in snapshot_runs(table, partition.groups):
            group = run.groups[0]
            if isinstance(group, StateDifference):
                differences = [part for part in run.groups if isinstance(part, StateDifference)]
                batches = self._changed_rows(table, differences, columns, run.simple)
            else:
                batches = self._changelog(table, group, columns)
            for batch in batches:
                if self._kinds and ROW_KIND not in batch.schema.names:
                    schema = table.read_schema(columns, row_kind=True)
                    batch = of_kind(batch, "+I").cast(schema)
                yield batch.rename_columns(names)

    def _changelog(
        self, table: Table, splits: Sequence[bytes], columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of splits.

        If keys cross partitions, all retractions come first, so that a moved key is removed from
        its old partition before it is inserted into the new one.
        """
        if not (table.crosses_partitions and self._produced):
            yield from table.read(columns, splits=splits, row_kind=self._keyed)
            return
        for retractions in (True, False):
            for batch in table.read(columns, splits=splits, row_kind=True):
                retracted = pc.is_in(batch.column(ROW_KIND), pa.array(["-U", "-D"]))
                yield batch.filter(retracted if retractions else pc.invert(retracted))

    def _changed_rows(
        self, table: Table, differences: Sequence[StateDifference], columns: list[str], simple: bool
    ) -> Iterator[pa.RecordBatch]:
        if simple:
            yield from multi_snapshot_changes(table, differences, columns, self._differ)
            return
        for batch in changed_rows(table, differences, columns, self._differ):
            if not self._kinds:
                check_only_added(batch, table, differences[0].snapshot)
                batch = batch.select(columns)
            yield batch
