"""The options of a lookup: how much of its dimension a process keeps, and when it is refreshed.

Intervals, blackout periods and partitions decide when it joins a newer version.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from streamhouse.errors import OptionError
from streamhouse.lookup.partitions import PartitionRule
from streamhouse.options import OptionValues, of_option
from streamhouse.sql.options.known_options import LOOKUP_OPTIONS
from streamhouse.sql.plan import LookupJoin

INTERVALS = ("lookup.continuous.discovery-interval", "continuous.discovery-interval")
BLACKLIST = "lookup.refresh.time-periods-blacklist"
PARTITIONS = ("scan.partitions", "lookup.dynamic-partition")
PARTITION_INTERVAL = "lookup.dynamic-partition.refresh-interval"
ASYNC = "lookup.refresh.async"
PARTITION_ASYNC = "lookup.dynamic-partition.refresh.async"
PENDING = "lookup.refresh.async.pending-snapshot-count"
_MINUTE = "%Y-%m-%d %H:%M"


@dataclass(frozen=True)
class CacheOptions:
    """Paimon's `lookup.…` options of a dimension, and ours: the table's, overridden by a hint.

    `cache` is AUTO, FULL, MEMORY or PARTIAL. A process keeps at most `memory` bytes of a dimension
    in memory, then `disk` bytes (None: no limit) in local files. The partial strategy caches at
    most `rows` rows that it read by key; what is not used for `retention_ms` expires. Batches of
    fewer rows than `shuffled_rows` are not shuffled by the buckets of a small dimension.
    """

    cache: str = of_option("lookup.cache", "AUTO")
    memory: int = of_option("lookup.cache-max-memory-size", 256 << 20)
    disk: int | None = of_option("lookup.cache-max-disk-size", None)
    rows: int = of_option("lookup.cache-rows", 100_000)
    retention_ms: int = of_option("lookup.cache-file-retention", 3_600_000)
    shuffled_rows: int = of_option("lookup.bucket.shuffle-min-rows", 10_000)

    @classmethod
    def parse(cls, table: Mapping[str, str], hint: Mapping[str, str]) -> Self:
        """Parse options; raises `OptionError` with the key for a value that is not allowed."""
        return OptionValues(LOOKUP_OPTIONS.values(), {**table, **hint}).record(cls)


def size_text(count: int) -> str:
    """A number of bytes as text, such as `1.5 MB`."""
    for unit, power in (("GB", 30), ("MB", 20), ("kB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} bytes"


@dataclass(frozen=True)
class RefreshRule:
    """The refresh options of a lookup.

    Batches switch to a newer snapshot at most every `interval_ms`, and only outside the `blackouts`
    (epoch ms, both ends included). `partitions` selects the partitions that are joined (None: all);
    they are selected again with a new snapshot, at most every `partition_interval_ms`. `behind` is
    how many snapshots a batch may be behind the newest while that is loaded in the background (0:
    batches wait for it), `behind_partitions` the same for newly selected partitions.
    """

    interval_ms: int = 0
    blackouts: tuple[tuple[int, int], ...] = ()
    partitions: PartitionRule | None = None
    partition_interval_ms: int = 0
    behind: int = 0
    behind_partitions: int = 0

    @classmethod
    def of(cls, lookup: LookupJoin) -> Self:
        """The rule of a lookup join; raises `OptionError` for wrong values."""
        table = lookup.table
        options = {**table.options, **lookup.options}
        for keys in (INTERVALS, PARTITIONS):
            # A hint overrides the table's own option, whichever of its names each of them uses.
            hinted = next((key for key in keys if key in lookup.options), None)
            for key in keys if hinted is not None else ():
                if key != hinted:
                    options.pop(key, None)
        where = f"lookup of {table.name[-1]}"
        rule = next((options[key] for key in PARTITIONS if key in options), None)
        values = OptionValues(LOOKUP_OPTIONS.values(), options)
        behind = values[PENDING]
        return cls(
            next((values[key] for key in INTERVALS if key in options), 0),
            _periods(values[BLACKLIST], where),
            None if rule is None else PartitionRule.parse(rule, table.partitioned_by, where),
            values[PARTITION_INTERVAL],
            behind if values[ASYNC] else 0,
            behind if values[PARTITION_ASYNC] and rule is not None else 0,
        )

    @property
    def allows_older(self) -> bool:
        """Whether a batch may join an older version than the newest."""
        kept = self.interval_ms or self.blackouts or self.partition_interval_ms
        return bool(kept or self.behind or self.behind_partitions)

    def due(self, now_ms: int, refreshed_ms: int) -> bool:
        """Whether a batch at `now_ms` may join a newer snapshot than that of `refreshed_ms`."""
        if any(start <= now_ms <= end for start, end in self.blackouts):
            return False
        return now_ms - refreshed_ms >= self.interval_ms

    def partitions_due(self, now_ms: int, chosen_ms: int) -> bool:
        """The same for partitions that were selected at `chosen_ms`."""
        return now_ms - chosen_ms >= self.partition_interval_ms

    def describe(self) -> str:
        """The rule as text for EXPLAIN; empty if each batch joins all of the newest snapshot."""
        parts = []
        if self.partitions is not None:
            parts.append(f"partitions {self.partitions.text}")
        if self.interval_ms:
            parts.append(f"refreshed every {self.interval_ms} ms")
        for start, end in self.blackouts:
            parts.append(f"not refreshed {_minute_text(start)} to {_minute_text(end)}")
        if self.behind:
            parts.append(f"reloaded in the background, at most {self.behind} snapshots behind")
        if self.behind_partitions:
            parts.append("new partitions loaded in the background")
        return ", ".join(parts)


def _periods(text: str, where: str) -> tuple[tuple[int, int], ...]:
    periods = []
    for part in text.split(",") if text.strip() else ():
        try:
            start, end = map(_minute, part.split("->"))
            if start > end:
                raise ValueError("the period ends before it begins")
        except ValueError:
            raise OptionError(
                f"{where}: option '{BLACKLIST}': '{text}' is not a list of periods; write "
                "'2026-01-31 08:00->2026-01-31 20:00' in UTC, separated by commas"
            ) from None
        periods.append((start, end))
    return tuple(periods)


def _minute(text: str) -> int:
    time = datetime.datetime.strptime(text.strip(), _MINUTE).replace(tzinfo=datetime.UTC)
    return int(time.timestamp()) * 1000


def _minute_text(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime(_MINUTE)
