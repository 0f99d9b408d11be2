"""Which maintenance job of one table is due, by its policy and by what was done before."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from streamhouse.paimon.changelog.invisible_rows import InvisibleRowsCounter
from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.options.iceberg_metadata import has_iceberg_metadata

Kind = Literal["compact", "full", "merge", "iceberg", "expire", "leftovers"]


@dataclass
class TableSchedule:
    """What maintenance remembers of one table: snapshot ids and times (monotonic seconds).

    `only_read` is whether `policy` is that of a table that queries only read: a query that writes
    it may start later. `busy` is set while the table is compacted or its manifests are merged,
    `cleaning` while snapshots or orphan files are removed; both may be set at once. `idle_at` is
    the newest snapshot at which a compaction that makes rows visible found nothing to do,
    `others_seen_at` is when another process was last seen compacting.
    """

    name: str
    pace: Pace
    table: Table | None = None
    policy: MaintenancePolicy | None = None
    only_read: bool = False
    compacted: int = 0
    compacted_full: int = 0
    attempted: int = 0
    merged: int = 0
    iceberg: int = 0
    iceberg_at: float = float("-inf")
    counted: bool = False
    compacted_at: float = field(default_factory=time.monotonic)
    full_at: float = field(default_factory=time.monotonic)
    polled_at: float = 0.0
    expired_at: float = 0.0
    expiry_pause: float = 0.0
    cleaned_at: float = float("-inf")
    durations: dict[Kind, float] = field(default_factory=dict)
    idle_at: int = 0
    invisible_rows: InvisibleRowsCounter = field(default_factory=InvisibleRowsCounter)
    others_seen_at: float = float("-inf")
    busy: bool = False
    cleaning: bool = False
    failures: int = 0
    retry_at: float = 0.0

    @property
    def prompt(self) -> bool:
        """Whether readers wait for each compaction."""
        return self.policy is not None and self.policy.prompt

    @property
    def latest_within_s(self) -> float:
        """How old the newest snapshot may be, if another machine wrote it."""
        return self.pace.background_poll_seconds if self.prompt else self.pace.remote_seconds

    def is_poll_due(self) -> bool:
        """Whether to look at the table now."""
        now = time.monotonic()
        if now < self.retry_at or (self.busy and self.cleaning):
            return False
        in_background = self.policy is not None and not self.policy.prompt
        return not in_background or now - self.polled_at >= self.pace.background_poll_seconds

    def due(self, latest: int, pressure: Backpressure) -> Kind | None:
        """The compaction or manifest merge that is due now; None if none is."""
        policy, now = self.policy, time.monotonic()
        if policy is None:
            return None
        if latest == self.compacted == self.merged:
            return "iceberg" if self.is_iceberg_due(latest) else None
        took = self.durations.get("compact", self.pace.first_compaction_seconds)
        full_soon = latest > self.attempted and pressure.fills_within(self.name, took)
        if full_soon or now - self.compacted_at >= self.pause():
            interval_passed = (
                policy.full_seconds is not None and now - self.full_at >= policy.full_seconds
            )
            if _reached(latest - self.compacted_full, policy.full_commits) or (
                interval_passed and latest > self.compacted_full
            ):
                return "full"
            if full_soon and not self.durations and self._rows() < self.pace.small_rows:
                # A normal compaction may skip so few files; a full one warms up the JVM.
                return "full"
            if full_soon or _reached(latest - self.compacted, policy.commits):
                return "compact"
        if policy.merges and latest - self.merged >= self.pace.manifest_commits:
            return "merge"
        return "iceberg" if self.is_iceberg_due(latest) else None

    def is_iceberg_due(self, latest: int) -> bool:
        """Whether the table's Iceberg metadata is older than its newest snapshot.

        It takes at most a fifth of the time.
        """
        table = self.table
        if table is None or self.only_read or latest <= self.iceberg:
            return False
        pause = max(self.pace.iceberg_seconds, 4 * self.durations.get("iceberg", 0.0))
        return has_iceberg_metadata(table.options) and time.monotonic() - self.iceberg_at >= pause

    def pause(self) -> float:
        """The least time between two compactions, in seconds."""
        if self.policy is None:
            return 0.0
        took = self.durations.get("compact")
        if not self.policy.prompt or took is None:
            return self.policy.seconds
        return min(self.policy.seconds, max(took / 4, self.pace.prompt_least_seconds))

    def cleaning_due(self, latest: int, local: bool, may_expire: Callable[[], bool]) -> Kind | None:
        """Whether snapshot expiry or the removal of orphan files is due now; None if neither."""
        policy, now, pace = self.policy, time.monotonic(), self.pace
        if self.cleaning or policy is None or not policy.expires or latest == 0:
            return None
        # It takes some twenty requests to an object store.
        pause = pace.expire_seconds if local else pace.remote_expire_seconds
        if now - self.expired_at >= max(pause, self.expiry_pause) and may_expire():
            return "expire"
        return "leftovers" if now - self.cleaned_at >= pace.leftover_seconds else None

    def is_long(self, kind: Kind) -> bool:
        """Whether a job takes long, judged by the last one of its kind."""
        took = self.durations.get(kind)
        if took is not None:
            return took >= self.pace.long_seconds
        return kind == "full" and self._rows() >= self.pace.long_rows

    def rolled_back(self) -> None:
        """Forget snapshots: the table was rolled back, or dropped and created again."""
        self.compacted = self.compacted_full = self.merged = self.attempted = 0

    def note_compaction(self, latest: int, full: bool, committed: bool, began_at: float) -> None:
        """Note that a compaction of snapshot `latest` has succeeded.

        Commits during the compaction are counted again at the next poll. If nothing was worth
        compacting yet, the next commit may change that.
        """
        commits = self.policy.commits if self.policy is not None else None
        position = latest + 1 if committed else latest
        self.compacted = (
            position if committed or full else max(self.compacted, latest + 1 - (commits or 1))
        )
        if full:
            self.compacted_full, self.full_at = position, began_at
        self.compacted_at = time.monotonic()
        if committed:
            self.merged = position

    def note_expiry(self, began_at: float, branches: bool) -> None:
        """Note that an expiry has ended; with `branches` it has read all manifests of the table."""
        self.expired_at = time.monotonic()
        took = self.expired_at - began_at
        self.expiry_pause = self.pace.branches_pause * took if branches else 0.0

    def note_failure(self, first_pause_s: float) -> float:
        """Note that a job has failed; returns the seconds until the next attempt."""
        self.failures += 1
        self.table = None
        pause = min(first_pause_s * 2.0 ** (self.failures - 1), self.pace.longest_backoff_seconds)
        self.retry_at = time.monotonic() + pause
        self.attempted = 0
        return pause

    def _rows(self) -> int:
        table = self.table
        latest = None if table is None else table.latest_snapshot_id(self.latest_within_s)
        if table is None or latest is None:
            return 0
        return table.snapshot(latest).total_record_count or 0


def _reached(commits: int, every: int | None) -> bool:
    return every is not None and commits >= every
