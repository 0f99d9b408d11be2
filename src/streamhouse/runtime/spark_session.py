"""The Spark session of a pipeline, set up for many small batches, and silent on the terminal."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streamhouse.errors import StreamhouseError
from streamhouse.runtime import class_archive
from streamhouse.runtime.fused import FusedDataSource
from streamhouse.runtime.worker_python import PARENT, WorkerParent, worker_python
from streamhouse.spark import loopback, register

TASK_ATTEMPTS = 4
"""How often a task may run when its Python worker dies."""

_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.python.daemon.module": "streamhouse.runtime.worker_daemon",
    "spark.python.worker.reuse": "true",
    # Measured: 15 ms a batch for both of Spark's logs, against 80 by Hadoop's file contexts and
    # with a checksum beside each file. The rename is as atomic without.
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Plans are tiny, and what they call is Python: compiling them is all loss.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.driver.memory": "1g",
    "spark.locality.wait": "0",
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.sql.adaptive.enabled": "false",
}
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Many small batches: compiling more cleverly costs more than it brings."""
_END_SECONDS = 10.0
_TAIL_BYTES = 8192
_ours: SparkSession | None = None
"""The session that this module started, not one that it found."""
_parent: WorkerParent | None = None
"""What the Python processes of the JVM that this module started are forked from."""
_output: int | None = None
"""What the JVM writes on its standard error; the file has no name any more."""
_LONGEST_SOCKET_FOLDER = 60
"""Of the 107 bytes of an address Spark's own file names take 42."""
_LOCAL = re.compile(r"local(\[(?P<threads>\d+|\*)\])?")


def start_session(
    name: str, master: str, verbose: bool = False, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session on `master` (such as `local[2]`); Spark's own words are shown only if `verbose`.

    Local tasks are tried `TASK_ATTEMPTS` times, unless `master` says how often. Where a session
    is active already, that one is used. `settings` stand over ours. A local session listens on the
    loopback interface only (`spark.loopback`). Raises `StreamhouseError` if Java does not start.
    """
    global _ours
    python = worker_python() if master.startswith("local") else sys.executable
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = python, sys.executable
    conf = SparkConf().setMaster(with_attempts(master)).setAppName(name)
    conf.setAll(list({**_SETTINGS, **loopback(master), **(settings or {})}.items()))
    conf.set("spark.driver.extraJavaOptions", f"{_JAVA_OPTIONS} {class_archive.java_options()}")
    ours = SparkContext._active_spark_context is None
    if ours:
        conf.setAll(list(_socket_settings().items()))
        SparkContext(conf=conf, gateway=_gateway(conf, verbose))
    session: SparkSession = SparkSession.builder.getOrCreate()
    if ours:
        _ours = session
    session.sparkContext.setLogLevel("WARN" if verbose else "ERROR")
    register(session)
    session.dataSource.register(FusedDataSource)
    threading.Thread(target=_warm, args=(session,), daemon=True, name="streamhouse-warm").start()
    return session


def _warm(session: SparkSession) -> None:
    """Have Python workers started, and a first job's classes loaded, while queries are planned."""
    try:
        session.range(0, 2, numPartitions=2).mapInArrow(lambda rows: rows, "id LONG").collect()
    except Exception:  # noqa: BLE001  # the session may end meanwhile; the queries tell the rest
        return


def _socket_settings() -> dict[str, str]:
    """Unix sockets between Spark and its workers, in a folder that goes with this process.

    Over TCP a small job takes about 40 ms longer. Where the temporary folder's path is too long
    for a socket's address, Spark keeps to TCP.
    """
    folder = tempfile.mkdtemp(prefix="streamhouse-sockets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder) > _LONGEST_SOCKET_FOLDER:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


def end_session() -> None:
    """Stop the session that `start_session` started and its JVM; wait until they are gone.

    A session that somebody else started stays.
    """
    global _ours
    session, _ours = _ours, None
    if session is None or session.sparkContext is not SparkContext._active_spark_context:
        return
    if died(0.0):
        _end_parent()
        return
    gateway: Any = SparkContext._gateway
    session.stop()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_SECONDS)
    _end_parent()


def with_attempts(master: str) -> str:
    """The master with a number of attempts for each task, where a local one names none."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return master
    return f"local[{match['threads'] or 1},{TASK_ATTEMPTS}]"


def _gateway(conf: SparkConf, verbose: bool) -> Any:
    """Spark's JVM, in a session of its own, so that signals to our group do not reach it."""
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    launch: Callable[..., Any] = launch_gateway
    with _environment():
        if verbose:
            return launch(conf, {"start_new_session": True})
        global _output
        _output, said = tempfile.mkstemp(prefix="streamhouse-spark-")
        try:
            return launch(conf, {"start_new_session": True, "stderr": _output})
        except (PySparkRuntimeError, OSError) as error:
            _end_parent()
            lines = Path(said).read_text(errors="replace").strip().splitlines()
            why = lines[0] if lines else str(error)
            raise StreamhouseError(
                f"Spark did not start: {why}; it needs Java 17 (set JAVA_HOME, or install it)"
            ) from error
        finally:
            os.unlink(said)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """What a JVM of Spark has in its environment that is started in the `with`, and others not."""
    global _parent
    _end_parent()
    given = {"SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", _JAVA_OPTIONS)}
    if os.environ["PYSPARK_PYTHON"] != sys.executable:
        # Without it all works, later.
        with contextlib.suppress(OSError):
            _parent = WorkerParent()
            given[PARENT] = _parent.address
    before = {key: os.environ.pop(key, None) for key in (*given, PARENT)}
    os.environ.update(given)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value


def _end_parent() -> None:
    global _parent
    parent, _parent = _parent, None
    if parent is not None:
        parent.close()


def died(wait_s: float = 2.0) -> bool:
    """Whether Spark's JVM has ended although nobody stopped it; waits a little for its end."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    return process.poll() is not None


def last_words() -> str:
    """The last error that Spark's JVM wrote, for when it has died; empty if there is none."""
    if _output is None:
        return ""
    size = os.fstat(_output).st_size
    text = os.pread(_output, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
    lines = [line for line in text.splitlines() if line and not line.startswith(("\t", " "))]
    return " | ".join(lines[-5:])
