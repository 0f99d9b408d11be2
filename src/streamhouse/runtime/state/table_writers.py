"""Finds out who wrote the present rows of a table: queries, other streaming jobs, statements."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import QUERY, Consumers, query_consumer
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

    `str` describes it, for messages.
    """

    commit_user: str
    definition: str | None
    description: str

    def __str__(self) -> str:
        return self.description


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
    snapshots = list(_since_empty(table))
    recorded = lineage_definitions(address)
    committed = {snapshot.commit_user for snapshot in snapshots}
    known = {consumer.id.removeprefix(QUERY) for consumer in Consumers(table).all()}
    complete = _is_complete(table, snapshots)
    queries = {user for user in recorded if user in committed or not complete} - set(own)
    streams = {
        snapshot.commit_user
        for snapshot in snapshots
        if snapshot.commit_user not in {*own, *recorded}
        and (_is_streaming(snapshot) or snapshot.commit_user in known)
    }
    named = (queries | streams) - _former_ids(table, queries)
    writers = [
        StreamingWriter(user, recorded.get(user), _description(table, user, recorded.get(user)))
        for user in sorted(named)
    ]
    others = committed - {*own, *recorded} - streams
    statements = any(
        snapshot.commit_user in others and snapshot.commit_kind in ("APPEND", "OVERWRITE")
        for snapshot in snapshots
    )
    return Writers(tuple(writers), statements)


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


def _since_empty(table: Table) -> Iterator[Snapshot]:
    """The snapshots after the newest one without rows, newest first."""
    for snapshot in table.snapshots.newest_first():
        if snapshot.total_record_count == 0:
            return
        yield snapshot


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


def _former_ids(table: Table, queries: Collection[str]) -> set[str]:
    """The ids of earlier queries of the same checkpoints whose rows were kept by a reset."""
    ids = set()
    for consumer in map(Consumers(table).get, map(query_consumer, queries)):
        if consumer is not None and consumer.checkpoint is not None:
            ids |= set(former_ids(Path(consumer.checkpoint)))
    return ids


def _description(table: Table, user: str, definition: str | None) -> str:
    """A description of a writer: by its pipeline, its source, or its commit user."""
    consumer = Consumers(table).get(query_consumer(user))
    source: Mapping[str, Any] = json.loads(definition)["source"] if definition else {}
    over = f" over {source['table']}" if source.get("table") else ""
    if consumer is None or consumer.checkpoint is None:
        if definition is None:
            return f"a streaming job with the commit user '{user}'"
        return f"the query {user}{over}"
    name = pipeline_of(Path(consumer.checkpoint))
    return f"a query{over} of pipeline '{name}' (checkpoint {consumer.checkpoint})"
