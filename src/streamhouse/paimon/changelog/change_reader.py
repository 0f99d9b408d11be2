"""Reads a table's changes: splits of files, and differences of states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_groups import ScanPartition
from streamhouse.source import ROW_KIND


class ChangeReader:
    """Reads rows on executors, as batches of `columns` and, with `kinds`, the row kind.

    `keyed`: the table has a primary key; `produced`: its changelog files are read, and its changes
    are not computed.
    Picklable; keeps a DuckDB connection until `close`.
    """

    def __init__(self, columns: Sequence[str], keyed: bool, kinds: bool, produced: bool) -> None:
        self._columns, self._keyed = columns, keyed
        self._kinds, self._produced = kinds, produced
        self._differ: Differ | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_differ": None}

    def read(
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
                    kinds = pa.repeat(pa.scalar("+I"), batch.num_rows)
                    batch = pa.RecordBatch.from_arrays(
                        [*batch.columns, kinds], schema=table.read_schema(columns, row_kind=True)
                    )
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
        if self._differ is None:
            self._differ = Differ()
        if simple:
            yield from multi_snapshot_changes(table, differences, columns, self._differ)
            return
        for batch in changed_rows(table, differences, columns, self._differ):
            if not self._kinds:
                check_only_added(batch, table, differences[0].snapshot)
                batch = batch.select(columns)
            yield batch

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._differ is not None:
            self._differ.close()
            self._differ = None
