"""Starts and stops pipelines as processes of their own, which outlive the server.

docs/decisions/071-pipelines-report-in-their-warehouse.md says why.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from streamhouse.background import in_background, wait_until
from streamhouse.durable_files import replace_text
from streamhouse.errors import OptionError, PipelineError
from streamhouse.options import hide_secrets
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.runtime.monitoring.log_file import LOG, LogFile
from streamhouse.runtime.monitoring.process import Process, own
from streamhouse.runtime.monitoring.status import SCRIPT, Status, Statuses
from streamhouse.secret_references import ALLOWED
from streamhouse.sql.secrets import without_secrets
from streamhouse.sql.statements.restore_secrets import restore_secrets

MAX_SQL_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_PROGRAM = ("-P", "-c", "from streamhouse.cli.main import main; main()")
_STARTING_S, _STARTING_STEP_S = 1.0, 0.005
_NOT_FOR_PIPELINES = ("STREAMHOUSE_TOKEN", "STREAMHOUSE_RESTARTS", "STREAMHOUSE_WAREHOUSE")


class Runner:
    """Starts and stops the pipelines of one local warehouse; thread-safe.

    Each pipeline is a process of `streamhouse run`; its script is stored in the warehouse. Any
    server of the warehouse can stop it, if it runs on the same machine as the same user.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._warehouse = options["warehouse"]
        self._statuses = Statuses(options)
        self._lock = threading.Lock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, sql: str, from_scratch: bool = False, keep_targets: bool = False
    ) -> None:
        """Start a new pipeline, or give a pipeline that has ended a new script and start it.

        A secret masked with stars, as in displayed scripts, is replaced by the secret of the
        previous script (`sql.statements.restore_secrets`). `from_scratch` and `keep_targets` apply
        to this start only; they are the options of `streamhouse run`.

        Raises `OptionError` for an invalid name or script, for `keep_targets` alone, or if the
        warehouse is not a local directory, `SqlError` for a masked secret that is unknown, and
        `PipelineError` if a pipeline of that name is running.
        """
        self._check_local()
        arguments = _start_arguments(from_scratch, keep_targets)
        if not _NAME.fullmatch(name):
            raise OptionError(
                "the name of a pipeline has 1 to 64 characters of a to z, 0 to 9, _ and -, "
                "such as 'revenue'"
            )
        if len(sql.encode()) > MAX_SQL_BYTES:
            raise OptionError(f"the script is longer than {MAX_SQL_BYTES:,} bytes; split it")
        with self._lock:
            self._check_not_running(name)
            sql = restore_secrets(sql, self._stored_script(name))
            folder = self._folder(name)
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(folder / SCRIPT, sql, durable=False, mode=0o600)
            self._statuses.store_masked_script(name, without_secrets(sql))
            self._launch(name, arguments)

    def start_again(
        self, name: str, from_scratch: bool = False, keep_targets: bool = False
    ) -> None:
        """Restart a pipeline that has ended, with its previous script; otherwise as `start`.

        Raises `TableError` if there is no pipeline of that name, `PipelineError` if it runs or was
        not started by a server, `OptionError` for `keep_targets` alone.
        """
        arguments = _start_arguments(from_scratch, keep_targets)
        with self._lock:
            self._status(name)
            self._check_not_running(name)
            self._launch(name, arguments)

    def stop(self, name: str) -> None:
        """Send SIGTERM to a pipeline, which ends between two batches; does not wait for the end.

        Raises `TableError` and `PipelineError` as `start_again`, and `PipelineError` if it does not
        run, or runs as a process that this server may not stop.
        """
        with self._lock:
            status = self._status(name)
            child = self._children.get(name)
            if status.state == "starting" and child is not None:
                self._terminate(name, Process.of(child.pid))
            elif status.state == "running":
                self._terminate(name, status.process)
            else:
                raise PipelineError(f"pipeline '{name}' is not running; start it first")

    def forget(self, name: str) -> None:
        """Delete the files of a pipeline that has ended, whoever started it; keeps checkpoints.

        Raises as `Statuses.forget`.
        """
        with self._lock:
            self._statuses.forget(name)

    def log(self, name: str, lines: int) -> str:
        """The last lines of a pipeline's log, without secrets.

        Raises `TableError` if there is no pipeline of that name, `PipelineError` if no server
        started it.
        """
        self._status(name)
        lines_read = LogFile(self._folder(name) / LOG).last_lines(lines)
        return hide_secrets("".join(f"{line}\n" for line in lines_read))

    def _record_end(self, name: str, child: subprocess.Popen[bytes]) -> None:
        """Wait for a process to end, and write its status if it could not write that itself."""
        child.wait()
        with self._lock:
            if self._children.get(name) is not child:
                return
            del self._children[name]
            status = self._statuses.read(name)
            if status is None or status.state != "starting":
                return
            now = _now_ms()
            if child.returncode == -signal.SIGTERM:
                ended = replace(status, state="stopped", ended_ms=now)
            else:
                last_line = "".join(LogFile(self._folder(name) / LOG).last_lines(1))
                reason = f"its process exited with code {child.returncode} at startup: {last_line}"
                ended = replace(
                    status, state="failed", ended_ms=now, error=hide_secrets(reason), error_ms=now
                )
            self._statuses.write(ended)

    def _status(self, name: str) -> Status:
        """The status of a pipeline that a server started; else `TableError` or `PipelineError`."""
        status = self._statuses.find(name)
        if not is_local(self._warehouse) or not self._statuses.has(name, SCRIPT):
            raise PipelineError(
                f"pipeline '{name}' was not started by a server; stop and start it where it was "
                f"started (process {status.process.pid} on {status.process.host})"
            )
        return status

    def _check_local(self) -> None:
        if not is_local(self._warehouse):
            raise OptionError(
                "the server starts pipelines only for a warehouse in a local directory; for "
                "others use `streamhouse run` with --checkpoints DIR"
            )

    def _check_not_running(self, name: str) -> None:
        status = self._statuses.read(name)
        if status is not None and status.is_live:
            raise PipelineError(
                f"pipeline '{name}' is running; stop it first and wait until it has ended, or "
                "choose another name"
            )

    def _launch(self, name: str, arguments: Sequence[str]) -> None:
        folder, now = self._folder(name), _now_ms()
        # Before the process starts: its own, later status must not be overwritten.
        self._statuses.write(Status(name, "starting", own(), now, now))
        environment = {k: v for k, v in os.environ.items() if k not in _NOT_FOR_PIPELINES}
        # Whoever may run scripts could otherwise send any secret of this process to their own host.
        environment.setdefault(ALLOWED, "")
        with open(folder / LOG, "ab", opener=partial(os.open, mode=0o600)) as log:
            child = subprocess.Popen(
                [sys.executable, *_PROGRAM, *self._command(name), *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[name] = child
        # Also reaps the child, so that it leaves no zombie. The thread does not delay our exit.
        in_background(partial(self._record_end, name, child), f"pipeline-{name}")

    def _terminate(self, name: str, process: Process | None) -> None:
        """Send SIGTERM to a process, if its command line is that of the pipeline."""
        if process is None:
            raise PipelineError(f"pipeline '{name}' is already ending; wait for its end")
        if not process.here:
            raise PipelineError(
                f"pipeline '{name}' is running on {process.host}; stop it with a server there"
            )
        with contextlib.ExitStack() as stack:
            try:
                handle = os.pidfd_open(process.pid)
            except ProcessLookupError:
                raise PipelineError(f"pipeline '{name}' has just ended") from None
            stack.callback(os.close, handle)
            # The pidfd pins the process: from here on its pid cannot be reused before the signal.
            if not process.alive or not _has_command(process.pid, self._command(name)):
                raise PipelineError(
                    f"process {process.pid} does not belong to pipeline '{name}'; "
                    "nothing was stopped"
                )
            self._statuses.request_stop(name, process)
            try:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
            except (PermissionError, ProcessLookupError):
                raise PipelineError(
                    f"this server has no permission to stop pipeline '{name}' "
                    f"(process {process.pid}); stop it as the user who started it"
                ) from None

    def _command(self, name: str) -> list[str]:
        warehouse = str(self._folder(name).parent.parent)
        return ["run", SCRIPT, "--name", name, "--warehouse", warehouse]

    def _stored_script(self, name: str) -> str:
        """The script that a server last started under the name, with its secrets; else empty."""
        try:
            return (self._folder(name) / SCRIPT).read_bytes().decode()
        except FileNotFoundError:
            return ""

    def _folder(self, name: str) -> Path:
        return Path(local_path(self._statuses.path(name, SCRIPT))).absolute().parent


def _start_arguments(from_scratch: bool, keep_targets: bool) -> list[str]:
    """The arguments of `streamhouse run` that decide where its queries start."""
    if keep_targets and not from_scratch:
        raise OptionError("'keep_targets' needs 'from_scratch': without it no target is emptied")
    flags = (("--from-scratch", from_scratch), ("--keep-targets", keep_targets))
    return [argument for argument, enabled in flags if enabled]


def _has_command(pid: int, command: Sequence[str]) -> bool:
    """Whether the command line of a process is `streamhouse` with this command as its prefix."""
    path, expected = Path(f"/proc/{pid}/cmdline"), [w.encode() for w in (*_PROGRAM, *command)]
    try:
        # Linux sets it only after closing the pipe by which Popen learns that exec succeeded.
        wait_until(path.read_bytes, _STARTING_S, _STARTING_STEP_S)
        words = path.read_bytes().split(b"\0")
    except OSError:
        return False  # the process has ended
    return words[1 : 1 + len(expected)] == expected


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
