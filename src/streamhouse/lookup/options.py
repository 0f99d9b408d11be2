"""The cache options of a dimension: how much of it a process keeps, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.options import choice, duration_ms, integer, memory_bytes

CACHES = ("AUTO", "FULL", "MEMORY", "PARTIAL")
MEMORY_BYTES = 256 << 20
CACHED_ROWS = 100_000
RETENTION_MS = 3_600_000
SHUFFLED_ROWS = 10_000

_MEMORY = "lookup.cache-max-memory-size"
_SHUFFLED = "lookup.bucket.shuffle-min-rows"


@dataclass(frozen=True)
class CacheOptions:
    """Paimon's `lookup.…` options of a dimension, and ours: the table's, overridden by a hint.

    `cache` is one of `CACHES`. A process keeps at most `memory` bytes of a dimension in memory,
    then `disk` bytes (None: no limit) in local files. The partial strategy caches at most `rows`
    rows that it read by key; what is not used for `retention_ms` expires. Batches of fewer rows
    than `shuffled_rows` are not shuffled by the buckets of a small dimension.
    """

    cache: str = "AUTO"
    memory: int = MEMORY_BYTES
    disk: int | None = None
    rows: int = CACHED_ROWS
    retention_ms: int = RETENTION_MS
    shuffled_rows: int = SHUFFLED_ROWS

    @classmethod
    def parse(cls, table: Mapping[str, str], hint: Mapping[str, str]) -> CacheOptions:
        """Parse options; raises `OptionError` with the key for a value that is not allowed."""
        options = {**table, **hint}
        defaults = cls()
        disk = options.get("lookup.cache-max-disk-size")
        return cls(
            choice("lookup.cache", options.get("lookup.cache", defaults.cache).upper(), CACHES),
            memory_bytes(_MEMORY, options.get(_MEMORY, str(defaults.memory))),
            None if disk is None else memory_bytes("lookup.cache-max-disk-size", disk),
            integer("lookup.cache-rows", options.get("lookup.cache-rows", str(defaults.rows)), 1),
            duration_ms(
                "lookup.cache-file-retention",
                options.get("lookup.cache-file-retention", f"{defaults.retention_ms} ms"),
            ),
            integer(_SHUFFLED, options.get(_SHUFFLED, str(defaults.shuffled_rows)), 0),
        )


def size_text(count: int) -> str:
    """A number of bytes as text, such as `1.5 MB`."""
    for unit, power in (("GB", 30), ("MB", 20), ("kB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} bytes"
