"""The request queues of a server: every request that reads the warehouse waits in one of them.

docs/decisions/130-fair-request-queues.md says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from streamhouse.serve.admission.fair_queue import FairQueue
from streamhouse.serve.admission.view_computations import ViewComputations

if TYPE_CHECKING:
    from streamhouse.serve.settings import ServerSettings

CLIENT = "streamhouse.client"
"""Key in the ASGI scope of a request: its client, which is a token or else an address."""
READERS = 4
WAIT_S = 10.0
"""How long a request waits for a thread."""
_WAITING = 256
_QUERIES_WAITING = 64
_SCRIPTS_WAITING = 32


class RequestQueues:
    """The queues of one server.

    `small` is for short reads, which run in threads of the server. `heavy` is for queries and large
    responses, which run in worker processes. While all slots of `heavy` are taken, `light` lets one
    more query run for a second, in case it is short. `scripts` is for checking scripts. `views` has
    slots for the computations of views for change streams.
    """

    def __init__(self, settings: ServerSettings) -> None:
        shared = len(settings.tokens) > 1
        self.small = FairQueue("reads", READERS, _WAITING, shared)
        self.light = FairQueue("short queries", 1, _QUERIES_WAITING)
        self.heavy = FairQueue("queries", settings.queries, _QUERIES_WAITING, shared)
        self.scripts = FairQueue("checks of scripts", 1, _SCRIPTS_WAITING)
        streams = settings.streams.max_streams
        self.views = ViewComputations(
            FairQueue("short computations of streamed views", READERS, streams, shared),
            FairQueue("computations of streamed views", settings.queries, streams, shared),
        )

    @property
    def all(self) -> tuple[FairQueue, ...]:
        views = self.views
        return self.small, self.light, self.heavy, self.scripts, views.short, views.long


def client_of(connection: HTTPConnection) -> str:
    """The client by which requests are queued: a known token, else an address."""
    client: str = connection.scope.get(CLIENT, "")
    return client
