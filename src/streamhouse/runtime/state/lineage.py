"""Lineage of a query: the table `<target>__lineage` records what each batch read.

One row per query and batch: `query_id`, `batch_id`, `batch_time` (the batch's current timestamp,
UTC), `fingerprint` of the definition that ran, `start_offset` and `end_offset` (JSON, see
`runtime.streaming.batch_planner`), `dimensions` (JSON: table name to snapshot id), `rows_read` and
`rows_missed` (null if a crash lost the counts), and `definition` (JSON of the query; only on the
first row of each fingerprint). It is written within about five seconds after a batch, and later if
many queries run. After a crash, missing rows are written from Spark's
offset log. Rows that no audit needs any more are removed: an
audit starts from a snapshot of the target that has not expired, so it needs no batches of a query
before the query's oldest commit that has not expired.
"""

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.base import BatchLog
from streamhouse.connectors.paimon.connector import sink_writer
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.auxiliary_tables import rows_of_query
from streamhouse.runtime.state.batch_logs import KEPT
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.recorded_query import definition_json
from streamhouse.source import Offset, of_kind
from streamhouse.sql.plan import Column

SUFFIX = "lineage"
COLUMNS = (
    Column("query_id", "STRING", False),
    Column("batch_id", "BIGINT", False),
    Column("batch_time", "TIMESTAMP(3)"),
    Column("fingerprint", "STRING"),
    Column("start_offset", "STRING"),
    Column("end_offset", "STRING"),
    Column("dimensions", "STRING"),
    Column("rows_read", "BIGINT"),
    Column("rows_missed", "BIGINT"),
    Column("definition", "STRING"),
)
# For commits every few seconds: fewer compactions than by default, and still few level-0 files.
_OPTIONS = {"bucket": "1", "num-sorted-run.compaction-trigger": "8"}
_FLUSH_S = 5.0
"""A commit, with its share of compactions, costs as much as a batch."""


EVERY_S = 60.0
LEAST = 100
"""The least number of rows to remove at once, since each removal is written and compacted too."""
_MOST_ROWS = 50_000


@dataclass(frozen=True)
class BatchRecord:
    """One committed batch; `rows` and `missed` are None if a crash lost them."""

    batch: int
    start: Offset
    end: Offset
    rows: int | None
    missed: int | None
    earlier: bool = False
    """Whether an earlier run committed it, with the definition of that run."""


def _definition(text: str) -> tuple[str, str]:
    """A query's definition as JSON, and its SHA-256 fingerprint."""
    return text, hashlib.sha256(text.encode()).hexdigest()


class Lineage:
    """Writes the lineage of one query; driver only."""

    def __init__(self, spec: QuerySpec) -> None:
        self._spec = spec
        self.address = spec.target.auxiliary_table(SUFFIX)
        self.address.create(COLUMNS, ("query_id", "batch_id"), _OPTIONS)
        self._committer = TableCommitter(
            self.address.warehouse, self.address.identifier, spec.query_id
        )
        self._current = self._former = _definition(definition_json(spec))
        self._unwritten: list[BatchRecord] = []
        self._lock = threading.Lock()
        # The first batch is written at once, so that a table with results has a lineage.
        self._flushed_at = float("-inf")
        self._aged_at = float("-inf")
        self._covered, self._defined = self._state()

    def check_log(self, log: BatchLog) -> None:
        """Raise `DataLossError` if the lineage has a later batch of the query than its log."""
        log.check(self._covered, f"table {self.address.identifier}")

    def recover(self, checkpoint: Checkpoint) -> None:
        """Write the rows that a crash lost, from the offset log, with the former definition."""
        self._committer.remove_leftovers(query_tag(self._spec.query_id), self._covered + 1)
        previous = checkpoint.previous()
        if previous is not None:
            self._former = _definition(previous["definition"])
        last = checkpoint.logs.last_committed()
        start: Offset = {}
        for number, end in checkpoint.logs.logged().items():
            batch = int(end.get("batch", -1))
            if number <= last and batch > self._covered:
                self._unwritten.append(BatchRecord(batch, start, end, None, None, earlier=True))
            start = end
        self.flush()

    def add(self, record: BatchRecord) -> None:
        """Record a committed batch; the next flush writes it."""
        with self._lock:
            if record.batch > self._covered:
                self._unwritten.append(record)

    def flush_if_due(self, every_s: float = 0.0) -> None:
        """Flush if the last flush is long enough ago, at least `every_s` seconds.

        The offset log, from which a crash restores what is missing, keeps `KEPT` batches.
        """
        due = time.monotonic() >= self._flushed_at + max(_FLUSH_S, every_s)
        if (self._unwritten and due) or len(self._unwritten) >= KEPT // 2:
            self.flush()

    def flush(self) -> None:
        """Write the recorded batches in one commit."""
        with self._lock:
            if not self._unwritten:
                return
            last = self._unwritten[-1].batch
            # Only the first row of a definition has its text: an attempt must not make them again.
            rows = [self._row(record) for record in self._unwritten]
            retried(lambda: self._write(last, rows))
            self._unwritten = []
            self._covered = last
            self._flushed_at = time.monotonic()
        reached("lineage-written", last, self._spec.target.identifier)

    def _expired(self) -> pa.Table | None:
        """The `-D` rows of lineage that no audit needs any more; None if none are due."""
        if time.monotonic() - self._aged_at < EVERY_S:
            return None
        self._aged_at = time.monotonic()
        before = dead_before(self._spec.target.open(), self._spec.query_id)
        if before is None:
            return None
        return removals(self.address.open(), self._spec.query_id, before)

    def _write(self, identifier: int, rows: list[dict[str, Any]]) -> None:
        writer = sink_writer(self.address, self._spec.query_id, identifier)
        schema = self._committer.table.arrow_schema
        expired = self._expired()
        removals = [] if expired is None else expired.to_batches()
        added = pa.RecordBatch.from_pylist(rows, schema=schema)
        messages = writer.write_all([*removals, added])
        self._committer.commit(identifier, messages)

    def _row(self, record: BatchRecord) -> dict[str, Any]:
        definition, fingerprint = self._former if record.earlier else self._current
        stored = fingerprint in self._defined
        self._defined.add(fingerprint)
        names = {lookup.relation: address.identifier for lookup, address in self._spec.pinned}
        dims = {names.get(k, k): v for k, v in record.end["dims"].items()}
        return {
            "query_id": self._spec.query_id,
            "batch_id": record.batch,
            "batch_time": int(record.end["now"]),
            "fingerprint": fingerprint,
            "start_offset": json.dumps(record.start),
            "end_offset": json.dumps(record.end),
            "dimensions": json.dumps(dims),
            "rows_read": record.rows,
            "rows_missed": record.missed,
            "definition": None if stored else definition,
        }

    def _state(self) -> tuple[int, set[str]]:
        """The last written batch, and the fingerprints whose definition is stored.

        Reads the table as a stream, since a view of several months has millions of batches.
        """
        table, user = self.address.open(), self._spec.query_id
        covered, defined = -1, set[str]()
        columns = ["query_id", "batch_id", "fingerprint", "definition"]
        condition = {"method": "equal", "field": "query_id", "literals": [user]}
        for batch in table.read(columns, filter=condition):
            of_query = batch.filter(pc.equal(batch.column("query_id"), user))
            if of_query.num_rows:
                covered = max(covered, pc.max(of_query.column("batch_id")).as_py())
            with_definition = of_query.filter(pc.is_valid(of_query.column("definition")))
            defined |= set(with_definition.column("fingerprint").to_pylist())
        return covered, defined


def read_lineage(address: TableAddress) -> list[dict[str, Any]]:
    """The rows of a lineage table, sorted by query and batch; none if it does not exist."""
    table = address.find()
    if table is None:
        return []
    order = [("query_id", "ascending"), ("batch_id", "ascending")]
    records: list[dict[str, Any]] = table.rows().sort_by(order).to_pylist()
    return records


def recorded_lineage(target: TableAddress) -> list[dict[str, Any]]:
    """The lineage of a target, sorted by query and batch; `TableError` if it has none."""
    rows = read_lineage(target.auxiliary_table(SUFFIX))
    if not rows:
        raise TableError(
            f"table {target.identifier} has no lineage: no continuous query of a script has "
            "written it yet, so its expected rows are unknown"
        )
    return rows


def dead_before(target: Table, user: str) -> int | None:
    """The batch of `user`'s oldest remaining commit in `target`; None if nothing has expired."""
    earliest, latest = target.earliest_snapshot_id(), target.latest_snapshot_id()
    if earliest is None or latest is None or earliest == 1:
        return None
    for number in range(earliest, latest + 1):
        snapshot = target.snapshots.find(number)
        if snapshot is not None and snapshot.commit_user == user:
            return snapshot.commit_identifier
    return None


def removals(lineage: Table, user: str, before: int) -> pa.Table | None:
    """The changes that remove batches of `user` before `before`; None if there are too few yet.

    The definition is stored on the first row of its fingerprint. If that row is removed, the
    definition moves to the first remaining row of the fingerprint.
    """
    rows = rows_of_query(lineage, "query_id", user).sort_by("batch_id")
    expired = rows.filter(pc.less(rows.column("batch_id"), before)).slice(0, _MOST_ROWS)
    if expired.num_rows < LEAST:
        return None
    remaining = rows.slice(expired.num_rows)
    with_definition = expired.filter(pc.is_valid(expired.column("definition")))
    definitions = {row["fingerprint"]: row["definition"] for row in with_definition.to_pylist()}
    new_holders = []
    for fingerprint, definition in definitions.items():
        first = remaining.filter(pc.equal(remaining.column("fingerprint"), fingerprint)).slice(0, 1)
        new_holders += [
            {**row, "definition": row["definition"] or definition} for row in first.to_pylist()
        ]
    updated = pa.Table.from_pylist(new_holders, schema=rows.schema)
    return pa.concat_tables([of_kind(updated, "+U"), of_kind(expired, "-D")])
