"""Detects other processes that keep a table compacted.

If two processes compact at once, one of them loses its commit, and a Flink job that loses it
restarts. So a reader compacts a table only if nobody else does.
"""

import os
import socket
import time
from pathlib import Path

from streamhouse.paimon.changelog.consumers import (
    CHECKPOINT_LOCK,
    Consumer,
    Consumers,
    query_consumer,
)
from streamhouse.paimon.read.table import Table

OWN_USER_PREFIX = "streamhouse-"
"""How the commit users of our maintenance and DML statements begin; those of queries are UUIDs."""
ALIVE_S = 60.0
"""A process that has not refreshed its consumer or committed for this long counts as gone."""
_RECENT = 100


def written_by_live_query(table: Table) -> bool:
    """Whether a running query has written the table recently; its pipeline compacts the table."""
    consumers, users = Consumers(table), set[str]()
    for number, snapshot in enumerate(table.snapshots.newest_first()):
        if number >= _RECENT:
            break
        if not snapshot.commit_user.startswith(OWN_USER_PREFIX):
            users.add(snapshot.commit_user)
    return any(_alive(consumers, query_consumer(user)) for user in users)


def is_alive(table: Table, query_id: str) -> bool:
    """Whether the query with this id has refreshed its consumer at the table within a minute."""
    return _alive(Consumers(table), query_consumer(query_id))


def compacted_by_others(table: Table) -> bool:
    """Whether another process keeps the table compacted.

    That is the pipeline of a running query that writes it, or any other program, such as Flink,
    that has committed a compaction within the last minute.
    """
    oldest = (time.time() - ALIVE_S) * 1000
    for number, snapshot in enumerate(table.snapshots.newest_first()):
        if number >= _RECENT or snapshot.time_ms < oldest:
            break
        if snapshot.commit_kind == "COMPACT" and not snapshot.commit_user.startswith(
            OWN_USER_PREFIX
        ):
            return True
    return written_by_live_query(table)


def _alive(consumers: Consumers, consumer_id: str) -> bool:
    refreshed = consumers.refreshed_s(consumer_id)
    if refreshed is None or time.time() - refreshed >= ALIVE_S:
        return False
    consumer = consumers.get(consumer_id)
    return consumer is not None and _may_run(consumer)


def _may_run(consumer: Consumer) -> bool:
    """Whether the query's process may be running; True if this machine cannot know."""
    if consumer.checkpoint is None or consumer.host != socket.gethostname():
        return True
    try:
        pid = (Path(consumer.checkpoint) / CHECKPOINT_LOCK).read_text().strip()
    except OSError:
        return True
    return pid.isdigit() and os.path.exists(f"/proc/{pid}")
