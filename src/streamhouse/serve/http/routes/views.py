"""`/views`, `/views/{name}` and `/views/{name}/about`: the served views and their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from streamhouse.serve.admission.fair_queue import client_of
from streamhouse.serve.http.access_control import MayRead
from streamhouse.serve.http.models import RowsResponse, View, ViewsResponse
from streamhouse.serve.http.openapi import content_in_all_formats, error_responses
from streamhouse.serve.http.responses import TemporaryFileResponse, json_response, request_etags
from streamhouse.serve.http.routes.parameters import (
    AsOf,
    Columns,
    Filter,
    FormatName,
    Limit,
    Order,
    ViewName,
    check_parameters,
    format_of,
    names_of,
    order_of,
    state,
)
from streamhouse.serve.queries import view_details
from streamhouse.serve.queries.output import MEDIA_TYPES, OutputTarget
from streamhouse.serve.queries.read_request import ReadResult, RowsRequest
from streamhouse.serve.settings import MAX_RESPONSE_BYTES
from streamhouse.serve.streams.event import iso

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse

router = APIRouter(tags=["views"])

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
    check_parameters(request)
    catalog = state(request).views

    def read_views(warehouse: Warehouse) -> list[dict[str, Any]]:
        served = catalog.list_views(warehouse, scope)
        return [view_details.summary(warehouse, view) for view in served]

    return json_response(
        request, {"views": await state(request).warehouse_pool.run(client_of(request), read_views)}
    )


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
    check_parameters(request, "format", "columns", "filter", "order", "limit", "as_of")
    parts = state(request)
    settings, form = parts.settings, format_of(request, format_name)
    selected, order_columns = names_of("columns", columns), order_of(order)
    client = client_of(request)
    view = await parts.warehouse_pool.run(
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
    check_parameters(request)
    catalog = state(request).views

    def read_view(warehouse: Warehouse) -> dict[str, Any]:
        return view_details.summary(warehouse, catalog.find(warehouse, name, scope))

    return json_response(
        request, await state(request).warehouse_pool.run(client_of(request), read_view)
    )


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
