"""`/views/{name}/changes`: initial state, then each change; as server-sent events or WebSocket.

The hub encodes each event once for all subscribers. A subscriber that does not read is disconnected
at the latest when its backlog exceeds the queue limits.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Header, Query, Request, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from streamhouse.close_matches import nearest
from streamhouse.errors import (
    BusyError,
    DataLossError,
    ExpiredError,
    OptionError,
    SlowReaderError,
    StreamhouseError,
    TableError,
)
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.admission.fair_queue import client_of
from streamhouse.serve.errors import Problem, problem_of
from streamhouse.serve.formats.cells import compact
from streamhouse.serve.http.access_control import MayRead, subprotocol
from streamhouse.serve.http.models import error_responses
from streamhouse.serve.http.responses import HEAD, send_start
from streamhouse.serve.http.routes.parameters import (
    DECLARED,
    KNOWN_PARAMETERS,
    Columns,
    ViewName,
    names_of,
    state,
)
from streamhouse.serve.queries import view_details
from streamhouse.serve.streams import event
from streamhouse.serve.streams.subscriber import Subscription
from streamhouse.serve.tokens import Scope as Permissions
from streamhouse.serve.views.served_view import ServedView

router = APIRouter(tags=["changes"], dependencies=KNOWN_PARAMETERS)

GOING_AWAY, POLICY, FAILED = 1001, 1008, 1011
TRY_AGAIN = 1013
GONE, OVERFLOW, EXPIRED = 4404, 4408, 4410
_ABORT_S = 1.0
"""How long a subscriber that was too slow still has to read the reason before the abort."""
_MAX_MESSAGES = 100
_REASON_BYTES = 120

LastId = Annotated[str | None, Query(**DECLARED["last_id"])]
LastEventId = Annotated[str | None, Header(**DECLARED["last_event_id"])]

_EVENTS = """
`event: snapshot` with all rows, then an `event: changes` for each commit:
`data: {"snapshot":17,"time":"…Z","rows":[{"rowkind":"+U", …columns}],"more":false}`. Row kinds are
`+I`, `-U` (the old row), `+U` (the new row) and `-D`. A large event is sent in parts, of which all
but the last have `"more":true` and no id. `event: heartbeat` is sent while nothing changes. The
last event is `overflow` if the subscriber reads too slowly, or `error`, with the body of an error
response (`data: {"error":{"code":…,"message":…}}`), if the view was dropped (`not_found`), the
subscriber must start again (`expired`), or its client has more than its share of the streams
(`busy`). The same path accepts WebSockets: the messages are the same
objects, with `type` and `id` in them, and a code and a message close the connection.
"""


@router.get(
    "/views/{name}/changes",
    summary="The rows of a view, then each change",
    response_class=Response,
    responses={
        200: {
            "description": _EVENTS,
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **error_responses("bad_request", "not_found", "expired", "too_large"),
    },
)
async def events(
    request: Request,
    scope: MayRead,
    name: ViewName,
    last_id: LastId = None,
    columns: Columns = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Server-sent events: all rows, then each change.

    After a disconnect, resume with `last_id`. Status 410 means that this is no longer possible:
    start again without it.
    """
    subscription = await _subscribe(request, scope, name, last_event_id or last_id, columns)
    return EventStream(subscription, state(request))


@router.websocket("/views/{name}/changes")
async def messages(
    websocket: WebSocket,
    scope: MayRead,
    name: ViewName,
    last_id: LastId = None,
    columns: Columns = None,
    last_event_id: LastEventId = None,
) -> None:
    """The same events as WebSocket messages."""
    wanted = _subscribe(websocket, scope, name, last_event_id or last_id, columns)
    # A client that disconnects before cancels the computation of its first rows.
    subscription = await _first(wanted, _disconnected(websocket.receive))
    if subscription is None:
        return
    parts = state(websocket)
    with _counted(parts):
        try:
            await websocket.accept(subprotocol(websocket))
            await _send_messages(websocket, subscription, parts)
        finally:
            await subscription.close()


async def _subscribe(
    connection: Request | WebSocket,
    scope: Permissions,
    name: str,
    last_id: str | None,
    columns: str | None,
) -> Subscription:
    parts = state(connection)
    selected = names_of("columns", columns)

    def find_view(warehouse: Warehouse) -> ServedView:
        view: ServedView = parts.views.find(warehouse, name, scope)
        return view if selected is None else _with_columns(warehouse, view, selected)

    client = client_of(connection)
    view = await parts.threads.read(client, find_view)
    try:
        subscription: Subscription = await parts.hub.subscribe(view, last_id, client)
    except ExpiredError as error:
        details = {"restart": _address(name, columns), "earliest": error.earliest}
        raise Problem("expired", str(error), None, **details) from None
    return subscription


def _address(name: str, columns: str | None) -> str:
    """The path that starts the stream of a view from its current state."""
    query = "" if columns is None else f"?{urlencode({'columns': columns})}"
    return f"/views/{quote(name, safe='$')}/changes{query}"


def _with_columns(warehouse: Warehouse, view: ServedView, selected: tuple[str, ...]) -> ServedView:
    """The view with the wanted columns only, in the view's order, so that streams are shared."""
    shape = view_details.schema(warehouse, view)
    names = [column["name"] for column in shape["columns"]]
    for column in selected:
        if column not in names:
            raise OptionError(
                f"parameter 'columns': there is no column '{column[:80]}'; {nearest(column, names)}"
            )
    columns_kept = tuple(name for name in names if name in selected)
    return view if len(columns_kept) == len(names) else replace(view, columns=columns_kept)


@contextlib.contextmanager
def _counted(parts: Any) -> Iterator[None]:
    """Count a stream while it is open; shutdown waits until the count is 0."""
    parts.streams += 1
    try:
        yield
    finally:
        parts.streams -= 1


class EventStream(StreamingResponse):
    """The events of a subscription as `text/event-stream`."""

    media_type = "text/event-stream"

    def __init__(self, subscription: Subscription, parts: Any) -> None:
        self._subscription = subscription
        self._parts = parts
        # Proxies must not buffer the events.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._blocks(), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with _counted(self._parts), _aborted_if_stuck(self._subscription, scope):
            try:
                if HEAD in scope:
                    await send_start(self, scope, send)
                else:
                    await super().__call__(scope, receive, send)
            finally:
                await self._subscription.close()

    async def _blocks(self) -> AsyncIterator[bytes]:
        warehouse = self._parts.settings.warehouse["warehouse"]
        try:
            async for message in self._subscription:
                yield message.sse
        except SlowReaderError as error:
            yield event.overflow(str(error), error.last_id).sse
        except StreamhouseError as error:
            # The status has been sent, so the error goes into an event.
            body = problem_of(error, warehouse).body
            yield f"event: error\ndata: {compact(body)}\n\n".encode()


async def _send_messages(websocket: WebSocket, subscription: Subscription, parts: Any) -> None:
    """Send all events, then close the WebSocket with a code and the reason why they ended."""

    async def stream() -> None:
        code, reason = GOING_AWAY, "the server is shutting down"
        try:
            async for message in subscription:
                await websocket.send_text(message.text)
        except SlowReaderError as error:
            code, reason = OVERFLOW, str(error)
        except DataLossError as error:
            code, reason = EXPIRED, str(error)
        except TableError as error:
            code, reason = GONE, str(error)
        except BusyError as error:
            code, reason = TRY_AGAIN, str(error)
        except StreamhouseError as error:
            warehouse = parts.settings.warehouse["warehouse"]
            code, reason = FAILED, problem_of(error, warehouse).message
        await websocket.close(code, _short(reason))

    async def silent() -> None:
        # Subscribers need not send anything; close on a client that keeps sending messages.
        for _ in range(_MAX_MESSAGES):
            if (await websocket.receive())["type"] == "websocket.disconnect":
                return
        await websocket.close(POLICY, "this path accepts no messages")

    with (
        contextlib.suppress(WebSocketDisconnect),
        _aborted_if_stuck(subscription, websocket.scope),
    ):
        await _first(stream(), silent())


@contextlib.contextmanager
def _aborted_if_stuck(subscription: Subscription, scope: Scope) -> Iterator[None]:
    """Abort the connection of a slow subscriber that does not even read the reason."""

    async def abort() -> None:
        await subscription.too_slow.wait()
        await asyncio.sleep(_ABORT_S)
        scope.get("streamhouse.abort", lambda: None)()

    task = asyncio.ensure_future(abort())
    try:
        yield
    finally:
        task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def _first(*steps: Coroutine[Any, Any, Any]) -> Any:
    """Run all steps until the first ends, cancel the others, and return the first one's result."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return next(task for task in tasks if task in done).result()


def _short(reason: str) -> str:
    """A close reason cut to fit into a WebSocket frame, which allows 123 bytes."""
    return reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore")
