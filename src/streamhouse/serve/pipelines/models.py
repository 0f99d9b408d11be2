"""JSON models of pipelines."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_CHARACTERS = 1 << 20


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
    sql: str = Field(max_length=MAX_CHARACTERS, description="Statements in Flink's dialect.")


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
