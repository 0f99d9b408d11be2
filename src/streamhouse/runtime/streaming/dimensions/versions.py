"""Chooses the version of each dimension that a batch joins; the driver writes it into the offset.

Keys of an offset for this:

- `dims`: relation to snapshot (0: before the first);
- `partitions`: relation to the joined partitions, as their folders are named; only for lookups that
  do not join all partitions;
- `looked_up`: true if a lookup queries a server; `state.lookup_journal` records what it found;
- `refreshed`: relation to table, partition rule, and when the snapshot and the partitions were last
  refreshed (epoch ms); only for lookups that do not always join the newest snapshot;
- `coming`: relation to the snapshot and partitions that a later batch will join, and that executors
  preload in the background.

After a batch the driver writes which versions the executors have preloaded into a file of the
query's run folder, which the planner reads. That only affects whether a version can be joined
without waiting.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import RefreshRule
from streamhouse.lookup.partitions import Partition, key_fields, newest_snapshot
from streamhouse.lookup.storage.changed_keys import few_changes_between, version_of
from streamhouse.lookup.strategies.background_refresh import Pinned
from streamhouse.lookup.strategies.selection import Choice, refresh_rule
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.state.batch_logs import note, noted
from streamhouse.source import Offset

_LATEST_WITHIN_S = 0.1
"""How old the newest snapshot may be, if another machine wrote it."""
IDLE_MS = 60_000
"""After this time without a batch, the newest version is joined without a preload: Spark has ended
the idle Python workers, and their preloads with them."""


_Listed: TypeAlias = list[list[str | None]]
"""Partitions in an offset, as JSON."""


_FILE = "loaded.json"


@dataclass(frozen=True)
class _Version:
    """The version of one lookup, as an offset has it; `coming` is the one that is preloaded."""

    snapshot: int
    partitions: _Listed | None
    refreshed_ms: int
    chosen_ms: int
    coming: Mapping[str, Any] | None = None

    @property
    def pinned(self) -> dict[str, Any]:
        """The snapshot, and the partitions if not all are joined."""
        partitions = {} if self.partitions is None else {"partitions": self.partitions}
        return {"snapshot": self.snapshot, **partitions}


class DimensionVersions:
    """Chooses the versions of one query's lookups, batch by batch; driver only."""

    def __init__(self, specs: Sequence[DimensionSpec], choices: Sequence[Choice]) -> None:
        self._lookups = [
            _Lookup(spec, choice)
            for spec, choice in zip(specs, choices, strict=True)
            if not spec.lookup.on_server
        ]
        self._queries_server = len(self._lookups) < len(specs)

    def offset_keys(
        self, before: Offset, now_ms: int, loaded: Collection[str] = ()
    ) -> dict[str, Any]:
        """The keys for the offset of a batch with the time `now_ms`.

        `before` is the end offset of the previous batch. `loaded` are the relations whose `coming`
        version all tasks of the previous batch had preloaded.
        """
        found: dict[str, Any] = {"dims": {}}
        for lookup in self._lookups:
            version = lookup.next(before, now_ms, lookup.relation in loaded)
            keys: dict[str, Any] = {"dims": version.snapshot}
            if version.partitions is not None:
                keys["partitions"] = version.partitions
            if lookup.rule.allows_older:
                times = {"snapshot": version.refreshed_ms, "partitions": version.chosen_ms}
                keys["refreshed"] = {**lookup.identity, **times}
            if version.coming is not None:
                keys["coming"] = version.coming
            for key, value in keys.items():
                found.setdefault(key, {})[lookup.relation] = value
        if self._queries_server:
            found["looked_up"] = True
        return found


def pinned_partitions(offset: Offset, relation: str) -> list[Partition] | None:
    """The partitions of a lookup that a batch joins; None: all."""
    return _partitions(offset.get("partitions", {}).get(relation))


def preloading_version(offset: Offset, relation: str) -> Pinned | None:
    """The version of a lookup that is preloaded for a later batch; None if there is none."""
    found = offset.get("coming", {}).get(relation)
    return None if found is None else (found["snapshot"], _partitions(found.get("partitions")))


def _partitions(listed: _Listed | None) -> list[Partition] | None:
    return None if listed is None else [tuple(partition) for partition in listed]


class _Lookup:
    """Chooses the versions of one lookup."""

    def __init__(self, spec: DimensionSpec, choice: Choice) -> None:
        self.relation, self._address = spec.lookup.relation, spec.address
        self.rule: RefreshRule = refresh_rule(spec.lookup, choice)
        self._seen: tuple[int, _Listed] = (0, [])

    @property
    def identity(self) -> dict[str, Any]:
        """Table and partition rule; an earlier batch's version is kept only if they are equal."""
        choice = self.rule.partitions
        return {"table": self._address.identifier, "rule": None if choice is None else choice.text}

    def next(self, before: Offset, now_ms: int, loaded: bool) -> _Version:
        last, table = self._last(before), self._address.follow()
        exists = last is not None and _exists(table, last.snapshot)
        if last is not None and exists and not self.rule.due(now_ms, last.refreshed_ms):
            return last
        newest = self._newest(table, last, now_ms)
        idle = now_ms - int(before.get("now", now_ms)) > IDLE_MS
        if last is None or not exists or not last.snapshot or idle:
            return newest
        return self._next(table, last, newest, loaded)

    def _newest(self, table: Table, last: _Version | None, now_ms: int) -> _Version:
        rule, snapshot = self.rule, table.latest_snapshot_id(_LATEST_WITHIN_S) or 0
        if rule.partitions is None:
            return _Version(snapshot, None, now_ms, now_ms)
        if last is not None and not rule.partitions_due(now_ms, last.chosen_ms):
            return _Version(snapshot, last.partitions, now_ms, last.chosen_ms)
        if snapshot != self._seen[0]:
            snapshot, found = newest_snapshot(table)
            chosen = rule.partitions.choose(found, key_fields(table))
            self._seen = snapshot, [list(partition) for partition in chosen]
        return _Version(snapshot, self._seen[1], now_ms, now_ms)

    def _next(self, table: Table, last: _Version, newest: _Version, loaded: bool) -> _Version:
        """The version for the next batch.

        The newest, if there is little to load, or if the batch would be too many snapshots behind.
        Else the preloaded version, if it is ready, or the last one, with a version to preload.
        """
        coming = last.coming
        if coming is not None and not _exists(table, coming["snapshot"]):
            coming = None
        if coming is not None and loaded:
            last = replace(newest, snapshot=coming["snapshot"], partitions=coming.get("partitions"))
            coming = None
        moved = newest.partitions != last.partitions
        behind = self.rule.behind_partitions if moved else self.rule.behind
        if not behind or newest.snapshot - last.snapshot > behind:
            return newest
        held, wanted = (version_of(table, version.snapshot or None) for version in (last, newest))
        if (held == wanted and not moved) or few_changes_between(held, wanted, not moved):
            return newest
        return replace(last, coming=coming or newest.pinned)

    def _last(self, before: Offset) -> _Version | None:
        """The version of the previous batch, if it had the same table and partition rule."""
        record = before.get("refreshed", {}).get(self.relation) if before else None
        if record is None or any(record.get(key) != value for key, value in self.identity.items()):
            return None
        return _Version(
            before["dims"][self.relation],
            before.get("partitions", {}).get(self.relation),
            record["snapshot"],
            record["partitions"],
            before.get("coming", {}).get(self.relation),
        )


def _exists(table: Table, snapshot: int) -> bool:
    """Whether a snapshot still exists; after a long stop it may have expired."""
    return snapshot == 0 or table.snapshots.find(snapshot) is not None


def report_loaded(folder: Path, end: Offset, reports: Sequence[Mapping[str, Any]]) -> None:
    """Write which relations' `coming` versions all tasks of the batch up to `end` have preloaded.

    `loaded` in a task's report lists those of this task; None if the task joined nothing.
    """
    if "coming" not in end:
        return
    reported = [set(report["loaded"]) for report in reports if report["loaded"] is not None]
    loaded = set(end["coming"]).intersection(*reported)
    note(folder / _FILE, end, sorted(loaded))


def reported_loaded(folder: Path | None, start: Offset) -> Collection[str]:
    """The relations reported for the batch that ended at `start`; none if it ran in another run."""
    if folder is None or "coming" not in start:
        return ()
    return noted(folder / _FILE, start) or ()
