"""Every error that Streamhouse raises on purpose.

StreamhouseError            one readable message: what failed, what to change
├── OptionError             an option is unknown, missing or has a value that is not allowed
│   └── BadIdError          the place in a stream that a reader names cannot be read
├── SqlError                a statement cannot be read (line, column, snippet)
│   └── UnsupportedSqlError a statement is understood, and not supported
├── TableError              a table, column or database is missing or of the wrong shape
│   └── TooLargeError       more rows than one answer may have
├── ConnectError            a server cannot be reached, refuses us, or is set up wrongly
├── DataLossError           data that a reader still needs is gone
│   └── ExpiredError        a reader cannot go on from where it was; it begins anew
├── SchemaChangeError       a schema changed in a way that cannot be followed
├── CommitConflictError     a commit lost against others more often than it may retry
├── PipelineError           a pipeline runs already, does not run, or is not ours to end
├── SlowReaderError         a reader of a stream fell too far behind and was cut off
├── BusyError               the server does as much as it may at once; ask again later
├── NoSpaceError            a disk, or the quota on it, is full
├── QueryError              a query that was understood failed on the values it met
└── LimitError              more was asked for than a limit allows: time, memory, rows, bytes
    └── TimeLimitError      a query took longer than it may
"""

from __future__ import annotations

import errno
import os
from typing import Self


class StreamhouseError(Exception):
    """Base of all errors a user can act upon; `str(error)` is the whole message."""

    def within(self, file: str) -> Self:
        """The same error, saying first in which file it is."""
        self.args = (f"{file}: {self}",)
        return self


class OptionError(StreamhouseError):
    """An option is unknown, missing, or has a value that is not allowed."""


class SqlError(StreamhouseError):
    """A statement that cannot be read.

    `line` and `column` count from 1 in the script; `snippet` is the offending text.
    """

    def __init__(
        self,
        message: str,
        *,
        line: int = 0,
        column: int = 0,
        source_line: str = "",
        snippet: str = "",
    ) -> None:
        self.message = message
        self.line = line
        self.column = column
        self.snippet = snippet
        text = message
        if line:
            text = f"line {line}, column {column}: {message}"
            if source_line:
                length = len(snippet.splitlines()[0]) if snippet else 1
                text += _pointed(source_line, column - 1, max(1, length))
        super().__init__(text)


def _pointed(line: str, start: int, length: int) -> str:
    """A line with carets under a part of it; of a very long line what is around its start."""
    if len(line) <= _LONGEST_LINE:
        return f"\n  {line}\n  {' ' * start}{'^' * length}"
    first = max(0, start - _BEFORE)
    shown = line[first : first + _LONGEST_LINE]
    before, after = "…" * (first > 0), "…" * (first + len(shown) < len(line))
    carets = "^" * min(length, len(shown) - (start - first))
    return f"\n  {before}{shown}{after}\n  {' ' * (len(before) + start - first)}{carets}"


_LONGEST_LINE, _BEFORE = 200, 60
"""Characters of a line that an error shows, and how many of them stand before the place."""


class UnsupportedSqlError(SqlError):
    """A statement that is understood and not supported; the message names a way round."""


class TableError(StreamhouseError):
    """A table, column or database is missing, exists already, or has the wrong shape."""


class ConnectError(StreamhouseError):
    """A server cannot be reached, refuses the login, or lacks a setting that is needed."""


class DataLossError(StreamhouseError):
    """Data that a reader still needs is gone; the message says what is left."""


class SchemaChangeError(StreamhouseError):
    """A schema changed in a way that a running reader or writer cannot follow."""


class CommitConflictError(StreamhouseError):
    """A commit lost against concurrent commits more often than it may retry."""


class PipelineError(StreamhouseError):
    """What a pipeline is asked to do does not go with its state: it runs already, or does not."""


class BadIdError(OptionError):
    """The place in a stream that a reader wants to go on from cannot be read."""


class TooLargeError(TableError):
    """More rows than one answer may have; the message says how to ask for fewer."""


class ExpiredError(DataLossError):
    """A reader cannot go on from where it was, and has to begin anew.

    `earliest` is the oldest snapshot that the table still has, None where that does not help.
    """

    def __init__(self, message: str, earliest: int | None = None) -> None:
        super().__init__(message)
        self.earliest = earliest


class SlowReaderError(StreamhouseError):
    """A reader took what it was sent too slowly, and was cut off.

    `last_id` is the last id that it was given, from which it may go on; None if it has none yet.
    """

    def __init__(self, message: str, last_id: str | None) -> None:
        super().__init__(message)
        self.last_id = last_id


class BusyError(StreamhouseError):
    """The server does as much as it may at the same time; the same request may succeed later."""


class NoSpaceError(StreamhouseError):
    """A disk, or the quota on it, is full; what was to be done may be done once there is room."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "there is no room for temporary files: the disk of this machine, or the quota on "
            "it, is full; free some, or set TMPDIR to a folder on another disk"
        )


class QueryError(StreamhouseError):
    """A query that was understood failed while it ran, on the values it met."""


_ASK_LESS = "ask for fewer rows or columns, or filter earlier"


class LimitError(StreamhouseError):
    """More was asked for than a limit allows; the message names the limit and a way to ask less."""

    @classmethod
    def of_memory(cls, limit: str) -> Self:
        """The error of a query that was given so much memory."""
        return cls(f"the query needs more memory than {limit}; {_ASK_LESS}")


class TimeLimitError(LimitError):
    """A query took longer than it may; the same query may be quicker when less else runs."""

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The error of a query that was given `seconds`."""
        return cls(f"the query took longer than {seconds:g} s; {_ASK_LESS}")


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException) -> bool:
    """Whether an error of the system, or a library's text about it, says that a disk is full."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(os.strerror(number) in str(error) for number in _FULL)


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust broke down: that is no `Exception`, but as good as one."""
    return type(error).__module__ == "pyo3_runtime"
