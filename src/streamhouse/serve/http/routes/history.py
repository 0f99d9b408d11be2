"""`/views/{name}/snapshots`, `/schema`, `/options`, `/files` and `/tags`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streamhouse.serve.admission.fair_queue import client_of
from streamhouse.serve.http.access_control import MayRead
from streamhouse.serve.http.models import (
    FilesResponse,
    OptionsResponse,
    SchemaResponse,
    SnapshotsResponse,
    TagsResponse,
)
from streamhouse.serve.http.openapi import error_responses
from streamhouse.serve.http.responses import json_response
from streamhouse.serve.http.routes.parameters import ViewName, check_parameters, state
from streamhouse.serve.queries import view_details

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.auth.scope import Scope
    from streamhouse.serve.views.served_view import ServedView

router = APIRouter(
    tags=["history"], responses=error_responses("bad_request", "not_found", "expired")
)

Json = dict[str, Any]
Count = Annotated[int, Query(description="The maximum number of entries.", ge=1, le=10_000)]


@router.get(
    "/views/{name}/snapshots", summary="Snapshots, newest first", response_model=SnapshotsResponse
)
async def snapshots(
    request: Request, scope: MayRead, name: ViewName, limit: Count = 100
) -> Response:
    """The snapshots that have not expired, and can be read with `as_of` or by `/changes`."""
    check_parameters(request, "limit")
    return await _respond(
        request, scope, name, lambda warehouse, view: view_details.snapshots(warehouse, view, limit)
    )


@router.get("/views/{name}/schema", summary="Columns and keys", response_model=SchemaResponse)
async def schema(request: Request, scope: MayRead, name: ViewName) -> Response:
    """The current columns and keys, and when the schema was changed."""
    check_parameters(request)
    return await _respond(request, scope, name, view_details.schema)


@router.get("/views/{name}/options", summary="Options", response_model=OptionsResponse)
async def options(request: Request, scope: MayRead, name: ViewName) -> Response:
    """The options of the table behind a view; secret values are masked with stars."""
    check_parameters(request)
    return await _respond(request, scope, name, view_details.options)


@router.get("/views/{name}/files", summary="Data files", response_model=FilesResponse)
async def files(request: Request, scope: MayRead, name: ViewName, limit: Count = 1_000) -> Response:
    """The data files of the newest snapshot."""
    check_parameters(request, "limit")
    return await _respond(
        request, scope, name, lambda warehouse, view: view_details.files(warehouse, view, limit)
    )


@router.get("/views/{name}/tags", summary="Tags", response_model=TagsResponse)
async def tags(request: Request, scope: MayRead, name: ViewName) -> Response:
    """The tags, each usable as `as_of`."""
    check_parameters(request)
    return await _respond(request, scope, name, view_details.tags)


async def _respond(
    request: Request, scope: Scope, name: str, describe: Callable[[Warehouse, ServedView], Json]
) -> Response:
    catalog = state(request).views

    def read_view(warehouse: Warehouse) -> Json:
        return describe(warehouse, catalog.find(warehouse, name, scope))

    return json_response(
        request, await state(request).warehouse_pool.run(client_of(request), read_view)
    )
