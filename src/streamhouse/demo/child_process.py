"""A process that a demo or a test starts and ends, and the `streamhouse` commands of demos."""

import contextlib
import ctypes
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

_PR_SET_PDEATHSIG = 1
_MAIN = "from streamhouse.cli.main import main; main()"


class ChildProcess:
    """A process that writes to `log`, in an OS session of its own: Ctrl-C reaches only the demo."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the process that this object started, while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def stop(self, seconds: float = 40.0) -> None:
        """Ask the process to end; kills it and its descendants if that takes longer."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            self.kill()

    def kill(self, alone: bool = False) -> None:
        """SIGKILL the process and its descendants, as in a crash; `alone`: only the process."""
        process, self._process = self._process, None
        if process is not None:
            for each in [process] if alone else process_tree(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()


def start_process(command: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process in an OS session of its own, which writes to the log."""
    null = subprocess.DEVNULL
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=null, stdout=out, stderr=out, start_new_session=True, **options
        )


def start_command(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `streamhouse` with arguments; it writes to the log, and ends with this process."""
    command = [sys.executable, "-c", _MAIN, *arguments]
    return start_process(command, log, preexec_fn=_die_with_parent)


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
