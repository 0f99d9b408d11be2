"""`/health` and `/metrics`."""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from streamhouse.errors import StreamhouseError
from streamhouse.options import hide_secrets
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.admission.fair_queue import client_of
from streamhouse.serve.errors import Problem
from streamhouse.serve.http.access_control import MayRead, token_scope
from streamhouse.serve.http.metrics import CONTENT_TYPE
from streamhouse.serve.http.models import HealthResponse, error_responses
from streamhouse.serve.http.routes.parameters import KNOWN_PARAMETERS, state
from streamhouse.serve.http.routes.pipelines import read, sees_pipelines
from streamhouse.serve.pipelines.listing import all_pipelines
from streamhouse.serve.settings import ServerSettings
from streamhouse.serve.tokens import EVERYTHING, RUN, Scope

OK = "ok"


class Health:
    """Checks whether the warehouse can be listed; use it on the event loop.

    The check takes no slot of a queue, so that probes are answered while all readers are busy.
    Probes need no token, so however many there are, only one check runs at a time.
    """

    def __init__(self, warehouse: Mapping[str, str]) -> None:
        self._options = dict(warehouse)
        self._check: asyncio.Future[str] | None = None

    async def status(self) -> str:
        """`ok`, or a description of the failure."""
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(asyncio.to_thread(self._check_warehouse))
        return await asyncio.shield(self._check)

    def _check_warehouse(self) -> str:
        try:
            warehouse = Warehouse(self._options)
            # The catalog lists a missing local warehouse as one without databases.
            if is_local(warehouse.path) and not os.path.isdir(local_path(warehouse.path)):
                raise FileNotFoundError(warehouse.path)
            warehouse.databases()
            return OK
        except Exception as error:  # noqa: BLE001 - whatever it is, the warehouse is not well
            LOGGER.warning("the warehouse cannot be read: %s", type(error).__name__)
            return f"cannot be read: {type(error).__name__}"


router = APIRouter(tags=["server"])


@router.get(
    "/health",
    summary="Health of the server",
    response_model=HealthResponse,
    responses={503: {"model": HealthResponse, "description": "The warehouse cannot be read."}},
)
async def health(request: Request) -> Response:
    """`ok` as long as the warehouse can be listed. For probes, so it needs no token.

    If the server has tokens, only clients with a token get the other keys.
    """
    parts = state(request)
    settings: ServerSettings = parts.settings
    scope = token_scope(settings, request) if settings.tokens else EVERYTHING
    status = await parts.health.status()
    healthy = status == OK
    body: dict[str, object] = {"status": "ok" if healthy else "failing"}
    body["token_needed"] = bool(settings.tokens)
    if scope is not None:
        body |= {
            "warehouse": status,
            "views": await _view_count(request, scope) if healthy else None,
            "uptime_seconds": round(time.time() - parts.started, 3),
            "allow_run": settings.allow_run and scope.may(RUN),
            "sees_pipelines": sees_pipelines(request, scope),
            "limits": {
                "query_seconds": settings.query_s,
                "query_rows": settings.query_rows,
            },
            "version": request.app.version,
        }
    return JSONResponse(body, 200 if healthy else 503)


@router.get(
    "/metrics",
    dependencies=KNOWN_PARAMETERS,
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"description": "Counters as text.", "content": {"text/plain": {}}},
        **error_responses("bad_request"),
    },
)
async def metrics(request: Request, scope: MayRead) -> Response:
    """Requests, streams, queries and pipelines; only what the token may see."""
    pipelines: list[dict[str, Any]] = []
    if sees_pipelines(request, scope):
        try:
            pipelines = await read(request, lambda: all_pipelines(state(request).statuses))
        except Exception as error:  # noqa: BLE001  # the server's own metrics are known
            LOGGER.warning("the metrics of pipelines are unknown: %s", hide_secrets(str(error)))
    return Response(state(request).metrics.text(scope, pipelines), media_type=CONTENT_TYPE)


async def _view_count(request: Request, scope: Scope) -> int | None:
    """The number of views; None if the server is too busy to count them, or counting fails."""
    parts = state(request)
    with contextlib.suppress(Problem, StreamhouseError):
        views = await parts.threads.read(
            client_of(request), lambda warehouse: parts.views.list_views(warehouse, scope)
        )
        return len(views)
    return None
