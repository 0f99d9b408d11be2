"""The log of a process that runs for months: what it said last, and no more."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOST_BYTES = 512 * 1024
"""How long a log may be, and how much of a longer one is kept in the file before it."""
LOG = "log"


class LogFile:
    """A file to which several processes append (`O_APPEND`), and the one before it, `….1`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = path.with_name(f"{path.name}.1")

    def takes(self, descriptor: int) -> bool:
        """Whether what is written to the descriptor comes here."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except OSError:
            return False

    def trim(self) -> None:
        """Have the end of a log that is too long become the one before, and begin it anew.

        What is appended at the same moment may be lost, whatever fails is left for the next time.
        """
        with contextlib.suppress(OSError):
            if self.path.stat().st_size <= MOST_BYTES:
                return
            part = self._before.with_name(f"{self._before.name}.part")
            with open(part, "wb", opener=_private) as file:
                file.write(self._tail(MOST_BYTES))
            part.replace(self._before)
            os.truncate(self.path, 0)

    def last_lines(self, count: int) -> list[str]:
        """The last lines, oldest first; empty where there is no log."""
        text = b""
        for path in (self._before, self.path):
            with contextlib.suppress(FileNotFoundError):
                text += path.read_bytes()
        return text.decode(errors="replace").splitlines()[-count:] if count > 0 else []

    def _tail(self, size: int) -> bytes:
        """The last bytes, from the beginning of a line on."""
        with self.path.open("rb") as file:
            file.seek(-size, os.SEEK_END)
            text = file.read(size)
        return text[text.find(b"\n") + 1 :]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
