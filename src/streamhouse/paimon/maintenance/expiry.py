"""Snapshot, partition, tag and consumer expiry by a table's own options, with Paimon's Java core.

In this order: consumers of dead queries, then what the Java core does at a commit of its own:
automatic tags, expired tags, partitions, consumers, snapshots, changelogs. The Java core decides
what stays: the snapshots that the options retain or that have a tag, and all from the position of
the slowest consumer on.
"""

import logging
import time
from typing import Any

from streamhouse.options import duration_ms, integer
from streamhouse.paimon.changelog.consumers import Consumers
from streamhouse.paimon.java.expiry.partitions import expire_partitions, spec_text
from streamhouse.paimon.java.expiry.shared_files import (
    automatic_tags,
    expire_changelogs,
    expire_snapshots,
)
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.files import is_local, names_after
from streamhouse.paimon.storage.lock import commit_lock

_LOG = logging.getLogger("streamhouse.maintenance")
_OPTIONS = {
    "write-only": "false",
    "snapshot.expire.execution-mode": "sync",
}
_MORE_OPTIONS = ("partition.expiration-time", "tag.automatic-creation", "consumer.expiration-time")
"""Options by which partitions, tags or consumers expire, besides snapshots."""
_MIN, _MAX = "snapshot.num-retained.min", "snapshot.num-retained.max"
_TIME = "snapshot.time-retained"
_MANY_SNAPSHOTS = 100
_MANY_REMOTE_SNAPSHOTS = 10
_checked: dict[str, float] = {}
"""When the partitions of a table, by its location, were last checked (monotonic seconds)."""


def expire(sidecar: Sidecar, table: Table, seconds: float = 2.0) -> int:
    """Expire what `table` no longer retains, for about `seconds`; returns how many snapshots.

    Separately retained changelogs are counted, too. Each step removes at most
    `snapshot.expire.limit` snapshots. If nothing can expire yet, the Java core only writes the hint
    `EARLIEST`, once. Without the hint, each read of changes would list all snapshots: thousands
    within the hour that tables retain them by default. Commits may run concurrently; only
    partition expiry, which is a commit, takes the table's lock.
    """
    deadline = time.monotonic() + seconds
    Consumers(table).drop_expired()
    if any(table.options.get(key) for key in _MORE_OPTIONS) or table.rust.list_tags():
        partitions = _partitions_due(table)
        sidecar.call(
            table.identifier, lambda jvm, java: _maintain(jvm, java, table, partitions), _OPTIONS
        )
    expired = 0
    while is_due(table) or _lacks_earliest_hint(table):
        removed = sidecar.call(table.identifier, _expire, _OPTIONS)
        expired += removed
        if not removed or time.monotonic() >= deadline:
            break
    return expired


def is_due(table: Table) -> bool:
    """Whether a snapshot may expire by the table's options and consumers; does not call Java."""
    earliest, latest = table.earliest_snapshot_id(), table.latest_snapshot_id()
    if earliest is None or latest is None:
        return False
    # Changelogs that outlive their snapshots.
    if names_after(table.files, f"{table.root}/changelog", "changelog-"):
        return True
    options = table.options
    min_retained = integer(_MIN, options.get(_MIN, "10"), 1)
    until = latest - min_retained + 1
    if options.get("consumer.changelog-only", "false").lower() != "true":
        until = min([until, *(consumer.next_snapshot for consumer in Consumers(table).all())])
    if earliest >= until:
        return False
    max_retained = options.get(_MAX)
    if max_retained is not None and latest - earliest + 1 > integer(_MAX, max_retained, 1):
        return True
    retained_ms = duration_ms(_TIME, options.get(_TIME, "1 h"))
    oldest = table.snapshots.find(earliest)
    return oldest is not None and oldest.time_ms < time.time() * 1000 - retained_ms


def _lacks_earliest_hint(table: Table) -> bool:
    """Whether there are many snapshots and no hint `EARLIEST`, so that readers list them all."""
    latest = table.latest_snapshot_id() or 0
    many = _MANY_SNAPSHOTS if is_local(table.location) else _MANY_REMOTE_SNAPSHOTS
    return latest >= many and not table.snapshots.names_earliest()


def _partitions_due(table: Table) -> bool:
    if "partition.expiration-time" not in table.options:
        return False
    key = "partition.expiration-check-interval"
    interval_s = duration_ms(key, table.options.get(key, "1 h")) / 1000
    now = time.monotonic()
    if now - _checked.get(table.location, float("-inf")) < interval_s:
        return False
    _checked[table.location] = now
    return True


def _maintain(jvm: Any, java: Any, table: Table, partitions: bool) -> None:
    with automatic_tags(jvm, java) as tags:
        tags.run()
    if partitions:
        with commit_lock(table.location):
            dropped = expire_partitions(jvm, java)
        for partition in dropped:
            text = spec_text(partition)
            _LOG.info("table '%s': dropped the expired partition %s", table.identifier, text)
    retention = java.coreOptions().consumerExpireTime()
    if retention is not None:
        java.consumerManager().expire(jvm.java.time.LocalDateTime.now().minus(retention))


def _expire(jvm: Any, java: Any) -> int:
    expired = expire_snapshots(jvm, java)
    if java.coreOptions().changelogLifecycleDecoupled():
        expired += expire_changelogs(jvm, java) or 0
    return expired
