"""All errors that Streamhouse raises deliberately.

StreamhouseError            one readable message: what failed, what to change
├── OptionError             an option is unknown, missing or has a value that is not allowed
│   └── BadIdError          the event id from which a reader resumes a stream is not valid
├── SqlError                a statement is not valid (line, column, snippet)
│   └── UnsupportedSqlError a statement is valid, but not supported
│       ├── NotStreamedError  a view computes a SELECT, and no streaming query
│       └── NoWindowsError  a SELECT has no windows that a watermark could close
├── TableError              a table, column or database is missing or of the wrong shape
│   ├── AlteredTableError   a table in MySQL lacks what a statement reads: it was altered
│   ├── NotSyncedError      a sync of a MySQL database leaves a table out
│   └── TooLargeError       a response would have too many rows
├── ConnectError            a server cannot be reached, refuses the login, or is misconfigured
│   └── ClusterError        executors of a Spark cluster cannot start, or cannot run tasks
├── StoreError              an object store fails for now; a later attempt may succeed
├── DataLossError           data that a reader still needs is gone
│   └── ExpiredError        a reader cannot resume at its position, and has to start again
├── SchemaChangeError       a schema changed in a way that cannot be followed
├── CommitConflictError     a commit conflicted with others more often than it may retry
├── PipelineError           a pipeline already runs, does not run, or is not ours to stop
├── SlowReaderError         a reader of a stream fell too far behind and was disconnected
├── BusyError               the server is at its limit, or stopping; retry later
├── UnknownUntilRunError  a plan needs what only a run of the script creates
├── NoSpaceError            a disk, or the quota on it, is full
├── QueryError              a valid query failed because of the values in its data
├── RecordError             a record cannot be decoded, or a row cannot be encoded
└── LimitError              a request exceeds a limit: time, memory, rows, bytes
    └── TimeLimitError      a query exceeded its time limit
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from streamhouse.sql.syntax import TextPosition


class StreamhouseError(Exception):
    """Base of all errors a user can act upon; `str(error)` is the whole message."""

    def within(self, file: str) -> Self:
        """Prefix the message with the file that the error is in; returns the error."""
        self.args = (f"{file}: {self}",)
        return self


class OptionError(StreamhouseError):
    """An option is unknown, missing, or has a value that is not allowed."""


class SqlError(StreamhouseError):
    """A statement is not valid.

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

    @classmethod
    def at(cls, position: TextPosition, message: str) -> Self:
        """An error at the start of a statement, a query or an expression."""
        return cls(message, line=position.line, column=position.column)

    def reword(self, message: str) -> None:
        """Replace the message, which leaves the position."""
        self.args = (str(self).replace(self.message, message, 1),)
        self.message = message


def _pointed(line: str, start: int, length: int) -> str:
    """A line with carets under a part of it; a very long line is cut around the part's start."""
    if len(line) <= _LONGEST_LINE:
        return f"\n  {line}\n  {' ' * start}{'^' * length}"
    first = max(0, start - _BEFORE)
    displayed = line[first : first + _LONGEST_LINE]
    before, after = "…" * (first > 0), "…" * (first + len(displayed) < len(line))
    carets = "^" * min(length, len(displayed) - (start - first))
    return f"\n  {before}{displayed}{after}\n  {' ' * (len(before) + start - first)}{carets}"


_LONGEST_LINE, _BEFORE = 200, 60
"""How many characters of a line an error shows, and how many of them precede the marked part."""


class UnsupportedSqlError(SqlError):
    """A statement is valid, but not supported; the message names an alternative."""


class NotStreamedError(UnsupportedSqlError):
    """No streaming query computes a SELECT, so a view keeps its result; the message says why.

    It has no position, since a user sees only the reason.
    """


class NoWindowsError(UnsupportedSqlError):
    """A SELECT has no windows that a watermark could close."""


class TableError(StreamhouseError):
    """A table, column or database is missing, already exists, or has the wrong shape."""


class UnknownUntilRunError(StreamhouseError):
    """A statement reads a system table or a branch of a table that its script creates."""


class AlteredTableError(TableError):
    """A table in MySQL was dropped or altered, so that a statement cannot read it."""


class NotSyncedError(TableError):
    """A table that a sync of its whole MySQL database leaves out, as Paimon's action does."""


class RecordError(StreamhouseError):
    """A format cannot decode a record, or express a row; the message is the reason."""


class ConnectError(StreamhouseError):
    """A server cannot be reached, refuses the login, or lacks a setting that is needed."""


class ClusterError(ConnectError):
    """Executors of a Spark cluster cannot start, or lack what tasks need."""


class StoreError(StreamhouseError):
    """An object store does not answer, or answers with an error; a later attempt may succeed.

    `lasting`: the store has failed for so long that attempts were given up.
    """

    lasting = False


class LostCommitError(StoreError):
    """Another writer has won, and nothing of this commit is visible; a new attempt may succeed."""


class DataLossError(StreamhouseError):
    """Data that a reader still needs is gone; the message says what is left."""


class SchemaChangeError(StreamhouseError):
    """A schema changed in a way that a running reader or writer cannot follow."""


class CommitConflictError(StreamhouseError):
    """A commit conflicted with concurrent commits more often than it may retry."""


class PipelineError(StreamhouseError):
    """A pipeline's state does not allow the request: it runs, does not run, or is not ours."""


class BadIdError(OptionError):
    """The event id from which a reader wants to resume a stream is not valid."""


class TooLargeError(TableError):
    """A response would have too many rows; the message says how to request fewer."""


class ExpiredError(DataLossError):
    """A reader cannot resume at its position, and has to start again.

    `earliest` is the oldest snapshot that the table still has; None if knowing it does not help.
    """

    def __init__(self, message: str, earliest: int | None = None) -> None:
        super().__init__(message)
        self.earliest = earliest


class SlowReaderError(StreamhouseError):
    """A reader consumed a stream too slowly, and was disconnected.

    `last_id` is the id of the last event that it got, where it may resume; None if it got none.
    """

    def __init__(self, message: str, last_id: str | None) -> None:
        super().__init__(message)
        self.last_id = last_id


class BusyError(StreamhouseError):
    """The server is at its limit, or stopping; the same request may succeed later."""


class NoSpaceError(StreamhouseError):
    """A disk, or the quota on it, is full; the operation may succeed once there is space."""

    # Errors cross processes: an unpickled one gets its message.
    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "there is no room for temporary files: the disk of this machine, or the quota on "
            "it, is full; free some, or set TMPDIR to a folder on another disk"
        )


class QueryError(StreamhouseError):
    """A valid query failed while it ran, because of the values in its data."""


_REQUEST_LESS = "ask for fewer rows or columns, or filter earlier"


class LimitError(StreamhouseError):
    """A request exceeds a limit; the message names the limit, and how to request less."""

    @classmethod
    def of_memory(cls, limit: str) -> Self:
        """The error of a query that exceeded its memory limit."""
        return cls(f"the query needs more memory than {limit}; {_REQUEST_LESS}")


class TimeLimitError(LimitError):
    """A query exceeded its time limit; it may be faster when less else runs."""

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The error of a query that exceeded a limit of `seconds`."""
        return cls(f"the query took longer than {seconds:g} s; {_REQUEST_LESS}")


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException) -> bool:
    """Whether an OS error, or a library's message that quotes one, means that a disk is full."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(os.strerror(number) in str(error) for number in _FULL)


def is_panic(error: BaseException) -> bool:
    """Whether the error is a panic of a Rust library, which PyO3 raises as a `BaseException`."""
    return type(error).__module__ == "pyo3_runtime"
