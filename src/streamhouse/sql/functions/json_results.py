"""Flink's JSON functions, applied to one text: results, and what ON EMPTY and ON ERROR give."""

from typing import Any

from streamhouse.sql.functions.json_path import (
    PathError,
    compiled,
    is_scalar,
    parsed,
    scalar_text,
    written,
)


def value(text: str | None, path: str | None, empty: str | None, error: str | None) -> str | None:
    """JSON_VALUE. A handler is null, `E` for an error, or `D` and the default."""
    if text is None or path is None:
        return None
    try:
        found = compiled(path).value(text)
    except PathError as failure:
        return _instead(error, f"JSON_VALUE: {failure}")
    if found is None or (compiled(path).lax and not is_scalar(found)):
        return _instead(empty, "JSON_VALUE: nothing at the path")
    if not is_scalar(found):
        return _instead(error, "JSON_VALUE: an object or array at the path")
    return _utf8(scalar_text(found))


def query(text: str, path: str, clauses: str) -> str | None:
    """JSON_QUERY. `clauses` has the wrapper's first letter and the values ON EMPTY and ON ERROR."""
    wrapper, empty, error = clauses.split(",")
    try:
        found = compiled(path).value(text)
    except PathError as failure:
        return _constant(error, f"JSON_QUERY: {failure}")
    if found is None:
        return _constant(empty, "JSON_QUERY: nothing at the path")
    if wrapper == "U" or (wrapper == "C" and not isinstance(found, list)):
        found = [found]
    if is_scalar(found):
        instead = empty if compiled(path).lax else error
        return _constant(instead, "JSON_QUERY: a scalar at the path")
    return _utf8(written(found))


def exists(text: str, path: str, error: str) -> str | None:
    """JSON_EXISTS as `true` or `false`; `error` is the value ON ERROR."""
    try:
        return "false" if compiled(path).value(text) is None else "true"
    except PathError as failure:
        return _constant(error.lower() if len(error) > 1 else error, f"JSON_EXISTS: {failure}")


def kind(text: str) -> str | None:
    """OBJECT, ARRAY or SCALAR; None for a text that is not JSON."""
    try:
        found = parsed(text)
    except PathError:
        return None
    return "OBJECT" if isinstance(found, dict) else "ARRAY" if not is_scalar(found) else "SCALAR"


def length(text: str, path: str) -> int | None:
    """JSON_LENGTH: the number of members or elements, 1 for a scalar, None if there is none."""
    try:
        found: Any = parsed(text) if path == "$" else compiled(path).value(text)
    except PathError:
        return None
    return 1 if is_scalar(found) else len(found)


def _instead(handler: str | None, message: str) -> str | None:
    if handler == "E":
        raise ValueError(message)
    return None if handler is None else handler[1:]


def _constant(handler: str, message: str) -> str | None:
    if handler == "E":
        raise ValueError(message)
    return handler or None


def _utf8(text: str) -> str:
    """A text without half surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
