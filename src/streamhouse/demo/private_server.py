"""The process of a private server: started for a demo or a test, and ended with it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Self

import psutil

STOP_SECONDS = 30.0


class PrivateServer:
    """A server with its data in `data_dir`; a subclass starts it and sets `_process`.

    As a context manager it starts and stops the server.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the server that this object started, while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> Self:
        """Start the server, unless it runs, and wait until it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the server cleanly, or kill it after half a minute; no effect if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=STOP_SECONDS)

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(timeout=STOP_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def leftover(pid_file: Path, argument: str) -> psutil.Process | None:
    """A server that an earlier run left behind: the process of the file, if it has the argument."""
    try:
        process = psutil.Process(int(pid_file.read_text()))
        command = process.cmdline()
    except (OSError, ValueError, psutil.Error):
        return None
    return process if argument in command else None
