"""The shapes of answers, as /openapi.json tells them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class ErrorText(BaseModel):
    """What went wrong, in a sentence with a way out."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=["there is no view 'shop.sale'; did you mean 'shop.sales'?"])


class ErrorAnswer(BaseModel):
    """Every answer whose status is 400 or above."""

    error: ErrorText


class ColumnShape(BaseModel):
    """A column; `type` is in Flink's spelling."""

    name: str
    type: str = Field(examples=["DECIMAL(10, 2)"])
    nullable: bool


class ViewShape(BaseModel):
    """A served view; `error` is there, and columns are missing, where it cannot be read."""

    name: str = Field(examples=["shop.country_sales"])
    kind: Literal["table", "view"]
    title: str | None
    description: str | None
    columns: list[ColumnShape]
    primary_key: list[str]
    partitioned_by: list[str]
    snapshot: int | None
    time: str | None = Field(examples=["2026-01-01T12:00:00.000Z"])
    rows: int | None = Field(description="null where counting them would take long")
    chart: dict[str, Any] | None
    error: str | None = None


class ViewsAnswer(BaseModel):
    views: list[ViewShape]


class RowsAnswer(BaseModel):
    """Rows as of one snapshot; both null where nothing was committed yet."""

    snapshot: int | None
    time: str | None
    rows: list[dict[str, Any]]


class TypedColumn(BaseModel):
    name: str
    type: str


class SqlAnswer(BaseModel):
    """`truncated`: there were more rows than the server gives for one query."""

    columns: list[TypedColumn]
    rows: list[dict[str, Any]]
    truncated: bool


class SnapshotShape(BaseModel):
    """A commit; `kind` is APPEND, COMPACT, OVERWRITE or ANALYZE. `rows` count every record."""

    snapshot: int
    time: str
    kind: str
    rows: int | None
    delta_rows: int | None
    schema_: int = Field(alias="schema")


class SnapshotsAnswer(BaseModel):
    snapshots: list[SnapshotShape]


class VersionShape(BaseModel):
    version: int
    time: str | None


class SchemaAnswer(BaseModel):
    name: str
    kind: Literal["table", "view"]
    columns: list[ColumnShape]
    primary_key: list[str]
    partitioned_by: list[str]
    version: int | None = None
    schema_versions: list[VersionShape]


class OptionsAnswer(BaseModel):
    """The table's options; the values of secret ones are stars."""

    options: dict[str, str]


class FileShape(BaseModel):
    """A data file; its rows and bytes are null where the view hides some of its rows."""

    partition: str | None
    bucket: int
    file: str
    format: str
    level: int
    rows: int | None
    bytes: int | None
    time: str | None


class FilesAnswer(BaseModel):
    """Data files of the newest snapshot; `total` is how many there are."""

    files: list[FileShape]
    total: int


class TagShape(BaseModel):
    tag: str
    snapshot: int
    time: str


class TagsAnswer(BaseModel):
    tags: list[TagShape]


class LimitsShape(BaseModel):
    """What one query may take, and how many rows it gives."""

    query_seconds: float
    query_rows: int


class HealthAnswer(BaseModel):
    """Where the server has tokens, only the first two are there without one.

    `views` are those that the client sees, null where the warehouse cannot be read, and while the
    server has more urgent things to do than to count them; `allow_run`
    says whether it may run pipelines.
    """

    status: Literal["ok", "failing"]
    token_needed: bool
    warehouse: str | None = None
    views: int | None = None
    uptime_seconds: float | None = None
    allow_run: bool | None = None
    limits: LimitsShape | None = None
    version: str | None = None
