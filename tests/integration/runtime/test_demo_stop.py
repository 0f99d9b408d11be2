"""The demos under the signals of terminals and supervisors: an orderly end, exit code 130."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.integration.conftest import Installed
from tests.integration.runtime.conftest import MARK, Run, marked
from tests.processes import reachable
from tests.waiting import DEADLINE_S, looks, until

LIVE = "Ctrl-C ends"
PAGE = "Open http://127.0.0.1:"
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command at a terminal of its own, to which keys are sent."""

    def __init__(self, *words: str) -> None:
        self.mark, self._bytes = uuid.uuid4().hex, b""
        self._master, slave = pty.openpty()
        command = [str(Path(sys.executable).with_name("streamhouse")), *words]
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_at_its_terminal,
            env={**os.environ, "COLUMNS": "120", "LINES": "40", "TERM": "xterm", MARK: self.mark},
        )
        os.close(slave)

    @property
    def text(self) -> str:
        """All that it has printed, without colours."""
        return _CODES.sub("", self._bytes.decode(errors="replace"))

    def until(self, what: Callable[[], bool]) -> None:
        """Take in what is printed until something is so."""
        for _ in looks(lambda: self.text):
            if what():
                break
            self._take(0.1)
        while self._take(0.0):
            pass

    def _take(self, wait_s: float) -> bool:
        if not select.select([self._master], [], [], wait_s)[0]:
            return False
        # At the end Linux says that there is no terminal any more.
        with contextlib.suppress(OSError):
            read = os.read(self._master, 65_536)
            self._bytes += read
            return bool(read)
        time.sleep(wait_s)
        return False

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def gone(self) -> None:
        """Wait for the end of all processes that the command has started."""
        until(lambda: not list(marked(self.mark)))

    def close(self) -> None:
        for pid in {self.process.pid, *marked(self.mark)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        os.close(self._master)


def _at_its_terminal() -> None:
    """Make standard input the terminal whose Ctrl-C reaches this process and its group."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_ctrl_c_ends_the_live_view_and_proves_it(installed_demo: Installed, tmp_path: Path) -> None:
    """MariaDB and the driver do not get the terminal's signal: they are needed to the end."""
    installed_demo(tmp_path / "demo" / "mariadb")
    folder = str(tmp_path / "demo")
    terminal = Terminal("demo", "--dir", folder, "--orders-per-second", "200")
    try:
        terminal.until(lambda: LIVE in terminal.text and PAGE in terminal.text)
        assert reachable(marked(terminal.mark)) == set()
        terminal.press(b"\x03")
        terminal.until(lambda: terminal.process.poll() is not None)
        assert terminal.process.returncode == 130, terminal.text
        assert "audit: the view is equal" in terminal.text
        assert "error" not in terminal.text
        terminal.gone()
    finally:
        terminal.close()


def test_a_signal_ends_what_has_just_begun(installed_demo: Installed, tmp_path: Path) -> None:
    installed_demo(tmp_path / "demo" / "mariadb")
    command = ["demo", "membership", "--json", "--seconds", "600", "--dir", str(tmp_path / "demo")]
    run = Run(tmp_path, command, {}, spark=False)
    run.until(lambda: "starting the pipeline" in run.err)
    run.signal(signal.SIGTERM)
    ended = run.wait()
    assert (ended.code, ended.out) == (130, "")
    output = ended.err.splitlines()
    assert output == [
        "demo: starting the pipeline",
        "demo: interrupted; stopping between two batches",
    ]
