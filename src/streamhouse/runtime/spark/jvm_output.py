"""What Spark's JVM writes to its standard error, in a file without a name."""

import fcntl
import os
import tempfile

_TAIL_BYTES = 8192
_READ_BYTES = 1 << 20
_MOST_BYTES = 8 << 20


class JvmOutput:
    """The standard error of this process's JVM: Spark's own log."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._read = 0

    def open(self) -> int:
        """Create a file for a new JVM; returns its descriptor."""
        self._read = 0
        with tempfile.TemporaryFile(prefix="streamhouse-spark-") as file:
            self._file = os.dup(file.fileno())
        # The JVM appends, so that the file can be truncated.
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
        return self._file

    def new(self) -> bytes:
        """What was written since the last call."""
        if self._file is None:
            return b""
        size = os.fstat(self._file).st_size
        if size <= self._read:
            return b""
        text = os.pread(self._file, _READ_BYTES, max(self._read, size - _READ_BYTES))
        self._read = size
        if size > _MOST_BYTES:
            os.ftruncate(self._file, 0)
            self._read = 0
        return text

    def tail(self, most: int = 1 << 16) -> str:
        """The last `most` bytes."""
        if self._file is None:
            return ""
        size = os.fstat(self._file).st_size
        return os.pread(self._file, most, max(0, size - most)).decode(errors="replace")

    def last_lines(self) -> str:
        """The last lines, without stack traces, for a JVM that has died; empty if none."""
        lines = self.tail(_TAIL_BYTES).splitlines()
        texts = [line for line in lines if line and not line.startswith(("\t", " "))]
        return " | ".join(texts[-5:])


OUTPUT = JvmOutput()
"""That of the JVM of `runtime.spark.session`."""
