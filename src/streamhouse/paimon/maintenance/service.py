"""Background maintenance: compaction, manifest merging, snapshot expiry and orphan files."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.invisible_rows import InvisibleRows, InvisibleRowsCounter
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.java.unfinished_compactions import remove_leftovers
from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.paimon.maintenance.expiry import expire
from streamhouse.paimon.maintenance.other_compactors import compacted_by_others
from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import VisibleAt, changes_visible_at, later, rows_visible_at
from streamhouse.paimon.schema.options.iceberg_metadata import has_iceberg_metadata
from streamhouse.paimon.storage.files import is_local

_LOG = logging.getLogger("streamhouse.maintenance")
_STOP_SECONDS = 10.0
_QUICK_WORKERS = 2
_PROMPT_WORKERS = 2
_MAX_UNCOMPACTED = 20
_CONFLICT_PAUSE_S = 0.1
_FAILURES = 2
"""After this many failures in a row, writers no longer wait for the compaction of a table."""
_FAILURES_TO_GIVE_UP = 5
_OTHERS_EVERY_S = 1.0

Kind = Literal["compact", "full", "merge", "iceberg", "expire", "leftovers"]


@dataclass(frozen=True)
class Counts:
    """What maintenance has done so far; `expired` counts snapshots, `leftovers` orphan files."""

    compactions: int = 0
    merges: int = 0
    expired: int = 0
    leftovers: int = 0
    failures: int = 0


@dataclass
class _State:
    """What maintenance remembers of one table: snapshot ids and times (monotonic seconds).

    `read` is whether `policy` is that of a table that queries only read: a query that writes it
    may start later. `busy` is set while the table is compacted or its manifests are merged,
    `cleaning` while snapshots or orphan files are removed; both may be set at once. `idle_at` is
    the newest snapshot at which a compaction that makes rows visible found nothing to do,
    `others_seen_at` is when another process was last seen compacting.
    """

    table: Table | None = None
    policy: MaintenancePolicy | None = None
    read: bool = False
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
    cleaned_at: float = float("-inf")
    durations: dict[Kind, float] = field(default_factory=dict)
    idle_at: int = 0
    invisible_rows: InvisibleRowsCounter = field(default_factory=InvisibleRowsCounter)
    others_seen_at: float = float("-inf")
    busy: bool = False
    cleaning: bool = False
    failures: int = 0
    retry_at: float = 0.0


@dataclass(frozen=True)
class _Workers:
    """The thread pools of jobs; `prompt` has the compactions that readers wait for."""

    quick: ThreadPoolExecutor
    prompt: ThreadPoolExecutor
    long: ThreadPoolExecutor


class Maintenance:
    """Compacts tables that queries write, merges manifests and expires snapshots; on the driver.

    `warehouse_options` are the catalog's options. `tables` returns, at each poll, the tables to
    maintain (`database.table`), `reads` those that queries read: these are only compacted, and
    only if their readers wait for it and no other process does it. Nothing expires before
    `may_expire` returns True. Nothing at all is done before `may_begin` returns True or
    `Pace.longest_wait_seconds` have passed.

    One sidecar JVM, started by the first job (with `warm`, ahead of it), runs up to five jobs at
    once: one long job or expiry, two short compactions or manifest merges, and two compactions of
    tables whose readers wait for them. A job that fails is logged under `streamhouse.maintenance`
    and retried with growing pauses; queries see no exception. `nice` lowers the priority of the
    sidecar below that of the queries; 0 if they wait for it.
    """

    def __init__(
        self,
        warehouse_options: Mapping[str, str],
        tables: Callable[[], Iterable[str]],
        pace: Pace | None = None,
        sidecar: Sidecar | None = None,
        may_expire: Callable[[], bool] = lambda: True,
        may_begin: Callable[[], bool] = lambda: True,
        warm: bool = False,
        nice: int = 5,
        reads: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._options = dict(warehouse_options)
        self._local = is_local(self._options.get("warehouse", ""))
        self._tables = tables
        self._reads = reads
        self._pace = pace or Pace()
        self._sidecar = sidecar or Sidecar(warehouse_options, nice=nice)
        self._may_expire = may_expire
        self._may_begin = may_begin
        self._warm = warm
        self._pressure = Backpressure()
        self._states: dict[str, _State] = {}
        self._counts = Counts()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_error: tuple[float, str] | None = None

    @property
    def counts(self) -> Counts:
        """What has been done since the start."""
        return self._counts

    @property
    def busy(self) -> int:
        """How many tables have a job that is running or queued."""
        return sum(state.busy or state.cleaning for state in list(self._states.values()))

    @property
    def failures(self) -> int:
        """How many jobs have failed."""
        return self._counts.failures

    @property
    def last_error(self) -> tuple[float, str] | None:
        """When a job failed last (epoch seconds), and why; commit conflicts do not count."""
        return self._last_error

    @property
    def pressure(self) -> Backpressure:
        """The backpressure by which queries wait while level 0 of their tables is full."""
        return self._pressure

    @property
    def pid(self) -> int | None:
        """The sidecar's process id, None while none runs."""
        return self._sidecar.pid

    def waiting(self) -> list[InvisibleRows]:
        """Rows of the tables, written and read, that are committed and not visible yet.

        Those without an `option` are about to be compacted. Raises `StreamhouseError` if that
        keeps failing.
        """
        invisible = []
        for name, state, _ in self._table_states():
            table = Warehouse(self._options).followed(name)
            visible_at = _visible_at(table)
            if visible_at == "commit":
                continue
            waiting = state.invisible_rows.count(table, visible_at)
            if not waiting.rows:
                continue
            if waiting.option is None and state.failures >= _FAILURES_TO_GIVE_UP:
                raise StreamhouseError(f"{waiting}, which keeps failing: {self._last_error_text()}")
            if waiting.option is None and state.idle_at == table.latest_snapshot_id():
                waiting = replace(waiting, option="compaction found nothing to do")
            invisible.append(waiting)
        return invisible

    def behind(self) -> bool:
        """Whether a table has invisible rows that are about to be compacted."""
        return any(one.option is None for one in self.waiting())

    def start(self) -> None:
        """Start the maintenance thread; returns at once."""
        if self._thread is not None:
            raise StreamhouseError("maintenance is already running; stop it first")
        self._stopped.clear()
        self._thread = threading.Thread(
            target=self._run, name="streamhouse-maintenance", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float = _STOP_SECONDS) -> None:
        """Wait for running jobs, at most `timeout` seconds, and end the sidecar."""
        self._stopped.set()
        self._pressure.end()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                # A job that is killed has either committed or changed nothing.
                self._sidecar.kill()
                thread.join()
            else:
                self._finish_iceberg()
        self._sidecar.close()

    def _run(self) -> None:
        pause = self._pace.first_seconds
        self._wait_for_begin()
        if self._warm and not self._stopped.is_set():
            self._start_sidecar()
        with (
            ThreadPoolExecutor(_QUICK_WORKERS) as quick,
            ThreadPoolExecutor(_PROMPT_WORKERS) as prompt,
            ThreadPoolExecutor(1) as long,
        ):
            while not self._stopped.wait(pause):
                pause = self._pace.poll_seconds
                for name, state, read in self._table_states():
                    self._poll(name, state, read, _Workers(quick, prompt, long))

    def _wait_for_begin(self) -> None:
        deadline = time.monotonic() + self._pace.longest_wait_seconds
        while not self._may_begin() and time.monotonic() < deadline:
            if self._stopped.wait(self._pace.poll_seconds):
                return

    def _start_sidecar(self) -> None:
        try:
            self._sidecar.start()
        except Exception as error:  # noqa: BLE001  # the first job reports it again
            _LOG.info("the Java core was not started ahead of time: %s", error)

    def _table_states(self) -> list[tuple[str, _State, bool]]:
        """The tables with their states, and whether they are only read."""
        try:
            written = dict.fromkeys(self._tables())
            read = [name for name in dict.fromkeys(self._reads()) if name not in written]
        except Exception as error:  # noqa: BLE001  # the queries must go on
            _LOG.warning("cannot list the tables to maintain: %s", error)
            return []
        with self._lock:
            states = self._states
            return [
                *((name, states.setdefault(name, _State()), False) for name in written),
                *((name, states.setdefault(name, _State()), True) for name in read),
            ]

    def _last_error_text(self) -> str:
        return "" if self._last_error is None else self._last_error[1]

    def _poll(self, name: str, state: _State, read: bool, workers: _Workers) -> None:
        now, background = time.monotonic(), state.policy is not None and not state.policy.prompt
        if now < state.retry_at or (state.busy and state.cleaning):
            return
        if background and now - state.polled_at < self._pace.background_poll_seconds:
            return
        state.polled_at = now
        try:
            latest = self._latest(name, state, read)
            if read and not self._must_compact(name, state):
                return
            kind = self._due(name, state, latest)
            if kind is not None and not state.busy:
                state.busy = True
                self._worker(state, kind, workers).submit(self._work, name, state, kind, latest)
            cleaning = self._due_cleaning(state, latest)
            if cleaning is not None:
                state.cleaning = True
                workers.long.submit(self._work, name, state, cleaning, latest)
        except Exception as error:  # noqa: BLE001  # the queries must go on
            self._failed(name, state, error)

    def _must_compact(self, name: str, state: _State) -> bool:
        """Whether a table that is only read has invisible rows that no other process compacts."""
        table, now = state.table, time.monotonic()
        if table is None or now - state.others_seen_at < _OTHERS_EVERY_S:
            return False
        visible_at = _visible_at(table)
        if (
            visible_at == "commit"
            or not state.invisible_rows.count(table, visible_at, self._latest_within_s(state)).rows
        ):
            return False
        if compacted_by_others(table):
            state.others_seen_at = now
            return False
        return True

    def _latest(self, name: str, state: _State, read: bool) -> int:
        table = state.table
        if table is None or state.policy is None or state.read != read:
            table = state.table = Warehouse(self._options).followed(name)
            make_policy = MaintenancePolicy.of_read if read else MaintenancePolicy.of
            state.policy = make_policy(bool(table.primary_key), table.options, self._pace)
            state.read = read
            failing = state.failures >= _FAILURES
            self._pressure.limit(name, None if failing else state.policy.most_files)
            if not state.counted and state.policy.most_files is not None:
                state.counted = True
                for _ in range(self._uncompacted(name)):
                    self._pressure.added(name, 1)
        latest = table.latest_snapshot_id(self._latest_within_s(state)) or 0
        if latest < state.compacted:
            # The table was rolled back, or dropped and created again.
            state.compacted = state.compacted_full = state.merged = 0
            state.attempted = 0
        return latest

    def _latest_within_s(self, state: _State) -> float:
        """How old the newest snapshot may be, if another machine wrote it."""
        prompt = state.policy is not None and state.policy.prompt
        return self._pace.background_poll_seconds if prompt else self._pace.remote_seconds

    def _uncompacted(self, name: str) -> int:
        """About how many commits an earlier run left uncompacted; at most `_MAX_UNCOMPACTED`."""
        newest = Warehouse(self._options).table(name).snapshots.newest_first()
        recent = itertools.islice(newest, _MAX_UNCOMPACTED)
        return sum(1 for _ in itertools.takewhile(lambda one: one.commit_kind != "COMPACT", recent))

    def _due(self, name: str, state: _State, latest: int) -> Kind | None:
        """The compaction or manifest merge that is due now; None if none is."""
        policy, now = state.policy, time.monotonic()
        if policy is None:
            return None
        if latest == state.compacted == state.merged:
            return "iceberg" if self._iceberg_due(state, latest) else None
        took = state.durations.get("compact", self._pace.first_compaction_seconds)
        full_soon = latest > state.attempted and self._pressure.fills_within(name, took)
        if full_soon or now - state.compacted_at >= self._pause(state, policy):
            interval_passed = (
                policy.full_seconds is not None and now - state.full_at >= policy.full_seconds
            )
            if _reached(latest - state.compacted_full, policy.full_commits) or (
                interval_passed and latest > state.compacted_full
            ):
                return "full"
            if full_soon and not state.durations and self._rows(state) < self._pace.small_rows:
                # A normal compaction may skip so few files; a full one warms up the JVM.
                return "full"
            if full_soon or _reached(latest - state.compacted, policy.commits):
                return "compact"
        merges = policy.merges and latest - state.merged >= self._pace.manifest_commits
        if merges:
            return "merge"
        return "iceberg" if self._iceberg_due(state, latest) else None

    def _iceberg_due(self, state: _State, latest: int) -> bool:
        """Whether the table's Iceberg metadata is older than its newest snapshot.

        It takes at most a fifth of the time.
        """
        table = state.table
        if table is None or state.read or latest <= state.iceberg:
            return False
        pause = max(self._pace.iceberg_seconds, 4 * state.durations.get("iceberg", 0.0))
        return has_iceberg_metadata(table.options) and time.monotonic() - state.iceberg_at >= pause

    def _finish_iceberg(self) -> None:
        """Bring the Iceberg metadata of all written tables up to date, at the end."""
        for name, state in list(self._states.items()):
            try:
                latest = 0 if state.table is None else state.table.latest_snapshot_id() or 0
                state.iceberg_at = float("-inf")
                state.durations.pop("iceberg", None)
                if self._iceberg_due(state, latest):
                    self._sidecar.write_iceberg_metadata(name)
            except Exception as error:  # noqa: BLE001  # the queries have ended well
                _LOG.warning("table '%s': Iceberg metadata is not current: %s", name, error)

    def _pause(self, state: _State, policy: MaintenancePolicy) -> float:
        """The least time until the next compaction, in seconds."""
        took = state.durations.get("compact")
        if not policy.prompt or took is None:
            return policy.seconds
        return min(policy.seconds, max(took, self._pace.prompt_least_seconds))

    def _due_cleaning(self, state: _State, latest: int) -> Kind | None:
        """Whether snapshot expiry or the removal of orphan files is due now; None if neither."""
        policy, now, pace = state.policy, time.monotonic(), self._pace
        if state.cleaning or policy is None or not policy.expires or latest == 0:
            return None
        # It takes some twenty requests to an object store.
        pause = pace.expire_seconds if self._local else pace.remote_expire_seconds
        if now - state.expired_at >= pause and self._may_expire():
            return "expire"
        return "leftovers" if now - state.cleaned_at >= pace.leftover_seconds else None

    def _worker(self, state: _State, kind: Kind, workers: _Workers) -> ThreadPoolExecutor:
        if kind == "compact" and state.policy is not None and state.policy.prompt:
            return workers.prompt
        return workers.long if self._is_long(state, kind) else workers.quick

    def _is_long(self, state: _State, kind: Kind) -> bool:
        took = state.durations.get(kind)
        if took is not None:
            return took >= self._pace.long_seconds
        return kind == "full" and self._rows(state) >= self._pace.long_rows

    def _rows(self, state: _State) -> int:
        table = state.table
        latest = None if table is None else table.latest_snapshot_id(self._latest_within_s(state))
        if table is None or latest is None:
            return 0
        return table.snapshot(latest).total_record_count or 0

    def _work(self, name: str, state: _State, kind: Kind, latest: int) -> None:
        start = time.monotonic()
        try:
            if self._stopped.is_set():
                return
            if kind in ("compact", "full"):
                self._compact(name, state, kind == "full", latest)
            elif kind == "merge":
                self._sidecar.compact_manifests(name)
                state.merged = latest + 1
                self._count(merges=1)
            elif kind == "iceberg":
                state.iceberg = self._sidecar.write_iceberg_metadata(name)
                state.iceberg_at = time.monotonic()
            elif kind == "expire":
                self._expire(name, state)
            else:
                self._clean(name, state)
            state.failures = 0
            state.durations[kind] = took = time.monotonic() - start
            _LOG.debug("table '%s': %s in %.3f s", name, kind, took)
        except Exception as error:  # noqa: BLE001  # the queries must go on
            if not self._stopped.is_set():
                self._failed(name, state, error)
        finally:
            if kind in ("expire", "leftovers"):
                state.cleaning = False
            else:
                state.busy = False

    def _compact(self, name: str, state: _State, full: bool, latest: int) -> None:
        now = time.monotonic()
        state.attempted = latest
        keep = state.policy is not None and state.policy.prompt
        committed = self._sidecar.compact(name, full=full, keep=keep)
        if committed:
            self._pressure.compacted(name, now)
        # Commits during the compaction are counted again at the next poll. If nothing was worth
        # compacting yet, the next commit may change that.
        commits = state.policy.commits if state.policy is not None else None
        position = latest + 1 if committed else latest
        state.compacted = (
            position if committed or full else max(state.compacted, latest + 1 - (commits or 1))
        )
        if full:
            state.compacted_full, state.full_at = position, now
        table = Warehouse(self._options).table(name)
        if not committed and (full or _visible_at(table) != "full-compaction"):
            state.idle_at = latest
        state.compacted_at = time.monotonic()
        # The options may have changed meanwhile.
        state.table = None
        if committed:
            state.merged = position
            self._count(compactions=1)

    def _expire(self, name: str, state: _State) -> None:
        table = Warehouse(self._options).table(name)
        done = expire(self._sidecar, table, self._pace.expire_work_seconds)
        state.expired_at = time.monotonic()
        self._count(expired=done)

    def _clean(self, name: str, state: _State) -> None:
        state.cleaned_at = time.monotonic()
        table = Warehouse(self._options).table(name)
        removed = remove_leftovers(self._sidecar, table, self._pace.leftover_age_seconds)
        self._count(leftovers=removed)

    def _failed(self, name: str, state: _State, error: Exception) -> None:
        self._count(failures=1)
        state.failures += 1
        state.table = None
        conflict = isinstance(error, CommitConflictError)
        if not conflict:
            self._last_error = (time.time(), f"table '{name}': {error}")
        initial_pause = _CONFLICT_PAUSE_S if conflict else 1.0
        pause = min(initial_pause * 2.0 ** (state.failures - 1), self._pace.longest_backoff_seconds)
        state.retry_at = time.monotonic() + pause
        state.attempted = 0
        level = logging.INFO if conflict else logging.WARNING
        _LOG.log(level, "table '%s': %s (retry in %g s)", name, error, pause)

    def _count(self, **increments: int) -> None:
        with self._lock:
            counts = self._counts
            self._counts = replace(
                counts, **{key: getattr(counts, key) + value for key, value in increments.items()}
            )


def _visible_at(table: Table) -> VisibleAt:
    """When both the rows of a table and its changes are visible."""
    keyed, options = bool(table.primary_key), table.options
    return later(rows_visible_at(keyed, options), changes_visible_at(keyed, options))


def _reached(commits: int, every: int | None) -> bool:
    return every is not None and commits >= every
