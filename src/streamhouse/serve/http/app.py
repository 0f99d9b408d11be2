"""Builds the FastAPI application of a server from its parts."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.monitoring.status import Statuses
from streamhouse.serve import errors
from streamhouse.serve.admission.fair_queue import (
    READERS,
    RequestQueues,
    ViewComputations,
    WarehouseThreads,
)
from streamhouse.serve.admission.response_memory import UnsentResponses
from streamhouse.serve.feeds.feed import Feed, FeedMemory
from streamhouse.serve.feeds.view_feed import open_served_view
from streamhouse.serve.http.metrics import Metrics
from streamhouse.serve.http.middleware import RequestMiddleware
from streamhouse.serve.http.models import DESCRIPTION, TAGS
from streamhouse.serve.http.routes import about, changes, page, pipelines, sql, views
from streamhouse.serve.http.routes.about import Health
from streamhouse.serve.pipelines.runner import Runner
from streamhouse.serve.pipelines.script_checks import ScriptChecks
from streamhouse.serve.queries.executor import QueryExecutor
from streamhouse.serve.settings import ServerSettings
from streamhouse.serve.streams.hub import Hub
from streamhouse.serve.views.served_view import ServedView, ViewCatalog
from streamhouse.work_folder import work_folder

ROUTERS = (
    about.router,
    views.router,
    views.history,
    changes.router,
    sql.router,
    pipelines.router,
    page.router,
)


def create_app(settings: ServerSettings) -> FastAPI:
    """Create the application; its `state` holds the parts that routes use.

    `settings`; `views`, the `ViewCatalog`; `hub`, the change streams; `request_queues`, in which
    requests wait; `threads`, which read the warehouse by the queue for small reads; `unsent`, the
    responses being sent; `health`, for probes; `queries`, which runs reads and SELECTs; `statuses`
    and `runner`, those of pipelines and their processes; `scripts`, which plans them; `metrics`;
    `streams`, the number of open ones.
    """
    app = FastAPI(
        title="Streamhouse",
        summary="Tables and views of a warehouse, and their changes as they happen.",
        description=DESCRIPTION,
        version=version("streamhouse"),
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    state = app.state
    state.settings = settings
    state.started = time.time()
    state.views = ViewCatalog(settings.views)
    state.request_queues = RequestQueues(settings)
    state.unsent = UnsentResponses(settings.unsent_bytes)
    state.threads = WarehouseThreads(settings.warehouse, state.request_queues.small, READERS)
    state.health = Health(settings.warehouse)
    state.hub = Hub(_opener(settings, state.request_queues.views), settings.streams)
    state.metrics = Metrics(state.hub.stats, state.request_queues.all, state.unsent)
    state.queries = QueryExecutor(
        settings, state.threads, state.request_queues, state.unsent, state.metrics
    )
    state.statuses = Statuses(settings.warehouse)
    state.runner = Runner(settings.warehouse)
    state.scripts = ScriptChecks(state.queries, settings.warehouse)
    state.streams = 0
    errors.install(app, settings.warehouse["warehouse"])
    for router in ROUTERS:
        app.include_router(router)
    if settings.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(settings.origin_set),
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match", "Last-Event-ID"],
            expose_headers=[
                "ETag",
                "Retry-After",
                "X-Streamhouse-Snapshot",
                "X-Streamhouse-Time",
                "X-Streamhouse-Truncated",
            ],
        )
    app.add_middleware(
        RequestMiddleware, settings=settings, metrics=state.metrics, unsent=state.unsent
    )
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    with work_folder("streamhouse-serve-") as folder:
        app.state.queries.folder = folder
        app.state.request_queues.views.loop = asyncio.get_running_loop()
        try:
            yield
        finally:
            await app.state.hub.close()
            await app.state.queries.close()
            app.state.threads.close()


def _opener(settings: ServerSettings, computations: ViewComputations) -> Any:
    """A function that opens the feed of a served view, each with its own `Warehouse` object."""
    memory = FeedMemory(settings.streams.table_bytes)

    def open_feed(view: ServedView) -> Feed:
        opened = Warehouse(settings.warehouse)
        feed = open_served_view(opened, view, memory, settings.read_limits)
        feed.computations = computations
        return feed

    return open_feed
