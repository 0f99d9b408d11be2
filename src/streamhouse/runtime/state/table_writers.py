"""Finds out who wrote the present rows of a table: queries, other streaming jobs, statements."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import QUERY, Consumer, Consumers, query_consumer
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.paimon.write.commit_retries import CHANGE_USER
from streamhouse.runtime.state.checkpoint import former_ids, pipeline_of
from streamhouse.runtime.state.lineage import SUFFIX

_BATCH_IDENTIFIER = (1 << 63) - 1
"""The commit identifier of batch jobs of other Paimon engines."""


@dataclass(frozen=True)
class StreamingWriter:
    """A continuous query or another streaming job; `definition`: that of its last batch, if known.

    `consumer` is its consumer at the table, if it has one. `str` describes the writer: by its
    pipeline, its source, or its commit user.
    """

    commit_user: str
    definition: str | None
    consumer: Consumer | None

    def __str__(self) -> str:
        source = json.loads(self.definition)["source"] if self.definition else {}
        over = f" over {source['table']}" if source.get("table") else ""
        checkpoint = None if self.consumer is None else self.consumer.checkpoint
        if checkpoint is not None:
            name = pipeline_of(Path(checkpoint))
            return f"a query{over} of pipeline '{name}' (checkpoint {checkpoint})"
        if self.definition is None:
            return f"a streaming job with the commit user '{self.commit_user}'"
        return f"the query {self.commit_user}{over}"


@dataclass(frozen=True)
class Writers:
    """Who wrote rows of a table, besides a given set of queries.

    `streams` are other continuous queries and streaming jobs; `statements` says that INSERT …
    VALUES or the like, or batch jobs, wrote some of the rows.
    """

    streams: tuple[StreamingWriter, ...]
    statements: bool


def other_writers(address: TableAddress, own: Collection[str]) -> Writers:
    """Who, besides the queries with the ids `own`, wrote rows that the table may have now.

    Commits before the newest snapshot without rows do not count. A query whose commits have
    expired is known from the lineage.
    """
    table = address.open()
    snapshots = list(since_empty(table))
    recorded = lineage_definitions(address)
    committed = {snapshot.commit_user for snapshot in snapshots}
    consumers = {consumer.id: consumer for consumer in Consumers(table).all()}
    known = {id.removeprefix(QUERY) for id in consumers}
    complete = _is_complete(table, snapshots)
    queries = {user for user in recorded if user in committed or not complete} - set(own)
    streams = {
        snapshot.commit_user
        for snapshot in snapshots
        if snapshot.commit_user not in {*own, *recorded}
        and (_is_streaming(snapshot) or snapshot.commit_user in known)
    }
    writers = {
        user: StreamingWriter(user, recorded.get(user), consumers.get(query_consumer(user)))
        for user in sorted(queries | streams)
    }
    # The rows of earlier queries of the same checkpoints were kept by a reset.
    for consumer in [writers[user].consumer for user in queries]:
        if consumer is not None and consumer.checkpoint is not None:
            for former in former_ids(Path(consumer.checkpoint)):
                writers.pop(former, None)
    others = committed - {*own, *recorded} - streams
    statements = any(
        snapshot.commit_user in others and snapshot.commit_kind in ("APPEND", "OVERWRITE")
        for snapshot in snapshots
    )
    return Writers(tuple(writers.values()), statements)


def own_consumers(table: Table, checkpoint: Path) -> list[str]:
    """The ids of queries that have a consumer at a table and their checkpoint in this folder."""
    return [
        consumer.id.removeprefix(QUERY)
        for consumer in Consumers(table).all()
        if consumer.id.startswith(QUERY) and consumer.checkpoint == str(checkpoint)
    ]


def has_rows(table: Table) -> bool:
    """Whether the newest snapshot has rows, or records of deleted ones."""
    latest = table.latest_snapshot_id()
    return latest is not None and table.snapshot(latest).total_record_count != 0


def since_empty(table: Table, latest: int | None = None) -> Iterator[Snapshot]:
    """The snapshots after the newest one without rows, newest first; up to `latest`."""
    for snapshot in table.snapshots.newest_first(latest):
        if snapshot.total_record_count == 0:
            return
        yield snapshot


def was_emptied(table: Table, query_id: str) -> bool:
    """Whether a statement has removed all rows of a table since a query has committed to it."""
    for snapshot in table.snapshots.newest_first():
        if snapshot.commit_user == query_id:
            return False
        if snapshot.commit_kind == "OVERWRITE" and snapshot.total_record_count == 0:
            return True
    return False


def _is_complete(table: Table, snapshots: Sequence[Snapshot]) -> bool:
    """Whether `snapshots` has all commits since the table had no rows: none of them has expired."""
    if not snapshots or snapshots[-1].id == 1:
        return True
    return table.snapshots.find(snapshots[-1].id - 1) is not None


def _is_streaming(snapshot: Snapshot) -> bool:
    """Whether a commit is of a streaming job; batch jobs and statements commit once per user."""
    return (
        snapshot.commit_kind == "APPEND"
        and 0 < snapshot.commit_identifier < _BATCH_IDENTIFIER
        and not snapshot.commit_user.startswith(CHANGE_USER)
    )


def lineage_definitions(address: TableAddress) -> dict[str, str | None]:
    """The query ids in the lineage of a table, each with its last definition, if recorded."""
    table = address.auxiliary_table(SUFFIX).find()
    if table is None:
        return {}
    definitions: dict[str, str | None] = {}
    for batch in table.read(["query_id", "definition"]):
        for row in batch.to_pylist():
            definitions[row["query_id"]] = row["definition"] or definitions.get(row["query_id"])
    return definitions
