"""Keeps tables quick to read and to commit to, beside the queries that write them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pypaimon_rust.datafusion import PaimonCatalog

from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.options import boolean, duration_ms, integer
from streamhouse.paimon.sidecar import Sidecar

_LOG = logging.getLogger("streamhouse.maintenance")
_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Pace:
    """How often maintenance looks and works; seconds and numbers of snapshots.

    Few level-0 files and few manifests are what freshness is made of, while each compaction is a
    commit that the queries' commits race with: hence a least time between two of one table.
    """

    poll_seconds: float = 0.25
    first_seconds: float = 3.0
    compact_seconds: float = 1.0
    append_seconds: float = 60.0
    append_commits: int = 100
    manifest_commits: int = 15
    longest_backoff_seconds: float = 60.0


@dataclass(frozen=True)
class Counts:
    """What maintenance has done so far."""

    compactions: int = 0
    merges: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Care:
    """When one table is compacted: after so many commits, and at least so many seconds apart.

    `full_commits` and `full_seconds` ask for full compactions; None asks for none.
    """

    commits: int | None
    seconds: float
    full_commits: int | None = None
    full_seconds: float | None = None

    @classmethod
    def of(cls, keyed: bool, options: Mapping[str, str], pace: Pace) -> Care:
        """What the options of a table with (`keyed`) or without a primary key ask for."""
        if not keyed:
            return cls(pace.append_commits, pace.append_seconds)
        if options.get("bucket") == "-2":
            return cls(None, pace.compact_seconds)
        full = options.get("full-compaction.delta-commits")
        full_commits = integer("full-compaction.delta-commits", full, 1) if full else None
        every = options.get("compaction.optimization-interval")
        interval = duration_ms("compaction.optimization-interval", every) / 1000 if every else None
        if options.get("changelog-producer") == "full-compaction":
            full_commits = full_commits or 1
        key = "num-sorted-run.compaction-trigger"
        commits = 1 if _unreadable(options) else integer(key, options.get(key, "5"), 1)
        return cls(commits, pace.compact_seconds, full_commits, interval)


def _unreadable(options: Mapping[str, str]) -> bool:
    """Whether rows, or their changelog, show only once level 0 has been compacted."""
    return (
        options.get("changelog-producer") == "lookup"
        or options.get("merge-engine") == "first-row"
        or boolean("deletion-vectors.enabled", options.get("deletion-vectors.enabled", "false"))
        or boolean("force-lookup", options.get("force-lookup", "false"))
    )


@dataclass
class _State:
    """What maintenance remembers of one table: snapshot ids and times."""

    table: Any = None
    compacted: int = 0
    compacted_full: int = 0
    merged: int = 0
    compacted_at: float = field(default_factory=time.monotonic)
    full_at: float = field(default_factory=time.monotonic)
    failures: int = 0
    retry_at: float = 0.0


class Maintenance:
    """Merges manifests and compacts the tables that queries write, in a thread on the driver.

    `warehouse_options` are the catalog's options; `tables` names, at each look, the tables to
    care for (`database.table`). One sidecar JVM, started when there is first something to do,
    does one job at a time. A job that fails is logged under `streamhouse.maintenance` and tried
    again later, after longer and longer pauses; nothing is raised into the queries. No snapshot
    is expired.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        tables: Callable[[], Iterable[str]],
        pace: Pace | None = None,
        sidecar: Sidecar | None = None,
    ) -> None:
        self._options = dict(warehouse_options)
        self._tables = tables
        self._pace = pace or Pace()
        self._sidecar = sidecar or Sidecar(warehouse_options, nice=5)
        self._states: dict[str, _State] = {}
        self._counts = Counts()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def counts(self) -> Counts:
        """What has been done since the start."""
        return self._counts

    @property
    def pid(self) -> int | None:
        """The sidecar's process id, None while none runs."""
        return self._sidecar.pid

    def start(self) -> None:
        """Begin to look after the tables; returns at once."""
        if self._thread is not None:
            raise StreamhouseError("maintenance is running already; stop it first")
        self._stopped.clear()
        self._thread = threading.Thread(
            target=self._run, name="streamhouse-maintenance", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float = _STOP_SECONDS) -> None:
        """Let a running job end, at most `timeout` seconds, and end the sidecar."""
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                # A job that is cut off has either been committed or changed nothing.
                self._sidecar.kill()
                thread.join()
        self._sidecar.close()

    def _run(self) -> None:
        pause = self._pace.first_seconds
        while not self._stopped.wait(pause):
            pause = self._pace.poll_seconds
            for name in self._named():
                if self._stopped.is_set():
                    return
                self._look(name)

    def _named(self) -> tuple[str, ...]:
        try:
            return tuple(self._tables())
        except Exception as error:  # noqa: BLE001  # the queries must go on
            _LOG.warning("the tables to maintain are not known: %s", error)
            return ()

    def _look(self, name: str) -> None:
        state = self._states.setdefault(name, _State())
        if time.monotonic() < state.retry_at:
            return
        try:
            self._care(name, state)
            state.failures = 0
        except Exception as error:  # noqa: BLE001  # the queries must go on
            if not self._stopped.is_set():
                self._failed(name, state, error)

    def _failed(self, name: str, state: _State, error: Exception) -> None:
        self._count(failures=1)
        state.failures += 1
        state.table = None
        pause = min(2.0 ** (state.failures - 1), self._pace.longest_backoff_seconds)
        state.retry_at = time.monotonic() + pause
        level = logging.INFO if isinstance(error, CommitConflictError) else logging.WARNING
        _LOG.log(level, "table '%s': %s (tried again in %g s)", name, error, pause)

    def _care(self, name: str, state: _State) -> None:
        latest = self._latest(name, state)
        if latest < state.compacted:
            # The table was made anew or rolled back.
            state.compacted = state.compacted_full = state.merged = 0
        if latest == state.compacted == state.merged:
            return
        schema = state.table.schema()
        care = Care.of(bool(schema.primary_keys()), schema.options(), self._pace)
        if self._compact(name, state, care, latest):
            return
        if latest - state.merged >= self._pace.manifest_commits:
            self._merge(name, state)

    def _latest(self, name: str, state: _State) -> int:
        if state.table is None:
            state.table = PaimonCatalog(self._options).get_table(name)
        snapshot = state.table.latest_snapshot()
        return int(snapshot.id()) if snapshot is not None else 0

    def _compact(self, name: str, state: _State, care: Care, latest: int) -> bool:
        """Compact if it is due; whether that made a snapshot."""
        now = time.monotonic()
        full = _due(latest - state.compacted_full, care.full_commits) or (
            care.full_seconds is not None
            and latest > state.compacted_full
            and now - state.full_at >= care.full_seconds
        )
        due = full or _due(latest - state.compacted, care.commits)
        if not due or now - state.compacted_at < care.seconds:
            return False
        made = self._sidecar.compact(name, full=full)
        done = latest + 1 if made else latest
        state.compacted = done
        if full:
            state.compacted_full, state.full_at = done, now
        state.compacted_at = time.monotonic()
        # The options may have changed meanwhile.
        state.table = None
        if made:
            state.merged = done
            self._count(compactions=1)
            _LOG.debug("table '%s': compacted in %.3f s", name, state.compacted_at - now)
        return made

    def _merge(self, name: str, state: _State) -> None:
        start = time.monotonic()
        self._sidecar.compact_manifests(name)
        state.merged = self._latest(name, state)
        self._count(merges=1)
        _LOG.debug("table '%s': merged manifests in %.3f s", name, time.monotonic() - start)

    def _count(self, compactions: int = 0, merges: int = 0, failures: int = 0) -> None:
        counts = self._counts
        self._counts = Counts(
            counts.compactions + compactions, counts.merges + merges, counts.failures + failures
        )


def _due(commits: int, every: int | None) -> bool:
    return every is not None and commits >= every
