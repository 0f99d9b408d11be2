"""The processes of a demo: the driver, which runs `streamhouse run`, and the web page's server."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import psutil

from streamhouse.background import wait_until
from streamhouse.demo.child_process import ChildProcess, process_tree, start_command
from streamhouse.errors import StreamhouseError

_SIDECAR = "py4j.GatewayServer"
_STOP_S = 10.0
_START_S = 60.0

Check = Callable[[], None]
"""Called by a demo at each step; raises `KeyboardInterrupt` to end the demo."""


class Driver(ChildProcess):
    """Runs scripts as one pipeline."""

    def __init__(self, scripts: Sequence[Path], arguments: Sequence[str], log: Path) -> None:
        super().__init__(log)
        self._scripts = [str(script) for script in scripts]
        self._arguments = arguments

    def start(self, *arguments: str) -> None:
        """Start `streamhouse run` with more arguments; its output goes to the log."""
        command = ["run", *self._scripts, *self._arguments, *arguments]
        self._process = start_command(command, self.log)

    def raise_if_failed(self) -> None:
        """Raise `StreamhouseError` with the driver's error message, if it has failed."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise StreamhouseError(f"the pipeline failed: {self._last_error()}")

    def wait(self, timeout_s: float, check: Check | None = None) -> None:
        """Wait for a run that ends by itself; `check` is called meanwhile."""

        def ended() -> bool:
            if self.pid is not None and check is not None:
                check()
            return self.pid is None

        if not wait_until(ended, timeout_s):
            self.kill()
            raise StreamhouseError(
                f"the pipeline did not finish within {timeout_s:.0f} s; see {self.log}"
            )
        self.raise_if_failed()

    def kill_sidecar(self) -> bool:
        """SIGKILL the driver's Java sidecar; returns whether there was one."""
        killed = False
        for process in [] if self._process is None else process_tree(self._process.pid):
            with contextlib.suppress(psutil.Error):
                if _SIDECAR in process.cmdline():
                    process.kill()
                    killed = True
        return killed

    def _last_error(self) -> str:
        """The last error in the log, or else its last line."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line]
        error = next((line for line in reversed(lines) if line.startswith("error: ")), None)
        return (error or (lines[-1] if lines else "its log is empty")).removeprefix("error: ")


class DemoPage(ChildProcess):
    """The server of a demo's warehouse: a process of its own that ends with the `with` block.

    It starts in the background. `folder` contains its log, and the file with its port; `view` is
    the view that the page shows first.
    """

    def __init__(self, warehouse: str | Path, folder: Path, view: str) -> None:
        super().__init__(folder / "page.log")
        self._warehouse = warehouse
        self._view = view
        self._port_file = folder / "page.port"
        self._url: str | None = None
        self._reported = False

    def __enter__(self) -> Self:
        for leftover in (self._port_file, self.log):
            leftover.unlink(missing_ok=True)
        warehouse = ["--warehouse", str(self._warehouse)]
        port = ["--port", "0", "--port-file", str(self._port_file)]
        self._process = start_command(["serve", *warehouse, *port], self.log)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(_STOP_S)

    @property
    def url(self) -> str | None:
        """The server's URL; None while it starts, and once it has ended."""
        if self.pid is None:
            return None
        if self._url is None and self._port_file.exists():
            port = self._port_file.read_text().strip()
            self._url = f"http://127.0.0.1:{port}" if port else None
        return self._url

    def news(self) -> str | None:
        """A message for the user, only once: the page's address, or that it could not start."""
        line = self.line
        if self._reported or (line is None and self.pid is not None):
            return None
        self._reported = True
        return line or self._failure

    @property
    def line(self) -> str | None:
        """The page's address, for a screen that is redrawn; None while there is none."""
        url = self.url
        return None if url is None else f"Open {url}/#/views/{self._view}"

    def wait(self, check: Check) -> str:
        """Wait for the server and return its URL; `check` is called meanwhile."""

        def started() -> bool:
            check()
            return self.url is not None or self.pid is None

        if not wait_until(started, _START_S) or self.url is None:
            raise StreamhouseError(self._failure)
        return self.url

    @property
    def _failure(self) -> str:
        return f"the web page could not be started; see {self.log}"
