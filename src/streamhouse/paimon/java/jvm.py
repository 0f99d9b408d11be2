"""A JVM in a process of its own, called through py4j.

The options of the sidecar's JVM, with the sizes of its heap, are `sidecar.JAVA_OPTIONS`.
"""

import contextlib
import logging
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Self

import psutil
from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.installed_java import check_java, java_command

# py4j logs each broken connection, and raises it, too. If a JVM was killed, we raise our own error,
# and there must be no stack traces on the terminal or in a log.
logging.getLogger("py4j").addHandler(logging.NullHandler())
logging.getLogger("py4j").propagate = False

_SERVER = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
END_SECONDS = 5.0
"""How long a JVM may take to end before it is killed."""
_TAIL_BYTES = 2_000


def spark_jars(patterns: Iterable[str] = ("*.jar",)) -> list[Path]:
    """The jars that ship with PySpark and match one of the patterns, sorted by name."""
    # `find_spec` does not import PySpark, which takes half a second. In a Python worker, PySpark is
    # a zip file under Spark's home, which also has the folder of the jars.
    spec = find_spec("pyspark")
    locations = [] if spec is None else [Path(at) for at in spec.submodule_search_locations or ()]
    homes = [home for location in locations for home in (location, *location.parents)]
    folder = next((home / "jars" for home in homes if (home / "jars").is_dir()), Path("jars"))
    return sorted({jar for pattern in patterns for jar in folder.glob(pattern)})


_our_clients: set[int] = set()
"""The `id` of each py4j client of our JVMs."""


def _bypass_pyspark_errors() -> None:
    """Keep PySpark from translating the errors of our JVMs.

    With each new session, PySpark replaces py4j's `get_return_value` for all clients of the
    process. Its replacement looks up every exception in Spark's JVM, even those of other JVMs.
    """
    current = java_gateway.get_return_value
    if getattr(current, "streamhouse", False):
        return

    def chosen(answer: Any, client: Any, target: Any = None, name: Any = None) -> Any:
        get_value = protocol.get_return_value if id(client) in _our_clients else current
        return get_value(answer, client, target, name)

    chosen.streamhouse = True  # type: ignore[attr-defined]
    java_gateway.get_return_value = chosen


def _launched(
    command: Sequence[str], errors: IO[bytes]
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM of a py4j server: process, port and token; `ValueError` if it prints none.

    py4j's own launcher would run Python code between fork and exec. That frees the objects of other
    threads in the child, among them PySpark's connections to Spark's JVM. They close by shutting
    down sockets that this process still uses.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, process_group=0
    )
    assert process.stdout is not None
    port, token = process.stdout.readline(), process.stdout.readline()
    if not token:
        process.kill()
        process.wait(END_SECONDS)
    threading.Thread(
        target=_drain, args=(process.stdout,), name="streamhouse-jvm-output", daemon=True
    ).start()
    return process, int(port), token.decode().strip()


def _drain(pipe: IO[bytes]) -> None:
    """Discard the output, since the JVM would block on a full pipe."""
    with pipe:
        while pipe.read1(_TAIL_BYTES):  # type: ignore[attr-defined]
            pass


def end_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End a process by closing its standard input; kill it if it still runs after `seconds`."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(seconds)


class JavaProcess:
    """One JVM that ends with this process, even when this process is killed.

    The JVM reads a pipe whose other end only this process holds, and exits when it breaks. A
    terminal's Ctrl-C does not reach the JVM, so that it can finish a commit. Its standard error
    goes to a temporary file. `classpath` and `java_options` are as for `java`. `nice` lowers its
    priority (0 to 19). Raises `StreamhouseError` if Java is missing or does not start.
    """

    def __init__(
        self, classpath: Sequence[Path], java_options: Sequence[str] = (), nice: int = 0
    ) -> None:
        check_java()
        # Held open as long as the JVM writes into it.
        self._errors = tempfile.TemporaryFile()
        classes = [spark_jars(["py4j-*.jar"])[0], *classpath]
        command = [java_command(), "-classpath", os.pathsep.join(map(str, classes)), *java_options]
        try:
            self._process, port, token = _launched(command + _SERVER, self._errors)
        except (OSError, ValueError) as error:
            reason = self.error_tail() or str(error)
            self._errors.close()
            raise StreamhouseError(f"Java did not start: {reason}") from None
        self.kept: tuple[Any, Any] | None = None
        """The Java objects that all threads share."""
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )
        _our_clients.add(id(self._gateway._gateway_client))
        if nice:
            self._lower_priority(nice)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def jvm(self) -> Any:
        """The root of Java's packages, for any thread.

        Java keeps an object as long as Python references it.
        """
        _bypass_pyspark_errors()
        return self._gateway.jvm

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the JVM still runs."""
        return self._process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for the JVM to end; returns whether it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.alive

    def error_tail(self) -> str:
        """The end of what the JVM wrote to its standard error."""
        if self._errors.closed:
            return ""
        descriptor = self._errors.fileno()
        size = os.fstat(descriptor).st_size
        start = max(0, size - _TAIL_BYTES)
        return os.pread(descriptor, _TAIL_BYTES, start).decode(errors="replace").strip()

    def kill(self) -> None:
        """End the JVM at once; safe from any thread, and wakes a caller that waits for it."""
        self._process.kill()

    def close(self, timeout_s: float = END_SECONDS) -> None:
        """End the JVM by closing its pipe; kill it if it still runs after `timeout_s` seconds."""
        client = self._gateway._gateway_client
        _our_clients.discard(id(client))
        # Objects that Python frees later are gone with the JVM.
        client.is_connected = False
        with contextlib.suppress(Py4JError, OSError):
            self._gateway.close()
        end_process(self._process, timeout_s)
        self._errors.close()

    def _lower_priority(self, nice: int) -> None:
        # On Linux a priority belongs to a thread; threads inherit that of their creator.
        try:
            for thread in psutil.Process(self.pid).threads():
                os.setpriority(os.PRIO_PROCESS, thread.id, nice)
        except (psutil.Error, OSError):
            pass
