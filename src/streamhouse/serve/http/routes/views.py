"""`/views` and `/views/{name}`: the served views, their rows, and what is known of them."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.admission.fair_queue import client_of
from streamhouse.serve.formats.cells import iso
from streamhouse.serve.http.access_control import MayRead
from streamhouse.serve.http.models import (
    FilesResponse,
    OptionsResponse,
    RowsResponse,
    SchemaResponse,
    SnapshotsResponse,
    TagsResponse,
    View,
    ViewsResponse,
    content_in_all_formats,
    error_responses,
)
from streamhouse.serve.http.responses import TemporaryFileResponse, json_response, request_etags
from streamhouse.serve.http.routes.parameters import (
    KNOWN_PARAMETERS,
    AsOf,
    Columns,
    Filter,
    FormatName,
    Limit,
    Order,
    ViewName,
    format_of,
    names_of,
    order_of,
    state,
)
from streamhouse.serve.queries import view_details
from streamhouse.serve.queries.output import MEDIA_TYPES, OutputTarget, ReadResult, RowsRequest
from streamhouse.serve.settings import MAX_RESPONSE_BYTES
from streamhouse.serve.tokens import Scope
from streamhouse.serve.views.served_view import ServedView

router = APIRouter(tags=["views"], dependencies=KNOWN_PARAMETERS)
history = APIRouter(
    tags=["history"],
    dependencies=KNOWN_PARAMETERS,
    responses=error_responses("bad_request", "not_found", "expired"),
)

Json = dict[str, Any]
Count = Annotated[int, Query(description="The maximum number of entries.", ge=1, le=10_000)]
_ADVICE = "request fewer with limit= or filter=, or start the server with a higher --max-rows"
_CACHED = "private, no-cache"
"""Caches must revalidate a response, by its ETag, each time."""


@router.get(
    "/views",
    summary="All views",
    response_model=ViewsResponse,
    responses=error_responses("bad_request"),
)
async def views(request: Request, scope: MayRead) -> Response:
    """All served views: their columns, keys, newest snapshot and number of rows."""
    catalog = state(request).views

    def read_views(warehouse: Warehouse) -> Json:
        served = catalog.list_views(warehouse, scope)
        return {"views": [view_details.summary(warehouse, view) for view in served]}

    return await _respond(request, read_views)


@router.get(
    "/views/{name}",
    summary="Rows of a view",
    response_model=RowsResponse,
    responses={
        200: {
            "description": "The rows, by default in the order of the primary key. "
            "`X-Streamhouse-Snapshot` is their snapshot, `ETag` changes with the rows.",
            "content": content_in_all_formats("RowsResponse"),
        },
        304: {"description": "The rows that the client has (If-None-Match) are current."},
        **error_responses("bad_request", "not_found", "expired", "too_large"),
    },
)
async def rows(
    request: Request,
    scope: MayRead,
    name: ViewName,
    format_name: FormatName = None,
    columns: Columns = None,
    filter: Filter = None,
    order: Order = None,
    limit: Limit = None,
    as_of: AsOf = None,
) -> Response:
    """The rows of a view at its newest snapshot, or as of a snapshot, a tag or a time."""
    parts = state(request)
    settings, form = parts.settings, format_of(request, format_name)
    selected, order_columns = names_of("columns", columns), order_of(order)
    client = client_of(request)
    view = await parts.threads.read(
        client, lambda warehouse: parts.views.find(warehouse, name, scope)
    )
    target = OutputTarget(
        parts.queries.path(), form, settings.max_rows, MAX_RESPONSE_BYTES, advice=_ADVICE
    )
    rows_request = RowsRequest(
        view,
        target,
        settings.read_limits if filter is None else settings.query_limits,
        selected,
        filter,
        order_columns,
        limit,
        as_of,
        request_etags(request),
    )
    result = await parts.queries.run(client, rows_request)
    return _response(result, target)


@router.get(
    "/views/{name}/about",
    summary="One view",
    response_model=View,
    responses=error_responses("bad_request", "not_found"),
)
async def about(request: Request, scope: MayRead, name: ViewName) -> Response:
    """One view, as in `/views`."""
    return await _describe(request, scope, name, view_details.summary)


@history.get(
    "/views/{name}/snapshots", summary="Snapshots, newest first", response_model=SnapshotsResponse
)
async def snapshots(
    request: Request, scope: MayRead, name: ViewName, limit: Count = 100
) -> Response:
    """The snapshots that have not expired, and can be read with `as_of` or by `/changes`."""
    return await _describe(
        request, scope, name, lambda warehouse, view: view_details.snapshots(warehouse, view, limit)
    )


@history.get("/views/{name}/schema", summary="Columns and keys", response_model=SchemaResponse)
async def schema(request: Request, scope: MayRead, name: ViewName) -> Response:
    """The current columns and keys, and when the schema was changed."""
    return await _describe(request, scope, name, view_details.schema)


@history.get("/views/{name}/options", summary="Options", response_model=OptionsResponse)
async def options(request: Request, scope: MayRead, name: ViewName) -> Response:
    """The options of the table behind a view; secret values are masked with stars."""
    return await _describe(request, scope, name, view_details.options)


@history.get("/views/{name}/files", summary="Data files", response_model=FilesResponse)
async def files(request: Request, scope: MayRead, name: ViewName, limit: Count = 1_000) -> Response:
    """The data files of the newest snapshot."""
    return await _describe(
        request, scope, name, lambda warehouse, view: view_details.files(warehouse, view, limit)
    )


@history.get("/views/{name}/tags", summary="Tags", response_model=TagsResponse)
async def tags(request: Request, scope: MayRead, name: ViewName) -> Response:
    """The tags, each usable as `as_of`."""
    return await _describe(request, scope, name, view_details.tags)


async def _describe(
    request: Request, scope: Scope, name: str, describe: Callable[[Warehouse, ServedView], Json]
) -> Response:
    """What `describe` returns for a view."""
    find = state(request).views.find
    return await _respond(
        request, lambda warehouse: describe(warehouse, find(warehouse, name, scope))
    )


async def _respond(request: Request, read: Callable[[Warehouse], Json]) -> Response:
    """The JSON object that `read` returns, in a thread that reads the warehouse."""
    answer = await state(request).threads.read(client_of(request), read)
    return json_response(request, answer)


def _response(result: ReadResult, target: OutputTarget) -> Response:
    headers = {"Cache-Control": _CACHED, "Vary": "Accept, Authorization"}
    if result.etag is not None:
        # Weak: a body also names its snapshot, which changes with each commit.
        headers["ETag"] = f"W/{result.etag}"
    if result.snapshot is not None:
        headers["X-Streamhouse-Snapshot"] = str(result.snapshot)
    if result.time_ms is not None:
        headers["X-Streamhouse-Time"] = iso(result.time_ms)
    if not result.changed:
        return Response(status_code=304, headers=headers)
    return TemporaryFileResponse(target.path, MEDIA_TYPES[target.format], headers)
