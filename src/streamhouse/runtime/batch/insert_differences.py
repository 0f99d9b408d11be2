"""INSERT of a query's rows into a primary-key table that writes only rows that differ.

The rows are first merged with each other, in a temporary table with the target's merge options, and
then compared with the target bucket by bucket. So if an INSERT is repeated, or brings millions of
rows of which a hundred differ, the table's changelog has only the true changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import LAST, last_positions
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.differences.key_preserving_partitions import parts
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.changelog.unread_commits import invisible_snapshots, rows_of, written_since
from streamhouse.paimon.read.conditions import keys_filter
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows, producer
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit_retries import (
    attempt,
    remove_dead_attempts,
    with_retries,
)
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.paimon.write.temporary_table import TemporaryTable
from streamhouse.runtime.batch.progress_line import ProgressLine
from streamhouse.source import ROW_KIND, of_kind
from streamhouse.sql.options.merge_functions import sequence_fields


@dataclass(frozen=True)
class InsertResult:
    """How many rows an INSERT produced, and how many of them were new or changed existing rows.

    If the rows are written without a comparison with the table, all count as inserted. `hidden`
    rows cannot be seen after it.
    """

    rows: int
    inserted: int
    updated: int = 0
    hidden: int = 0

    def __str__(self) -> str:
        text = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        if self.inserted == self.rows:
            text += " written"
        else:
            text += f": {self.inserted:,} inserted, {self.updated:,} updated, the others unchanged"
        if self.hidden:
            text += f"; {self.hidden:,} cannot be seen: a record with a greater "
            text += "'sequence.field' has deleted the key"
        return text


EQUAL_ROWS = "insert.equal-rows"
"""The hint on a target: `skip` rows that the table has already (default), or `write` them."""

_WRITTEN_ROWS = 262_144
_MOST_KEYS = 10_000
"""Of more rows, hidden ones are not looked for: that would take as long as the INSERT."""


def can_skip_equal_rows(table: Table) -> bool:
    """Whether a table has the same rows if equal rows are skipped."""
    options = table.options
    engine = options.get("merge-engine", "deduplicate").lower()
    hides_input = producer(options) == "input" and hides_new_rows(table)
    return (
        bool(table.primary_key)
        and engine == "deduplicate"
        and table.bucket > 0
        and set(table.partition_keys) <= set(table.primary_key)
        and "rowkind.field" not in options
        and not table.defaults
        and not hides_input
    )


def insert_differences(
    address: TableAddress, rows: Iterable[pa.Table], total: int | None, progress: ProgressLine
) -> InsertResult:
    """Write the differing rows of one INSERT into a table where `can_skip_equal_rows`.

    Commits in one snapshot or, if nothing differs, in none. `total` is the approximate number of
    rows to read. Rows that others change meanwhile count as changed after this statement, unless a
    `sequence.field` decides otherwise.
    """
    table = address.open()
    remove_dead_attempts(table)
    count, differ = 0, Differ()
    try:
        with TemporaryTable(table) as temporary:
            progress.part("reading", total)
            for part in rows:
                count += part.num_rows
                temporary.write(part)
            if not count:
                return InsertResult(0, 0, 0)
            merged = temporary.finish()

            def attempted() -> tuple[int, int] | None:
                return _Try(address, differ, merged, progress).run()

            return InsertResult(count, *with_retries(table, attempted))
    finally:
        differ.close()
        # A JVM may start next, and needs the memory.
        pa.default_memory_pool().release_unused()


@dataclass
class _Try:
    """One try: compares with the newest snapshot and commits, unless others replaced rows."""

    _address: TableAddress
    _differ: Differ
    _merged: Table
    _progress: ProgressLine
    inserted: int = 0
    updated: int = 0

    def __post_init__(self) -> None:
        self._table = self._address.open()
        self._snapshot = self._table.latest_snapshot_id()
        self._read_snapshot = self._snapshot or 0
        options = self._table.options
        self._writes_kinds = producer(options) == "input"
        self._sequence = sequence_fields(options)
        self._descending = options.get("sequence.field.sort-order", "ascending") == "descending"

    def run(self) -> tuple[int, int] | None:
        """Returns the numbers of new and of changed rows; None if another try is needed."""
        table = self._table
        with attempt(table) as own:
            writer = own.writer()
            try:
                self._write_differences(writer)
                with commit_lock(table.location):
                    valid = self._reconcile(writer)
                    messages = writer.prepare(0)
                    if valid and self.inserted + self.updated:
                        own.committer.commit(0, messages)
                        return self.inserted, self.updated
                own.committer.abort(messages)
                return (0, 0) if valid else None
            finally:
                writer.close()

    def _write_differences(self, writer: TableWriter) -> None:
        table, merged, progress = self._table, self._merged, self._progress
        hidden_keys = self._hidden_keys()
        progress.part("comparing", merged.snapshot(1).total_record_count)
        for part in parts(table, self._snapshot, merged):
            old, new = part.load(table, merged)
            changes = self._differ.renewed(
                old, new, table.primary_key, self._sequence, self._descending, hidden_keys
            )
            kinds = changes.column(ROW_KIND)
            self.updated += pc.sum(pc.equal(kinds, "+U")).as_py() or 0
            self.inserted += pc.sum(pc.equal(kinds, "+I")).as_py() or 0
            if not self._writes_kinds:
                # With row kinds, too: all rows of a writer need one schema.
                rows = changes.filter(pc.not_equal(kinds, "-U")).drop_columns([ROW_KIND])
                changes = of_kind(rows, "+I")
            schema = table.read_schema(row_kind=True)
            for batch in changes.select(schema.names).cast(schema).to_batches(_WRITTEN_ROWS):
                writer.write(batch)
            progress.advance(new.num_rows)

    def _hidden_keys(self) -> pa.Table | None:
        """Keys of rows that are invisible until compaction: the visible row may not be the last."""
        if self._snapshot is None or not hides_new_rows(self._table):
            return None
        commits = invisible_snapshots(self._table, self._snapshot)
        if commits is None:
            # Their snapshots have expired: compare with nothing, so all rows are written.
            self._snapshot = None
            return None
        return rows_of(self._table, commits, self._table.primary_key) if commits else None

    def _reconcile(self, writer: TableWriter) -> bool:
        """Whether the comparison is still valid under the lock; False: another try is needed.

        If others wrote keys of this statement meanwhile, their rows are written again after its
        own, so they win.
        """
        current = self._address.open()
        if current.schema_id != self._table.schema_id:
            return False
        latest = current.latest_snapshot_id() or 0
        later = written_since(current, self._read_snapshot, latest)
        if later is None:
            return False
        rows = self._conflicting(rows_of(current, later)) if later else None
        if rows is None or rows.num_rows == 0 or (self._sequence and not self._writes_kinds):
            return True
        if self._writes_kinds:
            return False
        for batch in rows.to_batches():
            writer.write(batch)
        return True

    def _conflicting(self, changes: pa.Table) -> pa.Table:
        """Of the rows of others, the last one of each key that the statement also writes."""
        key = list(self._table.primary_key)
        changes = changes.filter(pc.not_equal(changes.column(ROW_KIND), "-U"))
        last = last_positions(changes, key)
        key_filter = keys_filter(self._table.read_schema(key), last)
        own_keys = self._merged.rows(key, filter=key_filter)
        conflicts = last.join(own_keys, key, join_type="left semi")
        return changes.take(conflicts.column(LAST).combine_chunks().sort())


class WrittenKeys:
    """The keys that an INSERT writes, if its table has a `sequence.field` and they are few.

    A deletion with a greater `sequence.field` hides its rows.
    """

    def __init__(self, table: Table) -> None:
        applies = table.primary_key and sequence_fields(table.options) and not hides_new_rows(table)
        self._table = table
        self._keys = list(table.primary_key) if applies else []
        self.clear()

    def clear(self) -> None:
        """Forget all keys, since the rows are read again."""
        self._rows: list[pa.Table] = []
        self._count = 0

    def add(self, rows: pa.Table) -> None:
        """Note the keys of rows."""
        self._count += rows.num_rows
        if self._keys and self._count <= _MOST_KEYS:
            self._rows.append(rows.select(self._keys))

    def hidden(self, table: Table) -> int:
        """How many of these keys `table`, at its newest snapshot, has no row of."""
        if not self._rows or self._count > _MOST_KEYS:
            return 0
        schema = table.read_schema(self._keys)
        written = pa.concat_tables(self._rows).cast(schema)
        visible = table.rows(self._keys, filter=keys_filter(schema, written))
        missing = written.join(visible, self._keys, join_type="left anti")
        return int(missing.group_by(self._keys).aggregate([]).num_rows)
