"""Descriptions, tags and error responses for /openapi.json."""

from __future__ import annotations

from typing import Any

from streamhouse.serve.errors import STATUS
from streamhouse.serve.http.models import ErrorAnswer

DESCRIPTION = """
Rows of tables and views as JSON, CSV, Arrow and Parquet, their changes as they are committed, and
SQL over them. Decimals and timestamps are strings in JSON (all digits, ISO 8601), bytes are base64,
NaN is null. Where GET works HEAD does, with the same headers. Every error is
`{"error": {"code": …, "message": …}}`.
"""

TAGS: list[dict[str, Any]] = [
    {"name": "views", "description": "What is served, and its rows at a moment."},
    {"name": "changes", "description": "A view as it is, and then each change of it."},
    {"name": "history", "description": "A view's shape, snapshots, tags, files and options."},
    {"name": "sql", "description": "One SELECT over the served views."},
    {
        "name": "pipelines",
        "description": "What fills the tables, and with --allow-run its start and end.",
    },
    {"name": "server", "description": "The server itself."},
]

_SAID = {
    "bad_request": "A parameter has a value that is not allowed.",
    "unauthorized": "A token is needed, or the given one is not known.",
    "forbidden": "The token, the origin or the server's start does not allow it.",
    "not_found": "There is no such view, snapshot or tag, or not for this token.",
    "conflict": "It is so already, or not so any more.",
    "expired": "What was there once is gone.",
    "too_large": "More was asked for than a limit allows.",
    "unsupported": "The body's type is not known.",
    "invalid": "A parameter or the SQL cannot be read, or the query fails.",
    "too_many": "More requests than one client may make; see Retry-After.",
    "busy": "Too many others ask, or the warehouse cannot be reached.",
}
_ALWAYS = ("unauthorized", "forbidden", "invalid", "too_many", "busy")


def refusals(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route: those of `codes`, and those that every route has."""
    wanted = [code for code in _SAID if code in (*codes, *_ALWAYS)]
    return {STATUS[code]: {"model": ErrorAnswer, "description": _SAID[code]} for code in wanted}


def file_answer(schema_of: str) -> dict[str, Any]:
    """The `content` of a response that is available in every format; `schema_of` is its model."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{schema_of}"}},
        "text/csv": {"schema": {"type": "string"}},
        "application/vnd.apache.arrow.stream": binary,
        "application/vnd.apache.parquet": binary,
    }
