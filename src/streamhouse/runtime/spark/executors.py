"""Checks at the start that the executors of a cluster can run our tasks.

Tasks need a Python of the driver's minor version, the same packages, and the warehouse. Without
this check a task would fail four times, and Spark would report the trace of the last one.
"""

import contextlib
import re
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, version

from pyspark import SparkContext

from streamhouse.errors import ClusterError
from streamhouse.paimon.storage.files import files_of

PACKAGES = ("streamhouse", "pyspark", "pyarrow", "duckdb", "pypaimon-rust", "sqlglot")
"""Packages whose versions must be those of the driver."""
NOTICE_AFTER_S = 8.0
"""After this time without an executor, a notice names the reason, if it is known."""
MOST_S = 600.0
"""How long a cluster may take to start an executor, such as a container with a large image."""
_POLL_S = 0.1
_WATCH_S = 2.0
_WHY_NONE = (
    "they are starting, or cannot reach the driver at {driver} (spark.driver.host), or no worker "
    "has enough free cores and memory (spark.cores.max, spark.executor.memory)"
)
_LOST = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED|LOST) *\(?([^)\n]*)\)?")
_REMOVED = re.compile(r"Application has been killed\. Reason: ([^\n]+)")
_MISMATCH = re.compile(r"version[: ]+(\d+\.\d+)\D+(?:that in driver|driver)\D+(\d+\.\d+)")
_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_LACKS = (re.compile("PYTHON_VERSION_MISMATCH"), _MODULE, _PROGRAM)
_LOST_TASK = re.compile(r"Lost task \d+\.\d+ in stage")
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w.$]+(?:Exception|Error)): ([^\n]+)", re.MULTILINE)

Log = Callable[[], str]
Notice = Callable[[str], None]


def wait_for_executors(
    session: SparkContext, master: str, log: Log, notice: Notice, stopped: Callable[[], bool]
) -> None:
    """Wait until an executor has started; a notice after `NOTICE_AFTER_S` names the reason.

    `log` returns Spark's log since the start. Raises `ClusterError` if executors were started and
    ended at once, if the cluster has ended the application, or after ten minutes.
    """
    began, notice_after = time.monotonic(), NOTICE_AFTER_S
    while not executors(session):
        now = time.monotonic()
        reason = _start_failure(log())
        if session._jsc.sc().isStopped() or (reason and now - began > NOTICE_AFTER_S):
            reason = reason or "the cluster ended the session"
            raise ClusterError(
                f"no executor of {master} could start: {reason}; "
                "check that workers can reach the driver (--conf spark.driver.host=ADDRESS), and "
                "see the worker's log of the executor"
            )
        if now - began > MOST_S:
            raise ClusterError(f"{master} has started no executor for {now - began:.0f} s")
        if now - began > notice_after:
            notice_after *= 2
            driver = session.getConf().get("spark.driver.host")
            reason = _WHY_NONE.format(driver=driver)
            notice(f"no executor of {master} runs after {now - began:.0f} s: {reason}; waiting")
        if stopped():
            return
        time.sleep(_POLL_S)


def executors(session: SparkContext) -> int:
    """How many executors run now."""
    infos = session._jsc.sc().statusTracker().getExecutorInfos()
    # One of them is the driver.
    return len(infos) - 1


class ExecutorWatch:
    """Gives notice when a session has had no executor for `NOTICE_AFTER_S`, and when it has one."""

    def __init__(
        self, count: Callable[[], int], notice: Notice, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._notice, self._clock = count, notice, clock
        self._due = clock()
        self._none_since: float | None = None
        self._notified = False

    def step(self) -> None:
        """Look, if it is due; called often."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + _WATCH_S
        if self._count():
            if self._notified:
                self._notice("an executor runs again")
            self._none_since, self._notified = None, False
            return
        if self._none_since is None:
            self._none_since = now
        if not self._notified and now - self._none_since >= NOTICE_AFTER_S:
            self._notified = True
            self._notice("no executor runs any more; batches wait until the cluster starts one")


def check_executors(
    session: SparkContext, warehouses: Iterable[Mapping[str, str]], log: Log, notice: Notice
) -> None:
    """Run a small job on the executors that checks Python, packages and the warehouses.

    Raises `ClusterError` with one line that says what an executor lacks: if `log`, which returns
    Spark's log, has the cause, after the first attempt of a task.
    """
    with _probes(warehouses) as probes, ThreadPoolExecutor(1) as thread:
        slots = max(2, 2 * session.defaultParallelism)
        tasks = session.parallelize(range(slots), slots)
        job = thread.submit(tasks.mapPartitions(_Probe(probes, _versions())).collect)
        notice_at = time.monotonic() + NOTICE_AFTER_S
        try:
            while not wait([job], _POLL_S).done:
                if lacks := _LOST_TASK.split(log(), 1)[1:]:
                    if any(pattern.search(lacks[0]) for pattern in _LACKS):
                        raise ClusterError(explained(lacks[0]))
                if time.monotonic() > notice_at:
                    notice_at = float("inf")
                    notice("the first tasks on executors take long; waiting")
            rows = job.result()
        except ClusterError:
            session.cancelAllJobs()
            raise
        except Exception as error:
            raise ClusterError(explained(str(error))) from error
    problems = sorted({problem for problem in rows if problem})
    if problems:
        raise ClusterError(problems[0])


def explained(text: str) -> str:
    """The one line that says why executors could not run a task; `text` is Spark's."""
    driver = f"{sys.version_info.major}.{sys.version_info.minor}"
    advice = (
        "executors need Python " + driver + " and the driver's packages: set --conf "
        "spark.pyspark.python=PATH, or send an environment (docs/guides/clusters.md)"
    )
    if "PYTHON_VERSION_MISMATCH" in text:
        found = _MISMATCH.search(text)
        other = f" Python {found[1]}" if found else " another Python"
        return f"executors run{other}, and the driver Python {driver}; {advice}"
    module = _MODULE.search(text)
    if module is not None:
        return f"an executor's Python has no module '{module[1]}'; {advice}"
    program = _PROGRAM.search(text)
    if program is not None:
        return f"an executor has no Python at {program[1]}; {advice}"
    causes = _CAUSE.findall(text)
    return f"executors cannot run tasks: {causes[-1] if causes else text.splitlines()[0]}"


class _Probe:
    """The task of the check; yields what this executor lacks, or None."""

    def __init__(
        self, probes: Sequence[tuple[Mapping[str, str], str, str]], packages: Mapping[str, str]
    ) -> None:
        self._probes, self._packages = probes, packages

    def __call__(self, numbers: Iterable[int]) -> Iterable[str | None]:
        return [self._problem()]

    def _problem(self) -> str | None:
        host = socket.gethostname()
        for name, wanted in self._packages.items():
            found = _version(name)
            if found != wanted:
                return (
                    f"the executor on {host} has {name} {found or '(not installed)'}, and the "
                    f"driver {wanted}; install the same version there"
                )
        for warehouse, path, word in self._probes:
            place = warehouse["warehouse"]
            try:
                text = files_of(place, warehouse).read_text(path)
            except Exception as error:  # noqa: BLE001  # reported as missing on this executor
                text, reason = None, f" ({str(error).splitlines()[0]})"
            else:
                reason = ""
            if text != word:
                return (
                    f"the executor on {host} does not see the warehouse {place}{reason}; it must "
                    "be on storage that all hosts share, at the same path, or in an object store"
                )
        return None


@contextlib.contextmanager
def _probes(
    warehouses: Iterable[Mapping[str, str]],
) -> Iterator[list[tuple[Mapping[str, str], str, str]]]:
    """Files in the warehouses that executors must be able to read."""
    made: list[tuple[Mapping[str, str], str, str]] = []
    try:
        for warehouse in warehouses:
            word = uuid.uuid4().hex
            path = f"{warehouse['warehouse'].rstrip('/')}/.probe-{word[:12]}"
            files_of(warehouse["warehouse"], warehouse).write_text(path, word)
            made.append((warehouse, path, word))
        yield made
    finally:
        for warehouse, path, _ in made:
            files_of(warehouse["warehouse"], warehouse).delete(path)


def _start_failure(log: str) -> str | None:
    removed, lost = _REMOVED.findall(log), _LOST.findall(log)
    if lost:
        return f"{len(lost)} ended at once ({lost[-1] or 'without a message'})"
    return removed[-1] if removed else None


def _versions() -> dict[str, str]:
    return {name: found for name in PACKAGES if (found := _version(name)) is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
