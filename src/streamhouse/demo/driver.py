"""The driver process of a demo: `streamhouse run`, its log, and its end, wanted or not."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from streamhouse.errors import StreamhouseError

_PR_SET_PDEATHSIG = 1
_MAIN = "from streamhouse.cli.main import main; main()"


class Driver:
    """Runs a script in a session of its own, so that Ctrl-C reaches the demo alone."""

    def __init__(self, script: Path, warehouse: Path, log: Path) -> None:
        self._script = script
        self._warehouse = warehouse
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start `streamhouse run` with more arguments; its output goes to the log."""
        command = [sys.executable, "-c", _MAIN, "run", str(self._script)]
        command += ["--warehouse", str(self._warehouse), *arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def check(self) -> None:
        """Raise what the driver said, if it has ended by itself."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise StreamhouseError(f"the pipeline ended: {self._last_words()}")

    def wait(self, timeout_s: float) -> None:
        """Wait for a run that ends by itself."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise StreamhouseError(
                f"the pipeline was not done after {timeout_s:.0f} s; see {self._log}"
            ) from None
        self.check()

    def kill(self) -> None:
        """SIGKILL the driver, its JVMs and workers."""
        if self._process is not None:
            _kill_tree(self._process.pid)
            self._process.wait()
            self._process = None

    def stop(self, timeout_s: float = 40.0) -> None:
        """Let it end between two batches; kill it if that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        self.kill()

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line]
        said = next((line for line in reversed(lines) if line.startswith("error: ")), None)
        return (said or (lines[-1] if lines else "it said nothing")).removeprefix("error: ")


def _kill_tree(pid: int) -> None:
    """SIGKILL a process and all below it; Spark's workers are in groups of their own."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _die_with_parent() -> None:
    """Have the kernel end the driver when the demo is killed, so that none runs on unseen."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
