"""Where Spark runs, and the settings of its sessions: for small micro-batches and few threads."""

import atexit
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamhouse.options import table_of

DEFAULT_MASTER = "local[2]"
TASK_ATTEMPTS = 4
"""The maximum number of attempts of a task, for instance if its Python worker dies."""

SETTINGS: Mapping[str, str] = table_of(__package__, "settings.toml")
_EXECUTOR_ENV = "spark.executorEnv."
ENVIRONMENT = {
    name.removeprefix(_EXECUTOR_ENV): value
    for name, value in SETTINGS.items()
    if name.startswith(_EXECUTOR_ENV)
}
"""The variables of processes that compute rows, as Spark's executors get them."""
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For many small batches the C2 compiler costs more than it saves."""
DRIVER_JAVA_OPTIONS = f"{JAVA_OPTIONS} -Xmn48m"
"""By default the size of the young generation follows the memory of the machine."""
EXECUTORS = {"spark.executor.extraJavaOptions": JAVA_OPTIONS}
"""Defaults for a cluster: executors pass rows between Python and the network, and compute none."""
_LONGEST_SOCKET_FOLDER = 60
"""In bytes: a Unix socket address has at most 107, of which Spark's file names take 42."""
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_LOCAL = re.compile(r"local(\[(?P<threads>\d+|\*)\])?")


@dataclass(frozen=True)
class SparkOptions:
    """Spark's master; `settings` of Spark, which override the defaults; `verbose`: print its log.

    A master that does not begin with `local` is a cluster: tasks then run on other hosts.
    """

    master: str = DEFAULT_MASTER
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    verbose: bool = False

    @property
    def is_local(self) -> bool:
        """Whether tasks run in the driver's own JVM."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")


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
