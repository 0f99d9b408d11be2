"""The settings of Spark's sessions: for small micro-batches, few threads and no user interface."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile

TASK_ATTEMPTS = 4
"""The maximum number of attempts of a task, for instance if its Python worker dies."""

_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
SETTINGS = {
    "spark.ui.enabled": "false",
    # Without the UI, what Spark stores of running and finished jobs is never read.
    "spark.ui.liveUpdate.period": "60s",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.python.daemon.module": "streamhouse.runtime.spark.worker_daemon",
    "spark.python.worker.reuse": "true",
    # Measured: writing both of Spark's logs takes 15 ms per batch, against 80 ms with Hadoop's
    # FileContext and a checksum file per file. The rename is atomic in both cases.
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Plans are tiny and call Python: compiling them takes longer than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.driver.memory": "1g",
    "spark.locality.wait": "0",
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.sql.adaptive.enabled": "false",
}
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For many small batches the C2 compiler costs more than it saves."""
EXECUTORS = {"spark.executor.extraJavaOptions": JAVA_OPTIONS}
"""Defaults for a cluster: executors pass rows between Python and the network, and compute none."""
_LONGEST_SOCKET_FOLDER = 60
"""In bytes: a Unix socket address has at most 107, of which Spark's file names take 42."""
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_LOCAL = re.compile(r"local(\[(?P<threads>\d+|\*)\])?")


def with_attempts(master: str) -> str:
    """The master; a local one without a number of task attempts gets `TASK_ATTEMPTS`."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return master
    return f"local[{match['threads'] or 1},{TASK_ATTEMPTS}]"


def socket_settings() -> dict[str, str]:
    """Settings for Unix sockets between Spark and its Python workers.

    Their folder is removed when this process exits. Over TCP a small job takes about 40 ms longer.
    If the temporary folder's path is too long for a socket address, Spark uses TCP.
    """
    folder = tempfile.mkdtemp(prefix="streamhouse-sockets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder) > _LONGEST_SOCKET_FOLDER:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        SOCKET_FOLDER: folder,
    }
