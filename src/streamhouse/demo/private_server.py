"""The process of a private server: started for a demo or a test, and ended with it."""

import contextlib
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import psutil

from streamhouse.background import wait_until
from streamhouse.demo.child_process import ChildProcess, start_process
from streamhouse.errors import ConnectError

STOP_SECONDS = 30.0
_START_SECONDS = 90.0
_CREATE_SECONDS = 120.0
_ERROR = re.compile(r"\b(error|cannot|can't|could not|not found|no such|denied)\b", re.IGNORECASE)


class PrivateServer(ChildProcess, ABC):
    """A server with its data in `data_dir`, on 127.0.0.1 only.

    As a context manager it starts and stops the server. A server that an earlier run left behind on
    the same folder is stopped first; the data stay.
    """

    name: ClassVar[str]

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir).absolute()
        super().__init__(self.data_dir / f"{self.name.lower()}.log")

    def start(self) -> Self:
        """Start the server (create its data the first time), unless it runs; wait for its answer.

        Raises `ConnectError` if it does not start.
        """
        if self.pid is not None:
            return self
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stop_leftover()
        self._prepare()
        self._process = start_process(self._server_command(), self.log, cwd=self.data_dir)
        self._pid_file.write_text(str(self.pid))
        wait_until(lambda: self.pid is None or self._answers(), _START_SECONDS, 0.02)
        if self.pid is None or not self._answers():
            self.stop()
            raise ConnectError(f"the private {self.name} did not start: {self._last_error()}")
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _pid_file(self) -> Path:
        return self.data_dir / f"{self.name.lower()}.pid"

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
                process.terminate()
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(STOP_SECONDS)
                process.kill()

    def _last_error(self) -> str:
        return f"see {self.log}"

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


def _first_error(output: str) -> str:
    """The first line that reports an error; what follows it is advice and links."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "")
