"""The Spark session of a pipeline: configured for small micro-batches, without console output."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from pyspark import SparkConf, SparkContext

from streamhouse.background import in_background
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.installed_java import check_java
from streamhouse.paimon.java.jvm import end_process
from streamhouse.runtime.spark import jvm as spark_jvm
from streamhouse.runtime.spark.cluster import check_master, defaults_for_cluster, executor_python
from streamhouse.runtime.spark.executors import (
    ExecutorWatch,
    check_executors,
    executors,
    wait_for_executors,
)
from streamhouse.runtime.spark.jvm import OUTPUT
from streamhouse.runtime.spark.settings import (
    DRIVER_JAVA_OPTIONS,
    EXECUTORS,
    SETTINGS,
    SparkOptions,
    socket_settings,
    with_attempts,
)
from streamhouse.runtime.spark.worker_python import worker_python
from streamhouse.spark import loopback

DEFAULTS = SparkOptions()
_DRIVER_JAVA = "spark.driver.extraJavaOptions"
_CLIENT_LOG = "org.apache.spark.deploy.client"
_END_SECONDS = 10.0
_SWITCH_S = 0.0005
_JOB_CLASSES = {
    "PythonRDD": ("readRDDFromFile", "collectAndServe"),
    "PythonUtils": ("getBroadcastThreshold",),
    "SimplePythonFunction": (),
}
_own_session: SparkContext | None = None
"""The session that this module started itself; None if the active session is another's."""
_starting: tuple[Future[SparkContext], threading.Event] | None = None
"""The session that `begin_session` is starting, until `start_session` takes it; its event cancels
it."""
_checked: set[tuple[str, str]] = set()
"""The applications and warehouses that `check_cluster` has checked."""


def start_session(name: str, options: SparkOptions = DEFAULTS) -> SparkContext:
    """Spark's context, started if none is; shows Spark's output only if `options.verbose`.

    Local tasks have `TASK_ATTEMPTS` attempts, unless the master sets a number. Uses the session
    that is active or that `begin_session` is starting, if there is one. The settings of `options`
    override the defaults. A local session listens on the loopback interface only
    (`spark.loopback`). On a cluster, `check_cluster` has to be called before tasks run. Raises
    `StreamhouseError` if Java does not start or the master cannot be reached.
    """
    global _starting
    starting, _starting = _starting, None
    if starting is not None:
        return starting[0].result()
    own = _own_session
    if own is not None and own is SparkContext._active_spark_context:
        # It is set up; each call into the JVM that would check this takes milliseconds.
        return own
    return _start(name, options)


def begin_session(name: str, options: SparkOptions = DEFAULTS) -> None:
    """Start a session in a background thread; `start_session` waits for it, `end_session` ends it.

    Raises `StreamhouseError` if there is no Java 17.
    """
    global _starting
    check_java()
    cancelled = threading.Event()
    start = partial(_start_beside, name, options, cancelled.is_set)
    _starting = in_background(start, "streamhouse-spark"), cancelled


def _start_beside(name: str, options: SparkOptions, cancelled: Callable[[], bool]) -> SparkContext:
    interval = sys.getswitchinterval()
    # Each of hundreds of py4j calls waits for the GIL, held by a thread that imports modules.
    sys.setswitchinterval(_SWITCH_S)
    try:
        return _start(name, options, cancelled)
    finally:
        sys.setswitchinterval(interval)


def _start(
    name: str, options: SparkOptions, cancelled: Callable[[], bool] = lambda: False
) -> SparkContext:
    """Start a session, unless it is `cancelled` meanwhile."""
    global _own_session
    check_master(options.master, options.settings)
    local, given = options.is_local, options.settings
    os.environ["PYSPARK_PYTHON"] = worker_python() if local else executor_python(given)
    defaults = SETTINGS if local else defaults_for_cluster({**SETTINGS, **EXECUTORS})
    conf = SparkConf().setMaster(with_attempts(options.master)).setAppName(name)
    conf.setAll(list({**defaults, **loopback(options.master), **given}.items()))
    archive = spark_jvm.archive_path()
    own = given.get(_DRIVER_JAVA, "")
    conf.set(_DRIVER_JAVA, f"{DRIVER_JAVA_OPTIONS} {spark_jvm.java_options(archive)} {own}".strip())
    is_own = SparkContext._active_spark_context is None
    if is_own:
        if local:
            conf.setAll(list(socket_settings().items()))
        gateway = _gateway(conf, options, cancelled)
        if cancelled():
            _end_jvm(gateway)
            raise StreamhouseError("Spark is no longer needed")
        _own_session = SparkContext(conf=conf, gateway=gateway)
    session = SparkContext.getOrCreate()
    session.setLogLevel("WARN")
    _keep_names(session)
    if not local:
        _log_executors(session)
    if local and is_own:
        in_background(partial(_warm_up, session), "streamhouse-warm")
    return session


def check_cluster(
    session: SparkContext,
    options: SparkOptions,
    warehouses: Iterable[Mapping[str, str]],
    notice: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """On a cluster, wait for an executor, and check that executors can run our tasks.

    Does nothing for a local master, nor for warehouses that were checked before. Raises
    `ClusterError`.
    """
    if options.is_local:
        return
    application = session.applicationId
    new = [
        warehouse
        for warehouse in warehouses
        if (application, warehouse["warehouse"]) not in _checked
    ]
    if not new and any(checked == application for checked, _ in _checked):
        return
    wait_for_executors(session, options.master, OUTPUT.tail, notice, stopped)
    if not stopped():
        check_executors(session, new, OUTPUT.tail, notice)
        _checked.update((application, one["warehouse"]) for one in new)


def executor_watch(
    session: SparkContext, options: SparkOptions, notice: Callable[[str], None]
) -> ExecutorWatch | None:
    """A watch of whether a cluster has executors; None for a local master."""
    return None if options.is_local else ExecutorWatch(lambda: executors(session), notice)


def _log_executors(session: SparkContext) -> None:
    """Let Spark log why executors of a standalone cluster end before they have registered."""
    jvm: Any = session._jvm
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_CLIENT_LOG, log4j.Level.INFO)


def _keep_names(session: SparkContext) -> None:
    """Look up once which Java classes the jobs of an RDD use.

    PySpark asks the JVM for them in each job, by short names that it looks for in all jars of all
    imported packages: a sixth of the JVM's processor time of a small job.
    """
    jvm: Any = session._jvm
    for name, methods in _JOB_CLASSES.items():
        java_class = getattr(jvm, name)
        for method in methods:
            setattr(java_class, method, getattr(java_class, method))
        setattr(jvm, name, java_class)


def _warm_up(session: SparkContext) -> None:
    """Run an empty task that starts a Python process and loads classes while queries are planned.

    Spark gives tasks to idle processes in turn, and what one has in memory of a view is of use only
    if the next task of the view finds it: so more processes start when tasks run at the same time.
    The session may end meanwhile; queries report other errors.
    """
    session.parallelize([0], 1).mapPartitions(list).collect()


def end_session() -> None:
    """Stop the session that `start_session` started, and its JVM; waits until both have ended.

    Leaves a session that other code started.
    """
    global _own_session, _starting
    starting, _starting = _starting, None
    if starting is not None:
        starting[1].set()
        wait(starting[:1])
    session, _own_session = _own_session, None
    if session is None or session is not SparkContext._active_spark_context:
        return
    if jvm_has_exited(0.0):
        return
    gateway: Any = SparkContext._gateway
    session.stop()
    SparkContext._gateway = SparkContext._jvm = None
    _end_jvm(gateway)


def _end_jvm(gateway: Any) -> None:
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        end_process(process, _END_SECONDS)


def _gateway(conf: SparkConf, options: SparkOptions, cancelled: Callable[[], bool]) -> Any:
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    check_java()
    environment = {"SPARK_LAUNCHER_OPTS": DRIVER_JAVA_OPTIONS, **os.environ}
    try:
        stderr = None if options.verbose else OUTPUT.open()
        return spark_jvm.launch(dict(conf.getAll()), environment, stderr, cancelled)
    except (spark_jvm.JavaExited, OSError) as error:
        lines = [] if options.verbose else OUTPUT.tail().strip().splitlines()
        reason = lines[0] if lines else str(error) or "Java has ended"
        raise StreamhouseError(f"Spark did not start: {reason}") from error


def jvm_has_exited(wait_s: float = 2.0) -> bool:
    """Whether Spark's JVM has exited; waits up to `wait_s` seconds for its exit."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    return process.poll() is not None
