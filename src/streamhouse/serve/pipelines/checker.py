"""Checks and draws scripts in a worker process, so that a script cannot hang or kill the server.

docs/decisions/073-scripts-are-checked-in-their-own-process.md says why.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from streamhouse.errors import BusyError
from streamhouse.serve.private_paths import hide_path

_WORKER = "streamhouse.graph.checker_process"
_START_S = 60.0
PLAN_S = 10.0
"""How long planning one script may take."""
WAIT_S = 20.0
"""How long a script may wait for the scripts before it."""
_MAX_BYTES = 16 << 20
_CACHED_RESULTS = 32
_CHUNK = 1 << 16


class Checker:
    """Client of the worker process `streamhouse.graph.checker_process`; sends one script at a time.

    Thread-safe: concurrent calls block until it is their turn. The worker is started on first use
    and again after it died; it exits by itself when idle. `warehouse` are the options of the
    catalog. `plan_s` and `wait_s` are timeouts in seconds.
    """

    def __init__(
        self, warehouse: Mapping[str, str], plan_s: float = PLAN_S, wait_s: float = WAIT_S
    ) -> None:
        self._warehouse = dict(warehouse)
        self._plan_s = plan_s
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._drawings: OrderedDict[tuple[str, bool], dict[str, Any]] = OrderedDict()
        self._closed = False

    def check(self, sql: str, functions: bool = False) -> dict[str, Any]:
        """Plan a script without running it.

        Returns `{"ok": true, "statements", "graph"}` or `{"ok": false, "error": {"message", "line",
        "column"}}`; a script that exceeds the time or memory limit is such an error too.

        `functions`: the worker may import the modules of Python functions, which executes code.
        Without it, creating one is an error. Raises `BusyError` if the worker stays busy with other
        scripts for `wait_s`.
        """
        return self._request({"sql": sql, "functions": functions})

    def draw(self, sql: str, functions: bool = False) -> dict[str, Any]:
        """As `check` for a script that already runs, with its graph drawn as `svg`.

        The tables that the script creates may exist already. The last 32 results are cached.
        """
        result = self._drawings.get((sql, functions))
        if result is None:
            request = {"sql": sql, "applied": True, "svg": True, "functions": functions}
            result = self._request(request)
            if result["ok"]:
                self._drawings[sql, functions] = result
                if len(self._drawings) > _CACHED_RESULTS:
                    self._drawings.popitem(last=False)
        return result

    def close(self) -> None:
        """Kill the worker, even in the middle of a script."""
        self._closed = True
        worker = self._worker
        if worker is not None:
            worker.kill()
        with self._lock:
            self._stop_worker()

    def _request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        line = json.dumps({**request, "warehouse": self._warehouse}).encode() + b"\n"
        if not self._lock.acquire(timeout=self._wait_s):
            raise BusyError("other scripts are being checked; try again shortly")
        try:
            response = self._exchange(line)
        except TimeoutError:
            self._stop_worker()
            return _error_result(
                f"planning the script takes longer than {self._plan_s:g} s; split it"
            )
        except (OSError, ValueError):
            self._stop_worker()
            return _error_result("planning the script takes too much memory; split it")
        finally:
            self._lock.release()
        return response

    def _exchange(self, line: bytes) -> dict[str, Any]:
        worker = self._running_worker()
        try:
            _write(worker, line, self._plan_s)
        except BrokenPipeError:
            # The worker was idle for too long and has just exited.
            self._stop_worker()
            worker = self._running_worker()
            _write(worker, line, self._plan_s)
        return self._without_path(json.loads(_read_line(worker, self._plan_s)))

    def _without_path(self, response: dict[str, Any]) -> dict[str, Any]:
        """The response; its error message no longer contains the path of the warehouse."""
        if not response["ok"]:
            error, warehouse = response["error"], self._warehouse["warehouse"]
            error["message"] = hide_path(error["message"], warehouse)
        return response

    def _running_worker(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise OSError("the server is shutting down")
        if self._worker is None or self._worker.poll() is not None:
            self._stop_worker()
            self._worker = start_worker()
            _read_line(self._worker, _START_S)
        return self._worker

    def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.communicate()


def start_worker() -> subprocess.Popen[bytes]:
    """Start a worker process, unbuffered."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )


def _error_result(message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"message": message, "line": None, "column": None}}


def _write(worker: subprocess.Popen[bytes], line: bytes, within_s: float) -> None:
    """Write a whole line to a process that may have stopped reading; `TimeoutError`."""
    assert worker.stdin is not None
    deadline, handle, remaining = (
        time.monotonic() + within_s,
        worker.stdin.fileno(),
        memoryview(line),
    )
    os.set_blocking(handle, False)
    while remaining:
        if not _ready(handle, select.POLLOUT, deadline):
            raise TimeoutError
        remaining = remaining[os.write(handle, remaining) :]


def _read_line(worker: subprocess.Popen[bytes], within_s: float) -> bytes:
    """Read a line from a process; `TimeoutError`, or `OSError` if it has ended."""
    assert worker.stdout is not None
    deadline, handle, text = time.monotonic() + within_s, worker.stdout.fileno(), b""
    while not text.endswith(b"\n"):
        if not _ready(handle, select.POLLIN, deadline):
            raise TimeoutError
        read = os.read(handle, _CHUNK)
        if not read or len(text) > _MAX_BYTES:
            raise OSError("the process has ended")
        text += read
    return text


def _ready(handle: int, event: int, deadline: float) -> bool:
    """Whether the event, or the end of the pipe, occurs before the deadline (monotonic seconds)."""
    # Not select(), which fails for the large descriptors of a server with many connections.
    waiting = select.poll()
    waiting.register(handle, event)
    return bool(waiting.poll(max(0.0, deadline - time.monotonic()) * 1000))
