"""A log file of limited size with rotation, for processes that run for months."""

import contextlib
import os
from functools import partial
from pathlib import Path

from streamhouse.durable_files import replace_text

MOST_BYTES = 512 * 1024
"""The size at which a log is rotated, and how much of it the rotated file keeps."""
LOG = "log"
SPARK_LOG = "spark.log"


class LogFile:
    """A log file to which several processes append (`O_APPEND`), and its rotated file `….1`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rotated = path.with_name(f"{path.name}.1")

    def takes(self, descriptor: int) -> bool:
        """Whether the file descriptor refers to this log file."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except OSError:
            return False

    def append(self, text: bytes) -> None:
        """Append text, and `trim`. Errors are ignored: the text is then lost."""
        if not text:
            return
        private = partial(os.open, mode=0o600)
        with contextlib.suppress(OSError), open(self.path, "ab", opener=private) as file:
            file.write(text)
        self.trim()

    def trim(self) -> None:
        """If the log is too long, copy its end to the rotated file and truncate the log.

        Lines that are appended at the same time may be lost. Errors are ignored; the next call
        tries again.
        """
        with contextlib.suppress(OSError):
            if self.path.stat().st_size <= MOST_BYTES:
                return
            with self.path.open("rb") as file:
                file.seek(-MOST_BYTES, os.SEEK_END)
                tail = file.read(MOST_BYTES)
            # Without the incomplete first line.
            text = tail[tail.find(b"\n") + 1 :].decode(errors="replace")
            replace_text(self._rotated, text, durable=False, mode=0o600)
            os.truncate(self.path, 0)

    def last_lines(self, count: int) -> list[str]:
        """The last `count` lines, oldest first; empty if there is no log."""
        text = b""
        for path in (self._rotated, self.path):
            with contextlib.suppress(FileNotFoundError):
                text += path.read_bytes()
        return text.decode(errors="replace").splitlines()[-count:] if count > 0 else []
