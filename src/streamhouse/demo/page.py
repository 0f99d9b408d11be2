"""The web page of a demo: runs `streamhouse serve` on a free port."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from streamhouse.demo.driver import Check, start_command
from streamhouse.demo.private_server import end_process
from streamhouse.errors import StreamhouseError

_STOP_S = 10.0
_START_S = 60.0


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
