"""What pipelines look like over HTTP; `serve.pipelines.listing` says what each key means."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_CHARACTERS = 1 << 20


class Lag(BaseModel):
    """How far a query is behind its source; null where the source cannot tell it."""

    seconds: float | None
    rows: int | None
    snapshots: int | None
    bytes: int | None
    waiting_rows: int | None = Field(
        description="Committed rows that no stream sees before a compaction; null if none."
    )


class QueryModel(BaseModel):
    """A continuous query of a pipeline."""

    name: str
    target: str
    sources: list[str]
    lookups: list[str]
    rows_per_second: float = Field(description="Rows read, over the last ten seconds.")
    rows: int
    batches: int
    last_batch: str | None
    last_batch_ms: float | None = Field(description="How long the last batch took.")
    lag: Lag | None
    last_error: str | None


class MaintenanceModel(BaseModel):
    """What looks after the tables of a pipeline."""

    busy: int
    failures: int
    last_error: str | None
    last_error_time: str | None


class PipelineModel(BaseModel):
    """A pipeline of the warehouse."""

    name: str
    state: Literal["running", "stopped", "failed"]
    pid: int | None
    host: str
    started: str
    updated: str
    ended: str | None
    script: str | None = Field(description="Without its secrets.")
    startable: bool = Field(description="Whether a server started it, and can start it again.")
    restarts: int
    last_error: str | None
    last_error_time: str | None
    queries: list[QueryModel]
    maintenance: MaintenanceModel | None


class PipelineList(BaseModel):
    """All pipelines of the warehouse."""

    pipelines: list[PipelineModel]


class GraphModel(BaseModel):
    """What `streamhouse graph --json` prints."""

    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


class ScriptBody(BaseModel):
    """A script."""

    model_config = ConfigDict(extra="forbid")
    sql: str = Field(max_length=MOST_CHARACTERS, description="Statements in Flink's dialect.")


class StartBody(BaseModel):
    """How a pipeline starts."""

    model_config = ConfigDict(extra="forbid")
    from_scratch: bool = Field(
        False, description="All its queries begin anew and their targets are emptied, this once."
    )
    keep_targets: bool = Field(
        False, description="With `from_scratch`: the rows of the targets stay."
    )


class PipelineBody(ScriptBody, StartBody):
    """A pipeline to be started."""

    name: str = Field(pattern=r"^[a-z0-9_-]{1,64}$")


class Right(BaseModel):
    """A script that can be run."""

    ok: Literal[True]
    statements: int
    graph: GraphModel


class Mistake(BaseModel):
    """Why a script cannot be run, and where; line and column count from 1."""

    message: str
    line: int | None
    column: int | None


class Wrong(BaseModel):
    """A script that cannot be run."""

    ok: Literal[False]
    error: Mistake
