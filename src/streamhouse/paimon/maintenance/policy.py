"""When a table is compacted and its snapshots expire, by its options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from streamhouse.options import boolean, duration_ms, integer
from streamhouse.paimon.read.visibility import (
    all_visible_at,
    delaying_option,
    producer,
    rows_visible_at,
)

_STOP_AFTER = 3
"""By how much `num-sorted-run.stop-trigger` exceeds the compaction trigger, by default."""


@dataclass(frozen=True)
class Pace:
    """How often maintenance polls and works; seconds and numbers of snapshots.

    Reads are fast with few level-0 files and few manifests. But each compaction is a commit that
    competes with the queries' commits, so two compactions of a table are at least
    `compact_seconds` apart. Tables that no reader waits for are polled every
    `background_poll_seconds`, and commits to them by other machines are seen within
    `remote_seconds` in an object store. The first poll waits for the queries' first batches, at
    most `longest_wait_seconds`.

    For tables whose rows or changes are invisible before compaction, this distance is
    `prompt_seconds`; less if compactions are fast: a quarter of the time of the last one, but at
    least `prompt_least_seconds`. If level 0 would be full earlier, compaction begins just in time,
    judged by how long the last one took (before the first one: `first_compaction_seconds`). A job
    is long if the last one of its kind took `long_seconds`, or a first full compaction has at least
    `long_rows` rows; a table is small below `small_rows`. After an expiry of a table with branches,
    which reads all manifests, the next one waits `branches_pause` times as long as it took.
    """

    poll_seconds: float = 0.05
    background_poll_seconds: float = 0.2
    remote_seconds: float = 1.0
    first_seconds: float = 0.2
    longest_wait_seconds: float = 5.0
    first_compaction_seconds: float = 1.5
    compact_seconds: float = 1.0
    prompt_seconds: float = 0.5
    prompt_least_seconds: float = 0.05
    append_seconds: float = 60.0
    append_commits: int = 100
    manifest_commits: int = 15
    iceberg_seconds: float = 1.0
    expire_seconds: float = 10.0
    remote_expire_seconds: float = 30.0
    expire_work_seconds: float = 2.0
    branches_pause: float = 50.0
    leftover_seconds: float = 3600.0
    leftover_age_seconds: float = 6 * 3600.0
    long_seconds: float = 1.5
    long_rows: int = 1_000_000
    small_rows: int = 10_000
    longest_backoff_seconds: float = 60.0


@dataclass(frozen=True)
class MaintenancePolicy:
    """When one table is compacted: after `commits` commits, and at least `seconds` apart.

    `commits` None: no compaction. `full_commits` and `full_seconds` are the same for full
    compactions; None: no such trigger. `expires` is whether maintenance expires old snapshots,
    `merges` whether it merges manifests, `prompt` whether readers wait for each compaction of
    level 0. Writers wait before a bucket has more than `most_files` level-0 files; None: they
    never wait.
    """

    commits: int | None
    seconds: float
    full_commits: int | None = None
    full_seconds: float | None = None
    expires: bool = True
    most_files: int | None = None
    prompt: bool = False
    merges: bool = True

    @classmethod
    def of(cls, keyed: bool, options: Mapping[str, str], pace: Pace) -> Self:
        """The policy for a table with (`keyed`) or without a primary key, by its options.

        Another process compacts and expires a `write-only` table: here only its manifests are
        merged. Tables with postponed buckets (`bucket` = -2) are not compacted.
        """
        if boolean("write-only", options.get("write-only", "false")):
            return cls(None, pace.compact_seconds, expires=False)
        if not keyed:
            return cls(pace.append_commits, pace.append_seconds)
        if options.get("bucket") == "-2":
            return cls(None, pace.compact_seconds)
        full = options.get("full-compaction.delta-commits")
        full_commits = integer("full-compaction.delta-commits", full, 1) if full else None
        interval_option = options.get("compaction.optimization-interval")
        interval = (
            duration_ms("compaction.optimization-interval", interval_option) / 1000
            if interval_option
            else None
        )
        if producer(options) == "full-compaction":
            full_commits = full_commits or 1
        commits, prompt = _commits(options)
        seconds = pace.prompt_seconds if prompt or full_commits == 1 else pace.compact_seconds
        stop = "num-sorted-run.stop-trigger"
        stop_files = integer(stop, options.get(stop, str(_trigger(options) + _STOP_AFTER)), 1)
        most_files = max(stop_files, commits + 1)
        return cls(commits, seconds, full_commits, interval, most_files=most_files, prompt=prompt)

    @classmethod
    def of_read(cls, keyed: bool, options: Mapping[str, str], pace: Pace) -> Self:
        """The same for a table that queries read and do not write.

        Only the compactions that its readers wait for.
        """
        policy = cls.of(keyed, options, pace)
        if all_visible_at(keyed, options) == "commit":
            return cls(None, policy.seconds, expires=False, merges=False)
        return replace(policy, expires=False, merges=False, most_files=None)


def _commits(options: Mapping[str, str]) -> tuple[int, bool]:
    """After how many commits a compaction is due, and whether readers wait for it."""
    trigger = _trigger(options)
    # Paimon's lookup compaction takes all files of level 0 each time.
    by_lookup = (
        producer(options) == "lookup"
        or rows_visible_at(True, options) != "commit"
        or boolean("force-lookup", options.get("force-lookup", "false"))
    )
    if not by_lookup:
        return trigger, False
    if options.get("lookup-compact", "radical").lower() == "gentle":
        key = "lookup-compact.max-interval"
        return max(trigger, integer(key, options.get(key, str(2 * trigger)), 1)), False
    if delaying_option(options, "compaction") is not None:
        return trigger, False
    return 1, True


def _trigger(options: Mapping[str, str]) -> int:
    key = "num-sorted-run.compaction-trigger"
    return integer(key, options.get(key, "5"), 1)
