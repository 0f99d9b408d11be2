"""Runs a command on a pseudo-terminal and collects its output."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator

from tests.local_command import PROGRAM
from tests.waiting import DEADLINE_S, looks


class Terminal:
    """A running `streamhouse` command whose errors, and so its progress, go to a terminal.

    Its queries run in threads (`tests.local_command`).
    """

    def __init__(self, arguments: list[str]) -> None:
        self._master, slave = pty.openpty()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=slave,
                text=True,
                env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            )
        finally:
            os.close(slave)
        self.displayed = ""

    @property
    def text(self) -> str:
        """What the terminal has shown, without codes of colours and of the cursor."""
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self.displayed)

    def until(self, pattern: str) -> None:
        """Wait until the terminal has shown a text that matches a regular expression."""
        for _ in looks(lambda: repr(self.displayed)):
            if re.search(pattern, self.text):
                break
            assert self._take(), f"ended without it: {self.displayed!r}"

    def stop(self) -> None:
        """End the command between two batches."""
        self._process.terminate()
        self.end()

    def end(self) -> str:
        """Wait for the command's end, which must be a good one; what it printed."""
        for _ in looks(lambda: repr(self.displayed)):
            if not self._take():
                break
        out, _ = self._process.communicate(timeout=DEADLINE_S)
        assert self._process.returncode == 0, self.displayed
        return out

    def close(self) -> None:
        """End the command if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        os.close(self._master)

    def _take(self) -> bool:
        """Read what has come; False when nobody can write any more."""
        if not select.select([self._master], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:
            # What Linux says once the other end is closed.
            return False
        self.displayed += data.decode(errors="replace")
        return bool(data)


@contextlib.contextmanager
def on_terminal(*arguments: str) -> Iterator[Terminal]:
    """Start a command on a terminal; it is ended with the `with` at the latest."""
    made = Terminal(list(arguments))
    try:
        yield made
    finally:
        made.close()
