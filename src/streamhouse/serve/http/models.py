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
_MAX_SCRIPT = 1 << 20
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
    server is too busy to count them. `allow_run`: whether the client may run pipelines;
    `sees_pipelines`: whether it may list them.
    """

    status: Literal["ok", "failing"]
    token_needed: bool
    warehouse: str | None = None
    views: int | None = None
    uptime_seconds: float | None = None
    allow_run: bool | None = None
    sees_pipelines: bool | None = None
    limits: QueryLimits | None = None
    version: str | None = None


class Lag(BaseModel):
    """How far a query is behind its source; a part is null if the source does not know it."""

    seconds: float | None
    rows: int | None
    snapshots: int | None
    bytes: int | None
    waiting_rows: int | None = Field(
        description="Committed rows that no stream sees before a compaction; null if none."
    )


class Refresh(BaseModel):
    """The last refresh of a view."""

    seconds: float = Field(description="How long it took.")
    age_seconds: float = Field(description="The seconds since it ended.")
    current: bool | None = Field(description="Whether no input is newer; null if unknown.")


class QueryModel(BaseModel):
    """A continuous query of a pipeline."""

    name: str
    target: str
    sources: list[str]
    lookups: list[str]
    rows_per_second: float = Field(description="Rows read, over the last ten seconds.")
    rows: int = Field(description="Rows read in this run.")
    batches: int = Field(description="Micro-batches of this run.")
    last_batch: str | None = Field(description="When the last batch ended.")
    last_batch_ms: float | None = Field(description="How long the last batch took.")
    strategy: Literal["incremental", "recomputed"] = Field(
        description="`recomputed` if the last batch computed the whole result of a view."
    )
    refresh: Refresh | None = Field(description="Null unless the query keeps a view.")
    state_bytes: int | None = Field(
        description="The size of the rows that a view keeps between refreshes, or a process of the "
        "tables that the query looks up; null for others."
    )
    view_rows: int | None = Field(description="The rows of a view; null if unknown, or for others.")
    lag: Lag | None = Field(
        description="Null if the source knows none, and while the pipeline does not run."
    )
    metrics: dict[str, float | str] = Field(
        description="Of its source, by the names of Flink, Flink CDC and Debezium."
    )
    last_error: str | None


class MaintenanceModel(BaseModel):
    """Table maintenance of a pipeline, such as compaction and snapshot expiry."""

    busy: int = Field(description="How many tables are being maintained.")
    failures: int
    last_error: str | None
    last_error_time: str | None


class PipelineModel(BaseModel):
    """A pipeline of the warehouse."""

    name: str
    state: Literal["running", "stopped", "failed"] = Field(
        description="`stopped`: it ended by itself, or was stopped."
    )
    pid: int | None = Field(description="Null until the process reports it.")
    host: str
    started: str
    updated: str
    ended: str | None = Field(description="Null while it runs.")
    script: str | None = Field(description="Without its secrets; null if unknown.")
    startable: bool = Field(description="Whether a server started it, and can start it again.")
    restarts: int = Field(
        description="How often it restarted itself within an hour after failures."
    )
    last_error: str | None
    last_error_time: str | None
    queries: list[QueryModel]
    maintenance: MaintenanceModel | None = Field(description="Null if nothing is maintained.")


class PipelineList(BaseModel):
    """All pipelines of the warehouse."""

    pipelines: list[PipelineModel]


class GraphModel(BaseModel):
    """The graph of a script, as `streamhouse graph --json` prints it."""

    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


class ScriptBody(BaseModel):
    """A SQL script."""

    model_config = ConfigDict(extra="forbid")
    sql: str = Field(max_length=_MAX_SCRIPT, description="Statements in Flink's dialect.")


class StartBody(BaseModel):
    """How a pipeline starts."""

    model_config = ConfigDict(extra="forbid")
    from_scratch: bool = Field(
        False,
        description=(
            "For this start only: all queries start from the beginning, with empty targets."
        ),
    )
    keep_targets: bool = Field(
        False, description="With `from_scratch`: keep the rows of the targets."
    )


class PipelineBody(ScriptBody, StartBody):
    """A pipeline to start."""

    name: str = Field(pattern=r"^[a-z0-9_-]{1,64}$")


class ValidScript(BaseModel):
    """The result of checking a valid script."""

    ok: Literal[True]
    statements: int
    graph: GraphModel


class ScriptError(BaseModel):
    """Why a script is invalid, and where; line and column count from 1."""

    message: str
    line: int | None
    column: int | None


class InvalidScript(BaseModel):
    """The result of checking an invalid script."""

    ok: Literal[False]
    error: ScriptError


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
