"""Exceptions of the Java core as errors of Streamhouse."""

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from streamhouse.errors import CommitConflictError, StreamhouseError, TableError
from streamhouse.options import is_secret

_CONFLICT = ("conflict", "commit failed after", "retries")


def java_error(table: str, error: Py4JJavaError, options: Mapping[str, str]) -> StreamhouseError:
    """The error for a Java exception; leaves out the secrets of the catalog's `options`."""
    thrown = error.java_exception
    name = thrown.getClass().getSimpleName()
    if name in ("TableNotExistException", "DatabaseNotExistException"):
        return TableError(f"table '{table}' does not exist")
    reason = f"{name}: {_message(thrown)}"
    for key, value in options.items():
        if value and is_secret(key):
            reason = reason.replace(value, "***")
    if is_conflict(error):
        return CommitConflictError(
            f"table '{table}' was not compacted: other commits conflicted ({reason}); try again"
        )
    return StreamhouseError(f"the Java core failed on table '{table}': {reason}")


def is_conflict(error: Py4JJavaError) -> bool:
    """Whether a commit failed because of other commits."""
    return any(word in _text(error) for word in _CONFLICT)


def gave_up(error: Py4JJavaError) -> bool:
    """Whether a commit failed after all its retries, so that its outcome is not known for sure."""
    return "retries" in _text(error)


def _message(thrown: Any) -> str:
    """The first line of a Java exception's message, or of its cause's when it has none."""
    while thrown is not None:
        text = thrown.getMessage()
        if text:
            return str(text).splitlines()[0][:500]
        thrown = thrown.getCause()
    return "no message"


def _text(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage() or "").lower()
