"""A Paimon table as a stream: one snapshot first, then what each later snapshot changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.paimon.catalog import Warehouse
from streamhouse.paimon.compacted import compacted_only
from streamhouse.paimon.evolution import columns_now
from streamhouse.paimon.pieces import Bound, Piece, pieces
from streamhouse.paimon.scan import ScanOptions
from streamhouse.paimon.snapshots import Snapshot
from streamhouse.paimon.table import Table
from streamhouse.source import ROW_KIND, Offset

_TARGET_SIZE = ("source.split.target-size", "16 mb")
"""Paimon's own default of 128 MB leaves all but one core idle on a backlog of 30 MB."""
_IDLE_SNAPSHOTS = 5
"""Snapshots without changes that an offset may stand still for, before it must follow them lest
they expire under it (Paimon keeps ten at least, unless told otherwise)."""


class PaimonSource:
    """The rows of a table, then its changes; implements `streamhouse.source.Source`.

    Offsets: `{}` is before everything, `{"snapshot": 7}` after all of snapshot 7, and
    `{"snapshot": 7, "split": 3, "splits": 10}` after the first 3 of 10 pieces of the first full
    read at snapshot 7 (of the changes of snapshot 7, with `"changes": true`).

    Tables with a primary key are changelogs: with a `changelog-producer` their changelog is
    read, else the rows as written, in which inserts and updates alike come as upserts (`+I`) and
    deletes as `-D`. They are read snapshot by snapshot, in commit order. Append tables have only
    inserts, and many snapshots are read at once. COMPACT snapshots bring no changes. `options`
    are those of `ScanOptions`.

    `columns` are named as in the version `planned` of the schema, by default the newest, and go
    on by their ids when they are renamed; a widened one is read widened. When one is dropped,
    `latest_offset` and `read` raise `SchemaChangeError`.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        identifier: str,
        columns: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        planned: int | None = None,
    ) -> None:
        self._warehouse_options = dict(warehouse_options)
        self._identifier = identifier
        self._scan = ScanOptions.parse(options or {}, f"table {identifier}")
        self._cut: tuple[Table, Table] | None = None
        table = self.table
        self._planned = table.schema_id if planned is None else planned
        then = table.find_schema(self._planned) or table
        self._columns = tuple(then.arrow_schema.names if columns is None else columns)
        self._schema = then.read_schema(self._columns)
        self._keyed = bool(table.primary_key)
        producer = table.options.get("changelog-producer", "none").lower()
        self._producer = producer if self._keyed else "none"
        self._mode = "delta" if self._producer == "none" else "changelog"
        self._plans: dict[tuple[int, bool], list[bytes]] = {}
        self._idle = (0, 0)
        self._until: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}, "_idle": (0, 0), "_cut": None}

    @property
    def table(self) -> Table:
        """The table as it is now."""
        table = Warehouse(self._warehouse_options).table(self._identifier)
        if self._cut is None or self._cut[0] is not table:
            self._cut = (table, table.copy(_scan_options(table, self._scan)))
        return self._cut[1]

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def changelog(self) -> bool:
        return self._keyed

    @property
    def ordered(self) -> bool:
        return self._keyed

    def initial_offset(self) -> Offset:
        return {}

    def hold(self) -> None:
        """Go no further than the snapshot that is the newest now."""
        self._until = self.table.latest_snapshot_id() or 0

    def latest_offset(
        self,
        start: Offset,
        max_rows: int | None = None,
        *,
        max_files: int | None = None,
        max_bytes: int | None = None,
    ) -> Offset:
        table = self.table
        self._now(table)
        latest = table.latest_snapshot_id()
        if self._until is not None and latest is not None:
            latest = max(min(latest, self._until), start.get("snapshot", 0)) or None
        bound = Bound.of(max_rows, max_files, max_bytes)
        if not start:
            return self._first_offset(table, latest, bound)
        if "split" in start:
            return self._next_split(table, start, bound)
        if (latest or 0) < start["snapshot"]:
            raise DataLossError(
                f"table {table.identifier}: snapshot {start['snapshot']} was read, and the newest "
                f"is now {latest}: the table was rolled back or made anew; start from a fresh "
                "checkpoint"
            )
        return self._next_snapshots(table, start, latest or 0, bound)

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Piece]:
        if start == end:
            return []
        table = self.table
        if not start and self._scan.start in ("full", "snapshot-full"):
            splits = self._full(table, end["snapshot"])
            return pieces(splits[: end.get("split", len(splits))], parallelism)
        if "split" in start:
            splits = self._split_range(table, start, end)
            return pieces(splits, parallelism)
        after = start["snapshot"] if start else self._before_first(end)
        if "split" in end:
            splits = self._changed(table, end["snapshot"])[: self._checked(table, end)]
            return pieces(splits, parallelism)
        return self._change_pieces(table, after, end["snapshot"], parallelism)

    def read(self, partition: Piece) -> Iterator[pa.RecordBatch]:
        table = self.table
        now = self._now(table)
        names = [*self._columns, *([ROW_KIND] if self._keyed else [])]
        for group in partition.groups:
            for batch in table.read(now, splits=group, row_kind=self._keyed):
                yield batch.rename_columns(names)

    def committed(self, end: Offset) -> None:
        self._plans.clear()

    def finished(self, offset: Offset) -> bool:
        return False

    def close(self) -> None:
        self._plans.clear()

    def _first_offset(self, table: Table, latest: int | None, bound: Bound | None) -> Offset:
        scan = self._scan
        if scan.start == "latest":
            return {"snapshot": latest or 0}
        if scan.start == "snapshot":
            first = {"snapshot": self._before_first({})}
            if latest is None or latest <= first["snapshot"]:
                return {}
            return self._next_snapshots(table, first, latest, bound)
        snapshot = latest if scan.start == "full" else scan.snapshot_id
        if snapshot is None or latest is None:
            return {}
        if bound is None:
            return {"snapshot": snapshot}
        return _bounded(snapshot, self._full(table, snapshot), 0, bound, False)

    def _now(self, table: Table) -> list[str]:
        """What the columns are called now."""
        return columns_now(table, self._planned, self._columns)

    def _before_first(self, end: Offset) -> int:
        """The snapshot after which a stream that starts with changes reads."""
        if self._scan.start == "latest":
            return int(end["snapshot"])
        return (self._scan.snapshot_id or 1) - 1

    def _next_split(self, table: Table, start: Offset, bound: Bound | None) -> Offset:
        changes = bool(start.get("changes"))
        snapshot = int(start["snapshot"])
        if bound is None:
            return {"snapshot": snapshot}
        splits = self._changed(table, snapshot) if changes else self._full(table, snapshot)
        return _bounded(snapshot, splits, self._checked(table, start), bound, changes)

    def _next_snapshots(
        self, table: Table, start: Offset, latest: int, bound: Bound | None
    ) -> Offset:
        position, taken, end = int(start["snapshot"]), 0, 0
        base, seen = self._idle
        first = max(seen, position) + 1 if base == position else position + 1
        for snapshot in self._snapshots(table, first - 1, latest):
            count = self._rows_of(snapshot)
            if count == 0:
                continue
            if bound is not None:
                taken += self._weight(table, snapshot, count, bound)
                if taken > bound.most and end:
                    return {"snapshot": end}
                if taken > bound.most:
                    splits = self._changed(table, snapshot.id)
                    return _bounded(snapshot.id, splits, 0, bound, True)
            end = snapshot.id
        if end or latest - position >= _IDLE_SNAPSHOTS:
            return {"snapshot": latest}
        self._idle = (position, latest)
        return start

    def _weight(self, table: Table, snapshot: Snapshot, rows: int, bound: Bound) -> int:
        """How much of a bound a snapshot's changes take; rows are known without planning."""
        if bound.what == "rows" or snapshot.commit_kind == "OVERWRITE":
            return rows
        return sum(bound.weigh(split) for split in self._changed(table, snapshot.id))

    def _snapshots(self, table: Table, after: int, until: int) -> Iterator[Snapshot]:
        for snapshot_id in range(after + 1, until + 1):
            yield table.snapshot(snapshot_id)

    def _rows_of(self, snapshot: Snapshot) -> int:
        """Changes of a snapshot; 0 where there are none to read."""
        if snapshot.commit_kind == "OVERWRITE":
            return 1
        if self._mode == "changelog":
            return snapshot.changelog_record_count or 0
        if snapshot.commit_kind != "APPEND":
            return 0
        count = snapshot.delta_record_count
        return 1 if count is None else count

    def _change_pieces(self, table: Table, after: int, until: int, parallelism: int) -> list[Piece]:
        snapshots = [one for one in self._snapshots(table, after, until) if self._readable(one)]
        if not snapshots:
            return []
        if not self._keyed:
            return pieces(table.changes(after, until, "delta", self._now(table)), parallelism)
        groups = [tuple(self._changed(table, one.id)) for one in snapshots]
        return [Piece(tuple(group for group in groups if group))] if any(groups) else []

    def _readable(self, snapshot: Snapshot) -> bool:
        if snapshot.commit_kind != "OVERWRITE":
            return self._rows_of(snapshot) > 0
        if self._scan.skip_overwrite:
            return False
        raise StreamhouseError(
            f"table {self._identifier}: snapshot {snapshot.id} is an overwrite, whose changes "
            "cannot be read; set the option 'scan.overwrite' to 'skip' to pass over it, or start "
            "from a fresh checkpoint to read the table anew"
        )

    def _full(self, table: Table, snapshot: int) -> list[bytes]:
        key = (snapshot, False)
        if key not in self._plans:
            splits = table.splits(snapshot, self._now(table))
            if self._producer in ("lookup", "full-compaction"):
                splits = compacted_only(table, splits, self._producer)
            self._plans = {key: splits}
        return self._plans[key]

    def _changed(self, table: Table, snapshot: int) -> list[bytes]:
        key = (snapshot, True)
        if key not in self._plans:
            if not self._readable(table.snapshot(snapshot)):
                return []
            splits = table.changes(snapshot - 1, snapshot, self._mode, self._now(table))
            self._plans = {key: sorted(splits)}
        return self._plans[key]

    def _split_range(self, table: Table, start: Offset, end: Offset) -> list[bytes]:
        first = self._checked(table, start)
        if end["snapshot"] != start["snapshot"]:
            raise StreamhouseError(
                f"table {self._identifier}: no range goes from {start} to {end}; this checkpoint "
                "was written by another query"
            )
        changes = bool(start.get("changes"))
        splits = (self._changed if changes else self._full)(table, start["snapshot"])
        return splits[first : end.get("split", len(splits))]

    def _checked(self, table: Table, offset: Offset) -> int:
        snapshot = int(offset["snapshot"])
        splits = (self._changed if offset.get("changes") else self._full)(table, snapshot)
        if len(splits) != offset["splits"]:
            raise DataLossError(
                f"table {self._identifier}: snapshot {snapshot} was read in {offset['splits']} "
                f"pieces and is now in {len(splits)}; set source.split.target-size back to what "
                "it was, or start from a fresh checkpoint"
            )
        return int(offset["split"])


def _scan_options(table: Table, scan: ScanOptions) -> dict[str, str]:
    """Options of the table for this scan; splits of append tables are small, for many tasks."""
    options = dict(scan.table_options)
    if not table.primary_key and _TARGET_SIZE[0] not in table.options:
        options.setdefault(*_TARGET_SIZE)
    return options


def _bounded(
    snapshot: int, splits: Sequence[bytes], first: int, bound: Bound, changes: bool
) -> Offset:
    taken, last = 0, first
    for split in splits[first:]:
        taken += bound.weigh(split)
        if taken > bound.most and last > first:
            break
        last += 1
    if last >= len(splits):
        return {"snapshot": snapshot}
    offset: Offset = {"snapshot": snapshot, "split": last, "splits": len(splits)}
    return {**offset, "changes": True} if changes else offset
