"""Spark's JVM: its command, its start, the py4j gateway to it, and its log.

PySpark starts `bin/spark-submit`: two shell scripts, a JVM that computes the command of a second
JVM, and in that one SparkSubmit, which reads the settings again and then runs the py4j server. A
local session needs none of this. So the py4j server is started directly, and without MLlib, whose
functions take 1 s of processor time to register in each session. `spark-submit` is still used for a
cluster, and if the environment has settings that only it reads. See
docs/decisions/123-fast-restarts.md.

Half the time from the start of a Spark session to its first batch is the loading of some 15,000
classes. The same holds for Paimon's Java core in the sidecar JVM. With class data sharing (CDS), a
JVM maps an archive of its classes, parsed and verified ahead of time, into memory instead.
`streamhouse.runtime.class_archive_maker` makes one archive for each of the two JVMs in the cache
folder. Without an archive a JVM only starts more slowly. The JVM itself checks that an archive fits
it and its jars, and ignores one that does not.
"""

import fcntl
import os
import shlex
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyspark
from pyspark.java_gateway import launch_gateway

from streamhouse.options import table_of
from streamhouse.paimon.java import class_archive
from streamhouse.paimon.java.installed_java import java_command

_SERVER = "org.apache.spark.api.python.PythonGatewayServer"
NEEDS_SUBMIT = (
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
    "YARN_CONF_DIR",
)
"""Environment variables that only `spark-submit` reads."""
_SUBMIT_SETTINGS = (
    "spark.archives",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.files",
    "spark.jars",
    "spark.submit.",
)
_LEFT_OUT = "spark-mllib_"
_OPTIONS: Sequence[str] = table_of(__package__, "java_options.toml")["options"]
_CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_S = 0.01
_TAIL_BYTES = 8192
_READ_BYTES = 1 << 20
_MOST_BYTES = 8 << 20
OUT_VARIABLE = "STREAMHOUSE_CLASS_ARCHIVE_OUT"
"""Environment variable: the file that the JVM writes its archive to, instead of using one."""


class JavaExited(Exception):
    """The JVM ended before its gateway was ready."""


def spark_home() -> Path:
    """The folder of Spark's jars and scripts, without links: the class archive is made for it."""
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    return Path(os.path.realpath(home))


def launch(
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    stderr: IO[bytes] | int | None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Any:
    """Start the JVM in its own POSIX session, so that signals to our process group do not reach it.

    Returns PySpark's gateway, whose `proc` is the process; the JVM exits when the standard input of
    `proc` is closed. Raises `JavaExited`, also once it is `cancelled`, or `OSError` if there is no
    Java.
    """
    command = _direct(settings) or _submit(settings)
    prefix = "streamhouse-gateway-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        connection = os.path.join(folder, "connection")
        process = subprocess.Popen(
            command,
            env={**environment, "SPARK_CONNECT_MODE": "0", _CONNECTION_FILE: connection},
            stdin=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            while not os.path.isfile(connection):
                if cancelled() or process.poll() is not None:
                    raise JavaExited
                time.sleep(_POLL_S)
            with open(connection, "rb") as file:
                port, length = struct.unpack("!ii", file.read(8))
                return _connected(process, port, file.read(length).decode())
        except BaseException:
            process.kill()
            process.communicate()
            raise


def classpath() -> str:
    """Spark's jars in a fixed order, without MLlib, which our queries do not use."""
    jars = sorted((spark_home() / "jars").glob("*.jar"))
    return os.pathsep.join(str(jar) for jar in jars if not jar.name.startswith(_LEFT_OUT))


def _direct(settings: Mapping[str, str]) -> list[str] | None:
    """The command that starts the py4j server directly; None if `spark-submit` is needed."""
    if (
        not settings["spark.master"].startswith("local")
        or any(name in os.environ for name in NEEDS_SUBMIT)
        or any(key.startswith(_SUBMIT_SETTINGS) for key in settings)
        or _configured()
    ):
        return None
    own = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    memory = f"-Xmx{settings.get('spark.driver.memory', '1g')}"
    return [java_command(), "-cp", classpath(), memory, *_OPTIONS, *own, _SERVER]


def _configured() -> bool:
    """Whether Spark's `conf` folder has files; only `spark-submit` puts it on the class path."""
    folder = spark_home() / "conf"
    return folder.is_dir() and any(file.suffix != ".template" for file in folder.iterdir())


def _submit(settings: Mapping[str, str]) -> list[str]:
    given = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(spark_home() / "bin" / "spark-submit"), *given, *arguments]


def _connected(process: subprocess.Popen[bytes], port: int, secret: str) -> Any:
    """PySpark's gateway to a running JVM."""
    connect: Callable[..., Any] = launch_gateway
    os.environ[_PORT], os.environ[_SECRET] = str(port), secret
    try:
        gateway = connect()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = process
    return gateway


def java_options(path: Path) -> str:
    """Options for Spark's JVM: use the archive at `path`, or make the one `OUT_VARIABLE` names."""
    return " ".join(f'"{word}"' for word in class_archive.options(OUT_VARIABLE, path))


def archive_path() -> Path:
    """The archive's path for this version of Spark and Java, whether it exists or not."""
    version = pyspark.__version__
    parts = [version, classpath(), *class_archive.this_java()]
    return class_archive.cached(f"spark-{version}", parts)


class JvmOutput:
    """The standard error of this process's JVM, Spark's own log: in a file without a name."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._read = 0

    def open(self) -> int:
        """Create a file for a new JVM; returns its descriptor."""
        self._read = 0
        with tempfile.TemporaryFile(prefix="streamhouse-spark-") as file:
            self._file = os.dup(file.fileno())
        # The JVM appends, so that the file can be truncated.
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
        return self._file

    def new(self) -> bytes:
        """What was written since the last call."""
        if self._file is None:
            return b""
        size = os.fstat(self._file).st_size
        if size <= self._read:
            return b""
        text = os.pread(self._file, _READ_BYTES, max(self._read, size - _READ_BYTES))
        self._read = size
        if size > _MOST_BYTES:
            os.ftruncate(self._file, 0)
            self._read = 0
        return text

    def tail(self, most: int = 1 << 16) -> str:
        """The last `most` bytes."""
        if self._file is None:
            return ""
        size = os.fstat(self._file).st_size
        return os.pread(self._file, most, max(0, size - most)).decode(errors="replace")

    def last_lines(self) -> str:
        """The last lines, without stack traces, for a JVM that has died; empty if none."""
        lines = self.tail(_TAIL_BYTES).splitlines()
        texts = [line for line in lines if line and not line.startswith(("\t", " "))]
        return " | ".join(texts[-5:])


OUTPUT = JvmOutput()
"""The output of the JVM of `runtime.spark.session`."""
