"""`streamhouse serve` as a process that can be stopped and restarted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.local_command import PROGRAM
from tests.waiting import DEADLINE_S, looks

from streamhouse.demo.mariadb import free_port


class Server:
    """A server of a warehouse on a free port, which it keeps when it is started again.

    `environment` is set for it besides ours; no file that it writes has more than `file_bytes`.
    Without `spark` the queries of its pipelines run in threads (`tests.local_command`).
    """

    def __init__(
        self,
        warehouse: Path,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        file_bytes: int | None = None,
        spark: bool = True,
    ) -> None:
        self._port_file = folder / "port"
        self.log = folder / "serve.log"
        self._arguments = ["serve", "--warehouse", str(warehouse), *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._port = str(free_port())
        self._environment = {**os.environ, **(environment or {})}
        installed = [str(Path(sys.executable).with_name("streamhouse"))]
        self._command = installed if spark else [sys.executable, "-c", PROGRAM]
        self._limit = [] if file_bytes is None else ["prlimit", f"--fsize={file_bytes}"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Server:
        self._port_file.unlink(missing_ok=True)
        command = [*self._limit, *self._command, *self._arguments]
        command += ["--port", self._port, "--port-file", str(self._port_file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        for _ in looks(self.log.read_text):
            assert self._process.poll() is None, self.log.read_text()
            if self._port_file.exists() and self._port_file.read_text().strip():
                break
        self._port = self._port_file.read_text().strip()
        return self

    def kill(self) -> None:
        """End it as the system does, without a word."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE_S)
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(DEADLINE_S)
                raise AssertionError(f"SIGTERM did not end it: {self.log.read_text()}") from None
            finally:
                self._process = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
