"""Models of JSON responses, descriptions, tags and error responses, for /openapi.json."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamhouse.options import table_of
from streamhouse.serve.errors import CODES

DESCRIPTION = """
Rows of tables and views as JSON, CSV, Arrow and Parquet, their changes as they are committed, and
SQL over them. In JSON, decimals and timestamps are strings (all digits, ISO 8601), bytes are
base64, and NaN, Infinity and -Infinity are strings. Every GET path also accepts HEAD, with the same
headers. Every error is `{"error": {"code": …, "message": …}}`.
"""
TAGS: list[dict[str, Any]] = table_of(__package__, "tags.toml")["tags"]
_ALWAYS = ("unauthorized", "forbidden", "invalid", "too_many", "busy")


class Error(BaseModel):
    """An error: its code, and a message that says what to change."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=["there is no view 'shop.sale'; did you mean 'shop.sales'?"])


class ErrorResponse(BaseModel):
    """The body of every response whose status is 400 or above."""

    error: Error


class Column(BaseModel):
    """A column; `type` is a Flink SQL type."""

    name: str
    type: str = Field(examples=["DECIMAL(10, 2)"])
    nullable: bool


class View(BaseModel):
    """A served view; if it cannot be read, `error` says why, and `columns` may be empty."""

    name: str = Field(examples=["shop.country_sales"])
    kind: Literal["table", "view"]
    materialized: bool = Field(False, description="Whether it is a materialized view.")
    title: str | None
    description: str | None
    columns: list[Column]
    primary_key: list[str]
    partitioned_by: list[str]
    snapshot: int | None
    time: str | None = Field(examples=["2026-01-01T12:00:00.000Z"])
    rows: int | None = Field(description="null where counting them would take long")
    chart: dict[str, Any] | None
    error: str | None = None


class ViewsResponse(BaseModel):
    views: list[View]


class RowsResponse(BaseModel):
    """Rows as of one snapshot; `snapshot` and `time` are null before the first commit."""

    snapshot: int | None
    time: str | None
    rows: list[dict[str, Any]]


class TypedColumn(BaseModel):
    name: str
    type: str


class SqlResponse(BaseModel):
    """The result of a query; `truncated`: it has more rows than the server returns per query."""

    columns: list[TypedColumn]
    rows: list[dict[str, Any]]
    truncated: bool


class Snapshot(BaseModel):
    """A snapshot; `kind` is APPEND, COMPACT, OVERWRITE or ANALYZE. `rows` counts all records."""

    snapshot: int
    time: str
    kind: str
    rows: int | None
    delta_rows: int | None
    schema_: int = Field(alias="schema")


class SnapshotsResponse(BaseModel):
    snapshots: list[Snapshot]


class SchemaVersion(BaseModel):
    version: int
    time: str | None


class SchemaResponse(BaseModel):
    name: str
    kind: Literal["table", "view"]
    columns: list[Column]
    primary_key: list[str]
    partitioned_by: list[str]
    version: int | None = None
    schema_versions: list[SchemaVersion]


class OptionsResponse(BaseModel):
    """The table's options; values of secret options are masked with stars."""

    options: dict[str, str]


class DataFile(BaseModel):
    """A data file; its rows and bytes are null if the view hides some of the table's rows."""

    partition: str | None
    bucket: int
    file: str
    format: str
    level: int
    rows: int | None
    bytes: int | None
    time: str | None


class FilesResponse(BaseModel):
    """Data files of the newest snapshot; `total` counts those beyond the limit, too."""

    files: list[DataFile]
    total: int


class Tag(BaseModel):
    tag: str
    snapshot: int
    time: str


class TagsResponse(BaseModel):
    tags: list[Tag]


class QueryLimits(BaseModel):
    """Limits of one query: its duration, and how many rows it returns."""

    query_seconds: float
    query_rows: int


class HealthResponse(BaseModel):
    """The state of the server.

    If the server has tokens, a request without one gets `status` and `token_needed` only. `views`
    counts the views that the client sees; it is null if the warehouse cannot be read, or if the
    server is too busy to count them. `allow_run`: whether the client may run pipelines.
    """

    status: Literal["ok", "failing"]
    token_needed: bool
    warehouse: str | None = None
    views: int | None = None
    uptime_seconds: float | None = None
    allow_run: bool | None = None
    limits: QueryLimits | None = None
    version: str | None = None


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
