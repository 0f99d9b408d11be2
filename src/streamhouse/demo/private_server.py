"""The process of a private server: started for a demo or a test, and ended with it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import psutil

from streamhouse.errors import ConnectError

STOP_SECONDS = 30.0
_START_SECONDS = 90.0
_CREATE_SECONDS = 120.0
_ERROR = re.compile(r"\b(error|cannot|can't|could not|not found|no such|denied)\b", re.IGNORECASE)


class PrivateServer(ABC):
    """A server with its data in `data_dir`, on 127.0.0.1 only.

    As a context manager it starts and stops the server. A server that an earlier run left behind on
    the same folder is stopped first; the data stay.
    """

    name: ClassVar[str]

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the server that this object started, while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> Self:
        """Start the server (create its data the first time), unless it runs; wait for its answer.

        Raises `ConnectError` if it does not start.
        """
        if self.pid is not None:
            return self
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stop_leftover()
        self._prepare()
        with self._log_file.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal stops the pipeline first.
            self._process = process = subprocess.Popen(
                self._server_command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.data_dir,
            )
        self._pid_file.write_text(str(process.pid))
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ConnectError(f"the private {self.name} did not start: {self._last_error()}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """Stop the server cleanly, or kill it after half a minute; no effect if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process)

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

    @property
    def _pid_file(self) -> Path:
        return self.data_dir / f"{self.name.lower()}.pid"

    @property
    def _log_file(self) -> Path:
        return self.data_dir / f"{self.name.lower()}.log"

    @property
    @abstractmethod
    def _own_argument(self) -> str:
        """The argument by which a process is known as a server of this folder."""

    @abstractmethod
    def _prepare(self) -> None:
        """Create the data the first time, and choose ports."""

    @abstractmethod
    def _server_command(self) -> list[str]:
        """The program and its arguments."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether clients can use the server."""

    def _stop_leftover(self) -> None:
        """Stop a server that an earlier run left behind in this folder."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            process = psutil.Process(int(self._pid_file.read_text()))
            if self._own_argument in process.cmdline():
                end_process(process)

    def _last_error(self) -> str:
        return f"see {self._log_file}"

    def _create_data(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Create the folder `data` by a command, unless that was done."""
        marker = self.data_dir / "installed"
        if marker.exists():
            return
        shutil.rmtree(self.data_dir / "data", ignore_errors=True)
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_CREATE_SECONDS,
            check=False,
            start_new_session=True,
            cwd=self.data_dir,
            env={**os.environ, **(environment or {})},
        )
        if result.returncode != 0:
            reason = _first_error(result.stderr + result.stdout) or f"code {result.returncode}"
            raise ConnectError(f"{Path(command[0]).name} failed in {self.data_dir}: {reason}")
        marker.touch()


def end_process(
    process: subprocess.Popen[Any] | psutil.Process, seconds: float = STOP_SECONDS
) -> None:
    """Ask a process to end, and kill it if that takes longer."""
    process.terminate()
    try:
        process.wait(seconds)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        process.kill()
        process.wait(seconds)


def _first_error(output: str) -> str:
    """The first line that reports an error; what follows it is advice and links."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "")
