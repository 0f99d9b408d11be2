"""`streamhouse` for programs that start it by its name: each command is a fork of one process.

That process has imported what commands need, which takes a second of a processor, most of what many
commands take at all. The `streamhouse` that programs find on PATH is a small client (`_CLIENT`). It
passes its arguments, environment, folder and open files to the server, and signals to the command;
it ends as the command does, and the command ends if its client is killed.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.documents import ROOT
from tests.local_command import local_commands
from tests.processes import PRELOADED
from tests.waiting import DEADLINE_S

from streamhouse.demo import scenario

_MODULES = (
    *PRELOADED,
    "pyspark.sql.session",
    "streamhouse.cli.commands.audit",
    "streamhouse.cli.commands.call",
    "streamhouse.cli.commands.demo",
    "streamhouse.cli.commands.execute",
    "streamhouse.cli.commands.mysql.sync",
    "streamhouse.cli.commands.pipelines",
    "streamhouse.cli.commands.query",
    "streamhouse.cli.commands.run",
    "streamhouse.runtime.script",
    "streamhouse.runtime.spark.session",
    "streamhouse.sql.streaming.query_planner",
)
_LONGEST = 1 << 20
_CLIENT = """\
import array, json, os, signal, socket, sys
names = ("SIGINT", "SIGTERM")
ignored = [name for name in names if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN]
request = {
    "arguments": sys.argv[2:],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "ignored": ignored,
}
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
server.connect(sys.argv[1])
files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
handled = [getattr(signal, name) for name in names if name not in ignored]
# The command may print, and be sent a signal for that, before this process runs on.
signal.pthread_sigmask(signal.SIG_BLOCK, handled)
server.sendmsg([json.dumps(request).encode()], files)
for number in handled:
    signal.signal(number, lambda number, frame: server.send(b"%d" % number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
code = int(server.recv(16) or b"-9")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def forked_commands(folder: Path, spark: bool = True) -> Iterator[Path]:
    """Run the server in the `with`; gives a folder for PATH that has `streamhouse`.

    Without `spark`, the queries of scripts run in threads of their command, not in a JVM.
    """
    address, client, command = (folder / name for name in ("server", "client.py", "streamhouse"))
    client.write_text(_CLIENT)
    words = f'"{sys.executable}" -IS "{client}" "{address}" "$@"'
    command.write_text(f"#!/bin/sh\nexec {words}\n")
    command.chmod(0o755)
    ready, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forked_commands", str(address), str(theirs), str(spark)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        pass_fds=[theirs],
    )
    os.close(theirs)
    try:
        with open(ready, "rb") as pipe:
            assert pipe.read() == b"ready", "the server of commands has not started"
        yield folder
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(DEADLINE_S)


class _Server:
    """Forks a command for each client, until its standard input ends."""

    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(address)
        self._listening.listen()
        self._clients: dict[int, socket.socket] = {}
        # A signal handler's only task is to wake `select`.
        self._ended, self._ends = os.pipe()
        os.set_blocking(self._ends, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._ends)

    def run(self) -> dict[str, Any] | None:
        """Serve; returns None at the end and, in each fork, what its client requests."""
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            for file in (0, self._ended, self._listening):
                selector.register(file, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj == 0:
                        for pid in self._clients:
                            os.kill(pid, signal.SIGKILL)
                        return None
                    if key.fileobj == self._ended:
                        os.read(self._ended, 1024)
                        self._reap()
                    elif key.fileobj is self._listening:
                        requested = self._fork()
                        if requested is not None:
                            return requested
                    elif key.data in self._clients:
                        self._signal(key.data)

    def _fork(self) -> dict[str, Any] | None:
        client, _ = self._listening.accept()
        request, files, _, _ = socket.recv_fds(client, _LONGEST, 3)
        pid = os.fork()
        if pid:
            self._clients[pid] = client
            self._selector.register(client, selectors.EVENT_READ, pid)
        else:
            signal.set_wakeup_fd(-1)
            for number, file in enumerate(files):
                os.dup2(file, number)
            for one in (client, self._listening, *self._clients.values()):
                one.close()
            os.close(self._ended)
            os.close(self._ends)
        for file in files:
            os.close(file)
        requested: dict[str, Any] | None = None if pid else json.loads(request)
        return requested

    def _signal(self, pid: int) -> None:
        """Pass on a signal; a client that has ended passes no more, and its command is killed."""
        client = self._clients[pid]
        number = client.recv(16)
        os.kill(pid, int(number or signal.SIGKILL))
        if not number:
            self._selector.unregister(client)

    def _reap(self) -> None:
        while self._clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            client = self._clients.pop(pid)
            if client.fileno() in self._selector.get_map():
                self._selector.unregister(client)
            with suppress(BrokenPipeError):
                client.send(b"%d" % os.waitstatus_to_exitcode(status))
            client.close()


def _run(requested: dict[str, Any], spark: bool) -> None:
    """Run the command in this process as Python would have been started for it."""
    from streamhouse.cli.main import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    defaults: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    for number, default in defaults.items():
        signal.signal(number, signal.SIG_IGN if number.name in requested["ignored"] else default)
    os.chdir(requested["folder"])
    os.environ.clear()
    os.environ.update(requested["environment"])
    command = Path(sys.executable).with_name("streamhouse")
    sys.path[0] = str(command.parent)
    sys.argv = [str(command), *requested["arguments"]]
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, "utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    with_spark = spark or requested["arguments"][:1] == ["thrift"]
    with nullcontext() if with_spark else local_commands():
        main()


def _short_demos(command: Path) -> None:
    """Let demos start the commands of their scripted steps as forks, too."""

    def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                [str(command), *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    scenario.start_command = start  # type: ignore[attr-defined]


def _serve(address: str, ready: int, spark: bool) -> None:
    for name in _MODULES:
        import_module(name)
    _short_demos(Path(address).with_name("streamhouse"))
    gc.collect()
    gc.freeze()
    server = _Server(address)
    os.write(ready, b"ready")
    os.close(ready)
    requested = server.run()
    if requested is not None:
        _run(requested, spark)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True")
