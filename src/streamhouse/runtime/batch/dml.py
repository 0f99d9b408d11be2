"""MERGE, UPDATE, DELETE and TRUNCATE: each computes from one snapshot and makes one commit."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors import registry
from streamhouse.duckdb_engine import Batches, bounded_reader
from streamhouse.errors import TableError, UnsupportedSqlError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.purge import Purge
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.references import files_of_snapshot
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import overwrite_table, truncate_table
from streamhouse.paimon.write.commit_retries import (
    Attempt,
    attempt,
    change_user,
    remove_dead_attempts,
    with_retries,
)
from streamhouse.runtime.batch import unfinished_delete
from streamhouse.runtime.batch.row_kinds import (
    actions_of,
    after,
    before,
    dml_strategy,
    kinds,
    remaining,
)
from streamhouse.runtime.batch.scan_pruning import Pruning
from streamhouse.runtime.batch.scans import scan_of
from streamhouse.runtime.batch.wait_for_compaction import (
    java_core,
    make_visible,
    write_iceberg_metadata,
)
from streamhouse.runtime.session.session import Session
from streamhouse.sql import syntax
from streamhouse.sql.batch.dml_plan import analyze_dml
from streamhouse.sql.plan import ROW, AsOf, BoundedScan, DmlQuery

_PLAIN = re.compile(r"[\w.-]+=[\w.-]+")
"""Names of columns and values of partitions that the names of their folders have as they are."""


@dataclass(frozen=True)
class Changed:
    """How many rows a statement inserted, updated and deleted; `rewritten`: by an overwrite.

    `snapshot` is the snapshot with the changes; None if there was nothing to change. `actions` are
    other effects, such as "table shop.t created".
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rewritten: bool = False
    snapshot: int | None = None
    actions: tuple[str, ...] = ()

    def plus(self, other: Self) -> Self:
        """The counts of both, and the later snapshot."""
        return dataclasses.replace(
            self,
            inserted=self.inserted + other.inserted,
            updated=self.updated + other.updated,
            deleted=self.deleted + other.deleted,
            rewritten=self.rewritten or other.rewritten,
            snapshot=other.snapshot or self.snapshot,
            actions=(*self.actions, *other.actions),
        )

    def __str__(self) -> str:
        counts = [
            f"{count:,} {action}"
            for action in ("inserted", "updated", "deleted")
            if (count := getattr(self, action))
        ]
        done = [*self.actions, *([", ".join(counts)] if counts else [])]
        text = "; ".join(done) or "nothing to change"
        return text + (" (all files of the table were rewritten)" if self.rewritten else "")


def execute(
    session: Session, statement: syntax.DmlStatement, sidecar: Sidecar | None = None
) -> Changed:
    """Run a MERGE, UPDATE or DELETE atomically, with optimistic concurrency control.

    It is computed from the target's newest snapshot, and committed only if no other changes were
    committed meanwhile (compactions do not count). Otherwise it is computed again; see
    `with_retries`. All changes are one snapshot, so a killed process has written all or none. A
    compaction that it needs runs in `sidecar`, else in one started for this. Raises `SqlError`,
    `TableError` and `CommitConflictError`; nothing is changed then.
    """
    address = _target(session, statement)
    with java_core(address.warehouse, sidecar) as java:
        purge = Purge(java, address.identifier)
        unfinished_delete.finish(address, purge)
        remove_dead_attempts(address.open())

        def attempted() -> tuple[Changed, bool] | None:
            current = _Attempt(session, statement, address, purge)
            changed = current.run()
            return None if changed is None else (changed, current.compacts)

        result, compacted = with_retries(address.open(), attempted)
        if result.snapshot is not None and not compacted:
            make_visible(address, java)
        write_iceberg_metadata(address, java)
        return result


def truncate(session: Session, statement: syntax.Truncate, sidecar: Sidecar | None = None) -> None:
    """Remove all rows of a table."""
    address = _target(session, statement)
    truncate_table(address.open(), change_user())
    with java_core(address.warehouse, sidecar) as java:
        write_iceberg_metadata(address, java)


def _target(session: Session, statement: syntax.DmlStatement | syntax.Truncate) -> TableAddress:
    name = statement.target
    if "$" in name[-1]:
        raise UnsupportedSqlError.at(
            statement.position,
            f"{'.'.join(name)} is a branch or a system table and cannot be changed; name the table "
            "itself",
        )
    target = session.table(name)
    if target.connector != "paimon":
        raise UnsupportedSqlError.at(
            statement.position,
            f"{'.'.join(name)} is a {target.connector} table; only Paimon tables can be changed",
        )
    registry.check_sink(target, statement.position)
    return session.address(target)


class _Attempt:
    """One try of a statement."""

    def __init__(
        self, session: Session, statement: syntax.DmlStatement, address: TableAddress, purge: Purge
    ) -> None:
        self._session = session
        self._address = address
        self._purge = purge
        self._table = address.open()
        self._change = analyze_dml(statement, session)
        self._strategy = dml_strategy(self._table, self._change)
        if self._strategy.rewrites:
            self._change = analyze_dml(statement, session, everything=True)
        self._count = ChangeCount(self._table, self._change)
        self._snapshot = 0
        self._pruning = Pruning(self._change.query)

    def run(self) -> Changed | None:
        """Compute, write and commit; None if other commits were faster: then nothing is changed."""
        if not self._hides_new_rows:
            return self._write()
        if self._hidden_rows():
            self._purge.start()
        with commit_lock(self._table.location):
            if self._hidden_rows():
                self._purge.run({}, self._partition)
            return self._write()

    @property
    def _hides_new_rows(self) -> bool:
        """Whether new rows are invisible until compaction; then what it reads is compacted."""
        return (
            bool(self._table.primary_key)
            and self._table.options.get("deletion-vectors.enabled", "false").lower() == "true"
        )

    def _hidden_rows(self) -> bool:
        """Whether its partitions may have rows that wait for a compaction."""
        latest = self._table.latest_snapshot_id()
        if latest is None:
            return False
        files = files_of_snapshot(self._table, latest, ["file_path", "level"])
        waiting = files.filter(pc.equal(files.column("level"), 0)).column("file_path").to_pylist()
        named = (f"{name}={text}" for name, text in self._partition.items())
        folders = set(filter(_PLAIN.fullmatch, named))
        return any(folders <= set(path.split("/")) for path in waiting)

    def _write(self) -> Changed | None:
        self._snapshot = self._table.latest_snapshot_id() or 0
        with attempt(self._table) as own:
            messages = self._prepare(own)
            if not self._count.any:
                own.committer.abort(messages)
                return Changed()
            if self.compacts:
                self._purge.start()
            with commit_lock(self._table.location):
                if not self._outdated():
                    self._commit(own, messages)
                    count = self._count
                    snapshot = self._table.snapshots.last_commit_of(own.user)
                    assert snapshot is not None
                    return Changed(
                        count.inserted, count.updated, count.deleted, self._strategy.rewrites,
                        snapshot.id,
                    )  # fmt: skip
        own.committer.abort(messages)
        return None

    def _prepare(self, own: Attempt) -> list[bytes]:
        writer = own.writer(self._strategy.options, self._strategy.rewrites)
        return writer.write_all(self._batches())

    @property
    def _partition(self) -> dict[str, str]:
        """The values of partition columns of all rows that the statement reads or changes.

        Rows of other partitions need no compaction, for which writers of the table would wait.
        """
        table, scans = self._table, self._change.query.scans
        if len(scans) > 1:
            # It may read the table once more.
            return {}
        target = scans[0].relation
        fields = [table.arrow_schema.field(name) for name in table.partition_keys]
        found = self._pruning.partition(target, pa.schema(fields))
        unnamed = table.options.get("partition.default-name", "__DEFAULT_PARTITION__")
        return {name: text for name, text in found.items() if text.strip() and text != unnamed}

    @property
    def compacts(self) -> bool:
        """Whether the statement itself compacts what it has written, before others write."""
        return self._strategy.purges and self._count.deleted > 0

    def _commit(self, own: Attempt, messages: list[bytes]) -> None:
        """Commit under the lock; deletes to be purged are compacted before it is released."""
        if self._strategy.rewrites:
            overwrite_table(self._address.open(), own.user, messages, self._strategy.options)
            return
        own.committer.commit(0, messages)
        if self.compacts:
            self._purge.run(self._strategy.options, self._partition)

    def _outdated(self) -> bool:
        """Whether the table has changed since it was read."""
        latest = self._table.latest_snapshot_id() or 0
        if self._table.snapshots.changed_rows(self._snapshot, latest):
            return True
        return self._address.open().schema_id != self._table.schema_id

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """The rows to write, in order; raises `TableError` at the end if a row is changed twice."""
        with bounded_reader(self._change.query, self._scan) as reader:
            for batch in reader:
                changes = pa.Table.from_batches([batch])
                self._count.add(changes)
                if self._strategy.rewrites:
                    written = [remaining(self._table, self._change, changes)]
                else:
                    written = kinds(self._table, self._strategy, self._change, changes)
                for rows in written:
                    yield from rows.to_batches()
        self._count.check()

    def _scan(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        if scan.relation == self._change.query.scans[0].relation:
            return self._numbered(scan)
        is_target = scan.table.connector == "paimon" and (
            self._session.address(scan.table) == self._address
        )
        if is_target and not scan.as_of:
            if not self._snapshot:
                return self._table.read_schema(scan.columns), lambda: iter(())
            scan = dataclasses.replace(scan, as_of=AsOf(self._snapshot))
        return scan_of(self._session, scan)

    def _numbered(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        """The target's rows, with row numbers, as of the snapshot that the statement reads."""
        columns = [name for name in scan.columns if name != ROW]
        columns = columns or [self._table.columns[0].name]
        schema = self._table.read_schema(columns).append(pa.field(ROW, pa.int64()))
        condition = None
        if not self._strategy.rewrites:
            condition = self._pruning.filter(scan.relation, self._table.arrow_schema)

        def read() -> Iterator[pa.RecordBatch]:
            first = 0
            for batch in self._table.read(columns, self._snapshot, filter=condition):
                numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
                first += batch.num_rows
                yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)

        return schema.empty_table().select(list(scan.columns)).schema, read


class ChangeCount:
    """Counts the changes of one try; keeps the keys of changed rows for `check`."""

    def __init__(self, table: Table, change: DmlQuery) -> None:
        self._table = table
        self._change = change
        self._changed: list[pa.Table] = []
        self._inserted: list[pa.Table] = []
        self.inserted = 0
        self.updated = 0
        self.deleted = 0

    @property
    def any(self) -> bool:
        """Whether anything is changed."""
        return bool(self.inserted or self.updated or self.deleted)

    def add(self, batch: pa.Table) -> None:
        """Count a batch of changes."""
        actions = actions_of(self._change, batch)
        new = pc.fill_null(pc.equal(actions, "insert"), False)
        updated, deleted = (pc.fill_null(pc.equal(actions, a), False) for a in ("update", "delete"))
        self.inserted += new.true_count
        self.updated += updated.true_count
        self.deleted += deleted.true_count
        if not self._change.joined:
            return
        keys = list(self._table.primary_key)
        changed = pc.or_(updated, deleted)
        rows = before(self._table, batch).append_column(ROW, batch.column(1))
        self._changed.append(
            rows.filter(changed).select([*(keys or self._identifying_columns), ROW])
        )
        if keys:
            self._inserted.append(after(self._table, batch).filter(new).select(keys))

    @property
    def _identifying_columns(self) -> list[str]:
        """The columns that identify a row in error messages, for a table without a primary key."""
        return [column.name for column in self._table.columns[:3]]

    def check(self) -> None:
        """Raise `TableError` if a row is changed twice, or a key inserted twice."""
        keys = list(self._table.primary_key)
        duplicate = _first_duplicate(self._changed, [ROW])
        if duplicate is not None:
            row = {name: duplicate[name] for name in keys or self._identifying_columns}
            raise TableError(
                f"MERGE into {self._table.identifier}: several rows of the source match the row "
                f"{_text(row)}, so the result is undefined; reduce the source to one "
                "row for each target row (SELECT DISTINCT, GROUP BY), or narrow ON or WHEN "
                "MATCHED AND"
            )
        duplicate = _first_duplicate(self._inserted, keys)
        if duplicate is not None:
            raise TableError(
                f"MERGE into {self._table.identifier}: several rows of the source are inserted "
                f"with the primary key {_text(duplicate)}; reduce the source to one row "
                "for each key (SELECT DISTINCT, GROUP BY)"
            )


def _first_duplicate(parts: list[pa.Table], keys: list[str]) -> dict[str, object] | None:
    """The first row whose `keys` occur twice; None if there is none."""
    if not parts or not keys:
        return None
    rows = pa.concat_tables(parts)
    counts = rows.group_by(keys).aggregate([([], "count_all")])
    duplicates = counts.filter(pc.greater(counts.column("count_all"), 1))
    if duplicates.num_rows == 0:
        return None
    first = duplicates.slice(0, 1).select(keys)
    row: dict[str, object] = KeySet(first).rows(rows).slice(0, 1).to_pylist()[0]
    return row


def _text(row: dict[str, object]) -> str:
    return "(" + ", ".join(f"{name} = {value!r}" for name, value in row.items()) + ")"
