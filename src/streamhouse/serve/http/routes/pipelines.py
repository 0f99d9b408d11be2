"""`/pipelines` and `/scripts/check`.

All routes need a token that sees every view, if the server has tokens. Logs and all changes need
--allow-run and permission to run pipelines; so does everything if the server has a views file.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from streamhouse.serve.admission.fair_queue import client_of
from streamhouse.serve.errors import Problem
from streamhouse.serve.http.access_control import MayRead, check_body, may
from streamhouse.serve.http.models import (
    GraphModel,
    InvalidScript,
    PipelineBody,
    PipelineList,
    PipelineModel,
    ScriptBody,
    StartBody,
    ValidScript,
    error_responses,
)
from streamhouse.serve.http.routes.parameters import KNOWN_PARAMETERS, state
from streamhouse.serve.pipelines.listing import all_pipelines, described
from streamhouse.serve.pipelines.runner import Runner
from streamhouse.serve.settings import ServerSettings
from streamhouse.serve.tokens import RUN, Scope

T = TypeVar("T")
_SVG_HEADERS = {
    # The drawing contains text of the script, so browsers must run no code in it.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
}

Name = Annotated[str, Path(max_length=255, description="The pipeline's name.")]


router = APIRouter(tags=["pipelines"], dependencies=KNOWN_PARAMETERS)


async def read(request: Request, function: Callable[[], T]) -> T:
    """Run a function that reads the warehouse in a thread of the queue for small reads."""
    result: T = await state(request).threads.run(client_of(request), function)
    return result


def sees_pipelines(request: Request, scope: Scope) -> bool:
    """Whether a client may see the pipelines of the warehouse."""
    return _sees_views(scope) and _serves_all(request, scope)


def _sees_views(scope: Scope) -> bool:
    return bool({"*", "*.*"} & set(scope.views))


def _serves_all(request: Request, scope: Scope) -> bool:
    settings: ServerSettings = request.app.state.settings
    return settings.views is None or (settings.allow_run and scope.may(RUN))


async def _sees_all(request: Request, scope: MayRead) -> Scope:
    if not _sees_views(scope):
        raise Problem(
            "forbidden",
            "pipelines name tables of the whole warehouse, but this token sees only some of its "
            "views; use a token that sees all of them",
        )
    if not _serves_all(request, scope):
        raise Problem(
            "forbidden",
            "pipelines and scripts name tables of the whole warehouse, but this server serves only "
            "some of its views; start it with --allow-run and, if it has tokens, use one that may "
            "run pipelines",
        )
    return scope


async def _may_run(request: Request, scope: MayRead) -> bool:
    """Whether the client may execute code here, as importing modules of Python functions does."""
    settings: ServerSettings = request.app.state.settings
    return settings.allow_run and scope.may(RUN)


SEES_ALL = [Depends(_sees_all)]
MAY_RUN = [Depends(may(RUN)), Depends(_sees_all)]
MayRunCode = Annotated[bool, Depends(_may_run)]
_CHANGED: dict[str, Any] = {
    "dependencies": MAY_RUN,
    "response_model": PipelineModel,
    "responses": error_responses("bad_request", "not_found", "conflict"),
}
"""Arguments shared by the routes that change an existing pipeline."""


@router.get(
    "/pipelines",
    summary="All pipelines",
    dependencies=SEES_ALL,
    response_model=PipelineList,
    responses=error_responses("bad_request"),
)
async def pipelines(request: Request) -> Any:
    """All pipelines of the warehouse, running and ended, with their throughput and lag."""
    return {"pipelines": await read(request, lambda: all_pipelines(state(request).statuses))}


@router.get(
    "/pipelines/{name}",
    summary="One pipeline",
    dependencies=SEES_ALL,
    response_model=PipelineModel,
    responses=error_responses("bad_request", "not_found"),
)
async def pipeline(request: Request, name: Name) -> Any:
    """One pipeline, as in the list of all."""
    return await read(request, lambda: _find(request, name))


@router.get(
    "/pipelines/{name}/graph",
    summary="The graph of a pipeline",
    dependencies=SEES_ALL,
    response_model=GraphModel,
    responses=error_responses("bad_request", "not_found"),
)
async def graph(request: Request, name: Name, may_run_code: MayRunCode) -> Any:
    """The tables and queries of a pipeline's script, and the data flow between them."""
    return (await _draw(request, name, may_run_code))["graph"]


@router.get(
    "/pipelines/{name}/graph.svg",
    summary="The graph of a pipeline, drawn",
    dependencies=SEES_ALL,
    response_class=Response,
    responses={
        200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}},
        **error_responses("bad_request", "not_found"),
    },
)
async def drawing(request: Request, name: Name, may_run_code: MayRunCode) -> Response:
    """The graph as SVG; it follows the viewer's dark or light mode."""
    drawn = await _draw(request, name, may_run_code)
    return Response(drawn["svg"], media_type="image/svg+xml", headers=_SVG_HEADERS)


@router.post(
    "/scripts/check",
    summary="Check a script",
    dependencies=SEES_ALL,
    response_model=ValidScript | InvalidScript,
    responses=error_responses("bad_request", "too_large"),
)
async def check(request: Request, body: ScriptBody, may_run_code: MayRunCode) -> Any:
    """Plan a script and return its graph, without creating anything or connecting to databases.

    A script with Python functions needs `--allow-run` and a token that may run pipelines, since
    their modules are imported.
    """
    return await state(request).scripts.check(client_of(request), body.sql, may_run_code)


@router.post(
    "/pipelines",
    summary="Start a pipeline",
    status_code=201,
    dependencies=[*MAY_RUN, Depends(check_body)],
    response_model=PipelineModel,
    responses=error_responses("bad_request", "conflict", "too_large", "unsupported"),
)
async def start(request: Request, body: PipelineBody) -> Any:
    """Run a script as a process that outlives the server, until it is stopped.

    If a pipeline of that name has ended, this script replaces its script. `****`, by which
    displayed scripts mask a secret, stands for the same secret of the previous script. Needs
    `--allow-run`.
    """
    result = await state(request).scripts.check(client_of(request), body.sql, functions=True)
    if not result["ok"]:
        error = result["error"]
        message, line, column = error["message"], error["line"], error["column"]
        raise Problem("invalid", message, line=line, column=column)
    options = (body.from_scratch, body.keep_targets)
    return await _change(
        request, body.name, lambda runner: runner.start(body.name, body.sql, *options)
    )


@router.post("/pipelines/{name}/start", summary="Start a pipeline again", **_CHANGED)
async def start_again(request: Request, name: Name, body: StartBody | None = None) -> Any:
    """Restart a pipeline that has ended, with its previous script, from its checkpoints.

    The body is optional. With `from_scratch` the queries start from the beginning instead.
    """
    options = (body.from_scratch, body.keep_targets) if body is not None else ()
    return await _change(request, name, lambda runner: runner.start_again(name, *options))


@router.delete("/pipelines/{name}", summary="Stop a pipeline", status_code=202, **_CHANGED)
async def stop(request: Request, name: Name) -> Any:
    """Ask a pipeline that a server started to end between two batches; does not wait for it."""
    return await _change(request, name, lambda runner: runner.stop(name))


@router.post("/pipelines/{name}/forget", summary="Forget a pipeline", **_CHANGED)
async def forget(request: Request, name: Name) -> Any:
    """Delete the script, log and status of a pipeline that has ended; returns its last status.

    Its tables and checkpoints stay, so the same script resumes where it stopped.
    """

    def forget_and_return() -> dict[str, Any]:
        record = _find(request, name)
        state(request).runner.forget(name)
        return record

    return await read(request, forget_and_return)


@router.get(
    "/pipelines/{name}/log",
    summary="The log of a pipeline",
    dependencies=MAY_RUN,
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **error_responses("bad_request", "not_found", "conflict"),
    },
)
async def log(
    request: Request,
    name: Name,
    lines: Annotated[int, Query(ge=1, le=10_000, description="The maximum number of lines.")] = 200,
) -> Response:
    """The last lines that a pipeline, started by a server, has written."""
    text = await read(request, lambda: state(request).runner.log(name, lines))
    return Response(text, media_type="text/plain")


def _find(request: Request, name: str) -> dict[str, Any]:
    statuses = state(request).statuses
    return described(statuses, statuses.find(name))


async def _change(request: Request, name: str, action: Callable[[Runner], None]) -> dict[str, Any]:
    """The pipeline's status after calling `action` with the runner."""

    def control_and_describe() -> dict[str, Any]:
        action(state(request).runner)
        return _find(request, name)

    return await read(request, control_and_describe)


async def _draw(request: Request, name: str, may_run_code: bool) -> dict[str, Any]:
    script = (await read(request, lambda: _find(request, name)))["script"]
    if script is None:
        raise Problem("not_found", f"the script of pipeline '{name}' is unknown")
    client = client_of(request)
    drawn: dict[str, Any] = await state(request).scripts.draw(client, script, may_run_code)
    if not drawn["ok"]:
        raise Problem("invalid", f"the script cannot be drawn: {drawn['error']['message']}")
    return drawn
