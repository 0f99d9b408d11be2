"""Background maintenance: compaction, manifest merging, snapshot expiry and orphan files."""

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from streamhouse.background import wait_until
from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.invisible_rows import InvisibleRows
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.java.unfinished_compactions import remove_leftovers
from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.paimon.maintenance.expiry import expire
from streamhouse.paimon.maintenance.other_compactors import compacted_by_others
from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace
from streamhouse.paimon.maintenance.table_schedule import Kind, TableSchedule
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import VisibleAt, all_visible_at
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
        self.pressure = Backpressure()
        """By which queries wait while level 0 of their tables is full."""
        self.counts: Counter[str] = Counter()
        """What has been done since the start: `compactions`, `merges`, `expired` snapshots, orphan
        files (`leftovers`) and `failures`."""
        self.last_error: tuple[float, str] | None = None
        """When a job failed last (epoch seconds), and why; commit conflicts do not count."""
        self._schedules: dict[str, TableSchedule] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> int:
        """How many tables have a job that is running or queued."""
        return sum(
            schedule.busy or schedule.cleaning for schedule in list(self._schedules.values())
        )

    @property
    def failures(self) -> int:
        """How many jobs have failed."""
        return self.counts["failures"]

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
        for schedule, _ in self._scheduled():
            table = Warehouse(self._options).followed(schedule.name)
            visible_at = _visible_at(table)
            if visible_at == "commit":
                continue
            waiting = schedule.invisible_rows.count(table, visible_at)
            if not waiting.rows:
                continue
            if waiting.option is None and schedule.failures >= _FAILURES_TO_GIVE_UP:
                _, reason = self.last_error or (0, "")
                raise StreamhouseError(f"{waiting}, which keeps failing: {reason}")
            if waiting.option is None and schedule.idle_at == table.latest_snapshot_id():
                waiting = replace(waiting, option="compaction found nothing to do")
            invisible.append(waiting)
        return invisible

    def behind(self) -> bool:
        """Whether a table has invisible rows that are about to be compacted."""
        return any(waiting.option is None for waiting in self.waiting())

    def forget(self, name: str) -> None:
        """Wait for the jobs of a table that is to be dropped, and begin no others."""
        schedule = self._schedules.pop(name, None)
        if schedule is not None:
            schedule.retry_at = float("inf")
            wait_until(lambda: not (schedule.busy or schedule.cleaning), _STOP_SECONDS, 0.01)

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
        self.pressure.end()
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
            try:
                self._sidecar.start()
            except Exception as error:  # noqa: BLE001  # the first job reports it again
                _LOG.info("the Java core was not started ahead of time: %s", error)
        with (
            ThreadPoolExecutor(_QUICK_WORKERS) as quick,
            ThreadPoolExecutor(_PROMPT_WORKERS) as prompt,
            ThreadPoolExecutor(1) as long,
        ):
            while not self._stopped.is_set():
                self.pressure.wait_for_files(pause)
                pause = self._pace.poll_seconds
                for schedule, only_read in self._scheduled():
                    self._poll(schedule, only_read, _Workers(quick, prompt, long))

    def _wait_for_begin(self) -> None:
        deadline = time.monotonic() + self._pace.longest_wait_seconds
        while not self._may_begin() and time.monotonic() < deadline:
            if self._stopped.wait(self._pace.poll_seconds):
                return

    def _scheduled(self) -> list[tuple[TableSchedule, bool]]:
        """The schedules of the tables, and whether these are only read."""
        try:
            written = dict.fromkeys(self._tables())
            read = [name for name in dict.fromkeys(self._reads()) if name not in written]
        except Exception as error:  # noqa: BLE001  # the queries must go on
            _LOG.warning("cannot list the tables to maintain: %s", error)
            return []
        with self._lock:
            return [(self._schedule(name), False) for name in written] + [
                (self._schedule(name), True) for name in read
            ]

    def _schedule(self, name: str) -> TableSchedule:
        if name not in self._schedules:
            self._schedules[name] = TableSchedule(name, self._pace)
        return self._schedules[name]

    def _poll(self, schedule: TableSchedule, only_read: bool, workers: _Workers) -> None:
        if not schedule.is_poll_due():
            return
        schedule.polled_at = time.monotonic()
        try:
            latest = self._latest(schedule, only_read)
            if only_read and not self._must_compact(schedule):
                return
            kind = schedule.due(latest, self.pressure)
            if kind is not None and not schedule.busy:
                schedule.busy = True
                self._worker(schedule, kind, workers).submit(self._work, schedule, kind, latest)
            cleaning = schedule.cleaning_due(latest, self._local, self._may_expire)
            if cleaning is not None:
                schedule.cleaning = True
                workers.long.submit(self._work, schedule, cleaning, latest)
        except Exception as error:  # noqa: BLE001  # the queries must go on
            self._failed(schedule, error)

    def _must_compact(self, schedule: TableSchedule) -> bool:
        """Whether a table that is only read has invisible rows that no other process compacts."""
        table, now = schedule.table, time.monotonic()
        if table is None or now - schedule.others_seen_at < _OTHERS_EVERY_S:
            return False
        visible_at = _visible_at(table)
        if (
            visible_at == "commit"
            or not schedule.invisible_rows.count(table, visible_at, schedule.latest_within_s).rows
        ):
            return False
        if compacted_by_others(table):
            schedule.others_seen_at = now
            return False
        return True

    def _latest(self, schedule: TableSchedule, only_read: bool) -> int:
        table = schedule.table
        if table is None or schedule.policy is None or schedule.only_read != only_read:
            table = schedule.table = Warehouse(self._options).followed(schedule.name)
            make_policy = MaintenancePolicy.of_read if only_read else MaintenancePolicy.of
            schedule.policy = make_policy(bool(table.primary_key), table.options, self._pace)
            schedule.only_read = only_read
            failing = schedule.failures >= _FAILURES
            self.pressure.limit(schedule.name, None if failing else schedule.policy.most_files)
            if not schedule.counted and schedule.policy.most_files is not None:
                schedule.counted = True
                for _ in range(self._uncompacted(schedule.name)):
                    self.pressure.added(schedule.name, 1)
        latest = table.latest_snapshot_id(schedule.latest_within_s) or 0
        if latest < schedule.compacted:
            schedule.rolled_back()
        return latest

    def _uncompacted(self, name: str) -> int:
        """About how many commits an earlier run left uncompacted; at most `_MAX_UNCOMPACTED`."""
        newest = Warehouse(self._options).table(name).snapshots.newest_first()
        recent = itertools.islice(newest, _MAX_UNCOMPACTED)
        return sum(
            1
            for _ in itertools.takewhile(lambda snapshot: snapshot.commit_kind != "COMPACT", recent)
        )

    def _finish_iceberg(self) -> None:
        """Bring the Iceberg metadata of all written tables up to date, at the end."""
        for schedule in list(self._schedules.values()):
            try:
                latest = 0 if schedule.table is None else schedule.table.latest_snapshot_id() or 0
                schedule.iceberg_at = float("-inf")
                schedule.durations.pop("iceberg", None)
                if schedule.is_iceberg_due(latest):
                    self._sidecar.write_iceberg_metadata(schedule.name)
            except Exception as error:  # noqa: BLE001  # the queries have ended well
                _LOG.warning(
                    "table '%s': Iceberg metadata is not current: %s", schedule.name, error
                )

    def _worker(self, schedule: TableSchedule, kind: Kind, workers: _Workers) -> ThreadPoolExecutor:
        if kind == "compact" and schedule.prompt:
            return workers.prompt
        return workers.long if schedule.is_long(kind) else workers.quick

    def _work(self, schedule: TableSchedule, kind: Kind, latest: int) -> None:
        start = time.monotonic()
        try:
            if self._stopped.is_set():
                return
            if kind in ("compact", "full"):
                self._compact(schedule, kind == "full", latest)
            elif kind == "merge":
                self._sidecar.compact_manifests(schedule.name, self._followed(schedule.name))
                schedule.merged = latest + 1
                self._count(merges=1)
            elif kind == "iceberg":
                schedule.iceberg = self._sidecar.write_iceberg_metadata(schedule.name)
                schedule.iceberg_at = time.monotonic()
            elif kind == "expire":
                self._expire(schedule)
            else:
                self._clean(schedule)
            schedule.failures = 0
            schedule.durations[kind] = took = time.monotonic() - start
            _LOG.debug("table '%s': %s in %.3f s", schedule.name, kind, took)
        except Exception as error:  # noqa: BLE001  # the queries must go on
            if not self._stopped.is_set():
                self._failed(schedule, error)
        finally:
            if kind in ("expire", "leftovers"):
                schedule.cleaning = False
            else:
                schedule.busy = False

    def _compact(self, schedule: TableSchedule, full: bool, latest: int) -> None:
        now = time.monotonic()
        schedule.attempted = latest
        committed = self._sidecar.compact(
            schedule.name,
            full=full,
            keep=schedule.prompt,
            followed=self._followed(schedule.name),
        )
        if committed:
            self.pressure.compacted(schedule.name, now)
            self._count(compactions=1)
        schedule.note_compaction(latest, full, committed, now)
        table = Warehouse(self._options).table(schedule.name)
        if not committed and (full or _visible_at(table) != "full-compaction"):
            schedule.idle_at = latest
        # The options may have changed meanwhile.
        schedule.table = None

    def _followed(self, name: str) -> Table | None:
        """The followed table, if it is in an object store."""
        return None if self._local else Warehouse(self._options).followed(name)

    def _expire(self, schedule: TableSchedule) -> None:
        table = Warehouse(self._options).table(schedule.name)
        began = time.monotonic()
        done = expire(self._sidecar, table, self._pace.expire_work_seconds)
        schedule.note_expiry(began, bool(table.branches()))
        self._count(expired=done)

    def _clean(self, schedule: TableSchedule) -> None:
        schedule.cleaned_at = time.monotonic()
        table = Warehouse(self._options).table(schedule.name)
        removed = remove_leftovers(self._sidecar, table, self._pace.leftover_age_seconds)
        self._count(leftovers=removed)

    def _failed(self, schedule: TableSchedule, error: Exception) -> None:
        self._count(failures=1)
        conflict = isinstance(error, CommitConflictError)
        if not conflict:
            self.last_error = (time.time(), f"table '{schedule.name}': {error}")
        pause = schedule.note_failure(_CONFLICT_PAUSE_S if conflict else 1.0)
        level = logging.INFO if conflict else logging.WARNING
        _LOG.log(level, "table '%s': %s (retry in %g s)", schedule.name, error, pause)

    def _count(self, **increments: int) -> None:
        with self._lock:
            self.counts.update(increments)


def _visible_at(table: Table) -> VisibleAt:
    """When both the rows of a table and its changes are visible."""
    return all_visible_at(bool(table.primary_key), table.options)
