"""Descriptions, tags and error responses for /openapi.json."""

from __future__ import annotations

from typing import Any

from streamhouse.serve.errors import STATUS
from streamhouse.serve.http.models import ErrorResponse

DESCRIPTION = """
Rows of tables and views as JSON, CSV, Arrow and Parquet, their changes as they are committed, and
SQL over them. In JSON, decimals and timestamps are strings (all digits, ISO 8601), bytes are
base64, and NaN, Infinity and -Infinity are strings. Every GET path also accepts HEAD, with the same
headers. Every error is `{"error": {"code": …, "message": …}}`.
"""

TAGS: list[dict[str, Any]] = [
    {"name": "views", "description": "The served views, and their rows as of a snapshot."},
    {"name": "changes", "description": "The rows of a view, then each change."},
    {"name": "history", "description": "A view's schema, snapshots, tags, files and options."},
    {"name": "sql", "description": "One SELECT over the served views."},
    {
        "name": "pipelines",
        "description": "The pipelines that fill the tables; --allow-run allows starting and "
        "stopping them.",
    },
    {"name": "server", "description": "The server itself."},
]

_DESCRIPTIONS = {
    "bad_request": "A parameter has a value that is not allowed.",
    "unauthorized": "The token is missing or unknown.",
    "forbidden": "The token, the origin or the server's options do not allow it.",
    "not_found": "The view, snapshot or tag does not exist, or the token may not see it.",
    "conflict": "The object already exists, or its state has changed.",
    "expired": "The data has expired.",
    "too_large": "The request or its result exceeds a limit.",
    "unsupported": "The media type of the body is unknown.",
    "invalid": "A parameter or the SQL cannot be parsed, or the query fails.",
    "too_many": "The client exceeds its request rate; see Retry-After.",
    "busy": "The server is overloaded, or the warehouse cannot be reached.",
}
_ALWAYS = ("unauthorized", "forbidden", "invalid", "too_many", "busy")


def error_responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route: those of `codes`, and those that every route has."""
    wanted = [code for code in _DESCRIPTIONS if code in (*codes, *_ALWAYS)]
    return {
        STATUS[code]: {"model": ErrorResponse, "description": _DESCRIPTIONS[code]}
        for code in wanted
    }


def content_in_all_formats(schema_of: str) -> dict[str, Any]:
    """The `content` of a response that is available in every format; `schema_of` is its model."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{schema_of}"}},
        "text/csv": {"schema": {"type": "string"}},
        "application/vnd.apache.arrow.stream": binary,
        "application/vnd.apache.parquet": binary,
    }
