"""The processes of a demo: the driver, which runs `streamhouse run`, and the web page's server."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from streamhouse.demo.private_server import end_process
from streamhouse.errors import StreamhouseError

_PR_SET_PDEATHSIG = 1
_SIDECAR = "py4j.GatewayServer"
_MAIN = "from streamhouse.cli.main import main; main()"

Check = Callable[[], None]
"""Called by a demo at each step; raises `KeyboardInterrupt` to end the demo."""


_STOP_S = 10.0
_START_S = 60.0


class Driver:
    """Runs scripts as one pipeline, in an OS session of its own: Ctrl-C reaches only the demo."""

    def __init__(self, scripts: Sequence[Path], arguments: Sequence[str], log: Path) -> None:
        self._scripts = [str(script) for script in scripts]
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start `streamhouse run` with more arguments; its output goes to the log."""
        command = ["run", *self._scripts, *self._arguments, *arguments]
        self._process = start_command(command, self._log)

    def raise_if_failed(self) -> None:
        """Raise `StreamhouseError` with the driver's error message, if it has failed."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise StreamhouseError(f"the pipeline failed: {self._last_error()}")

    def wait(self, timeout_s: float, check: Check | None = None) -> None:
        """Wait for a run that ends by itself; `check` is called meanwhile."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None:
            if check is not None:
                check()
            if time.monotonic() > deadline:
                self.kill()
                raise StreamhouseError(
                    f"the pipeline did not finish within {timeout_s:.0f} s; see {self._log}"
                )
            time.sleep(0.05)
        self.raise_if_failed()

    def kill(self, driver_only: bool = False) -> None:
        """SIGKILL the driver, its JVMs and workers; `driver_only`: only the driver."""
        if self._process is not None:
            if driver_only:
                self._process.kill()
            else:
                for process in process_tree(self._process.pid):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            self._process.wait()
            self._process = None

    def kill_sidecar(self) -> bool:
        """SIGKILL the driver's Java sidecar; returns whether there was one."""
        killed = False
        for process in [] if self._process is None else process_tree(self._process.pid):
            with contextlib.suppress(psutil.Error):
                if _SIDECAR in process.cmdline():
                    process.kill()
                    killed = True
        return killed

    def stop(self, timeout_s: float = 40.0) -> None:
        """Stop the driver between two batches; kill it if that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def _last_error(self) -> str:
        """The last error in the log, or else its last line."""
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line]
        error = next((line for line in reversed(lines) if line.startswith("error: ")), None)
        return (error or (lines[-1] if lines else "its log is empty")).removeprefix("error: ")


def start_command(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `streamhouse` with arguments; it writes to the log, and ends with this process."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-c", _MAIN, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


def process_tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants; a process group would lack Spark's workers."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _die_with_parent() -> None:
    """Make the kernel send SIGTERM when the demo dies, so that no driver is left running."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class DemoPage:
    """The server of a demo's warehouse: a process of its own that ends with the `with` block.

    It starts in the background. `folder` contains its log, and the file with its port; `view` is
    the view that the page shows first.
    """

    def __init__(self, warehouse: str | Path, folder: Path, view: str) -> None:
        self._warehouse = warehouse
        self._view = view
        self._port_file = folder / "page.port"
        self._log = folder / "page.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None
        self._reported = False

    def __enter__(self) -> DemoPage:
        for leftover in (self._port_file, self._log):
            leftover.unlink(missing_ok=True)
        warehouse = ["--warehouse", str(self._warehouse)]
        port = ["--port", "0", "--port-file", str(self._port_file)]
        self._process = start_command(["serve", *warehouse, *port], self._log)
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, _STOP_S)

    @property
    def url(self) -> str | None:
        """The server's URL; None while it starts, and once it has ended."""
        if self._process is None or self._process.poll() is not None:
            return None
        if self._url is None and self._port_file.exists():
            port = self._port_file.read_text().strip()
            self._url = f"http://127.0.0.1:{port}" if port else None
        return self._url

    def news(self) -> str | None:
        """A message for the user, only once: the page's address, or that it could not start."""
        line = self.line
        if self._reported or (line is None and self._is_running()):
            return None
        self._reported = True
        return line or f"the web page could not be started; see {self._log}"

    @property
    def line(self) -> str | None:
        """The page's address, for a screen that is redrawn; None while there is none."""
        url = self.url
        return None if url is None else f"Open {url}/#/views/{self._view}"

    def wait(self, check: Check) -> str:
        """Wait for the server and return its URL; `check` is called meanwhile."""
        deadline = time.monotonic() + _START_S
        while self.url is None:
            check()
            if not self._is_running() or time.monotonic() > deadline:
                raise StreamhouseError(f"the web page could not be started; see {self._log}")
            time.sleep(0.05)
        return self.url or ""

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None
