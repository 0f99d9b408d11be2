"""Descriptions, tags and error responses for /openapi.json."""

from __future__ import annotations

from typing import Any

from streamhouse.serve.errors import CODES
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

_ALWAYS = ("unauthorized", "forbidden", "invalid", "too_many", "busy")


def error_responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route: those of `codes`, and those that every route has."""
    wanted = (CODES[code] for code in CODES if code in (*codes, *_ALWAYS))
    return {status: {"model": ErrorResponse, "description": text} for status, text in wanted}


def content_in_all_formats(schema_of: str) -> dict[str, Any]:
    """The `content` of a response that is available in every format; `schema_of` is its model."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{schema_of}"}},
        "text/csv": {"schema": {"type": "string"}},
        "application/vnd.apache.arrow.stream": binary,
        "application/vnd.apache.parquet": binary,
    }
