"""The oldest state from which a view can still be recomputed.

Source snapshots and lookup snapshots expire, so old batches cannot be recomputed. An audit then
takes the view at some snapshot as it is, and recomputes only the batches after this snapshot.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa

from streamhouse.errors import DataLossError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.invisible_rows import rows_invisible_to_select
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.runtime.audit.recompute import WaitingRows
from streamhouse.runtime.audit.recorded_batches import Batch, Commits, RecordedBatches
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.lookup_journal import LookupJournal
from streamhouse.runtime.state.pending_rows import ATTEMPTS, DUE, PendingRows, as_source


@dataclass(frozen=True)
class ProvableRange:
    """The snapshot of the view that an audit starts from (0: the empty table).

    `first_batches` has, by query, the number of the first batch that is recomputed; a query without
    an entry is recomputed from its first batch.
    """

    snapshot: int
    first_batches: Mapping[str, int] = field(default_factory=dict)


def provable_range(
    table: Table, snapshots: Sequence[Snapshot], recorded: RecordedBatches
) -> ProvableRange:
    """The earliest possible start of an audit of the first of `snapshots` (newest first).

    A snapshot of which a SELECT does not see all rows is no start.
    Raises `DataLossError` if there is none: even after the newest snapshot inputs have expired.
    """
    needed = {
        user: _first_readable(recorded, batches) for user, batches in recorded.of_query.items()
    }
    commits = Commits(snapshots)
    first = snapshots[-1].id if snapshots else 1
    overwritten = next((s.id for s in snapshots if s.commit_kind == "OVERWRITE"), 0)
    everything = first == 1 and not any(needed.values())
    if everything and (not overwritten or not rows_invisible_to_select(table, overwritten).rows):
        return ProvableRange(overwritten)
    for snapshot in reversed(snapshots):
        if snapshot.id < overwritten:
            continue
        firsts = {
            user: _next_batch(recorded.last[user], snapshot.id, commits, least)
            for user, least in needed.items()
        }
        if (
            all(firsts[user] >= needed[user] for user in needed)
            and all(pending_rows_at(recorded, user, firsts[user]) is not None for user in needed)
            and not rows_invisible_to_select(table, snapshot.id).rows
        ):
            return ProvableRange(snapshot.id, firsts)
    raise DataLossError(
        f"table {table.identifier} cannot be audited: snapshots of its sources or lookups that "
        "even its newest state was computed from have expired; retain more with their table "
        "options snapshot.time-retained and snapshot.num-retained.min"
    )


def pending_rows_at(recorded: RecordedBatches, user: str, batch: int) -> WaitingRows | None:
    """The rows of a query that were pending before `batch`; None if that snapshot has expired."""
    spec = recorded.spec(recorded.of_query[user][0])
    pending = recorded.target.auxiliary_table("pending")
    empty = WaitingRows(pa.table({}), ())
    if spec.retry is None or batch == 0:
        return empty
    table = pending.find()
    if table is None:
        return empty
    snapshot_id = table.latest_snapshot_id()
    for snapshot in table.snapshots.newest_first():
        if snapshot.commit_user == user and snapshot.commit_identifier >= batch:
            snapshot_id = snapshot.id - 1
        elif snapshot.commit_user == user:
            break
    if not snapshot_id:
        return empty
    if table.snapshots.find(snapshot_id) is None:
        return None
    rows = PendingRows(pending, user).read(snapshot_id)
    if not rows.num_rows:
        return empty
    due = rows.column(DUE).cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    states = list(zip(due, rows.column(ATTEMPTS).to_pylist(), strict=True))
    return WaitingRows(as_source(rows, spec.query.scan.changelog), states)


def _first_readable(recorded: RecordedBatches, batches: Sequence[Batch]) -> int:
    """The first batch of a query from which on all inputs still exist; 0 if all inputs do."""
    earliest: dict[str, int] = {}
    first = 0
    for _, group in groupby(batches, key=lambda batch: batch.fingerprint):
        same_query = list(group)
        spec = recorded.spec(same_query[0])
        source = _paimon_source(spec)
        first_kept = 0 if spec.lookup_journal is None else _first_journaled(spec)
        for batch in same_query:
            if batch.number < first_kept:
                first = batch.number + 1
            for table, snapshot in _needs(spec, source, batch):
                if table.identifier not in earliest:
                    earliest[table.identifier] = table.open().earliest_snapshot_id() or 1
                if snapshot < earliest[table.identifier]:
                    first = batch.number + 1
    # The first rows of the lineage may have been removed as well (`state.lineage`).
    return max(first, batches[0].number)


def _first_journaled(spec: QuerySpec) -> int:
    """The first batch whose lookups on servers are still in the journal."""
    with closing(LookupJournal(spec)) as journal:
        return journal.first_kept()


def _paimon_source(spec: QuerySpec) -> PaimonSource | None:
    """The source of a query, if it is a Paimon table."""
    if spec.source.connector != "paimon":
        return None
    opened = spec.source.open(spec.query.scan.columns)
    return opened if isinstance(opened, PaimonSource) else None


def _needs(
    spec: QuerySpec, source: PaimonSource | None, batch: Batch
) -> list[tuple[TableAddress, int]]:
    """The tables that a batch reads, each with the oldest snapshot that it needs."""
    needs = [
        (table, batch.end["dims"][lookup.relation])
        for lookup, table in spec.pinned
        if batch.end["dims"][lookup.relation]
    ]
    address = spec.source.address
    start, end = source_offset(batch.start), source_offset(batch.end)
    if source is not None and address is not None and start != end and end:
        needs.append((address, source.oldest_read(start, end)))
    return needs


def _next_batch(last: Batch, snapshot: int, commits: Commits, least: int) -> int:
    """The first batch of a query that is not in the view's snapshot; `least` or more if possible.

    `last` is the last batch of the query that is recorded.
    Batches that wrote nothing make no snapshot: those after the query's last commit in the snapshot
    may count as part of it or not. Where the last commit is unknown, they do.
    """
    before, after = commits.in_snapshot(last.query_id, snapshot)
    most = last.number + 1 if after is None else after
    return most if before is None else min(max(before + 1, least), most)
