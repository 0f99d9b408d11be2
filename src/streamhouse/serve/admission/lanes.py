"""Who is served when: every request that reads the warehouse takes its turn in one of these lanes.

docs/decisions/130-requests-take-turns.md says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from streamhouse.serve.admission.fair_queue import Lane

if TYPE_CHECKING:
    from streamhouse.serve.settings import ServerSettings

CLIENT = "streamhouse.client"
"""Is in the scope of a request: whose it is, by token or else by address."""
READERS = 4
WAIT_S = 10.0
"""How long a request waits for a thread."""
_WAITING = 256
_QUERIES_WAITING = 64
_SCRIPTS_WAITING = 32


class Admission:
    """The lanes of one server.

    `small` is for what a thread of the server does in moments. `heavy` is for queries and large
    answers, which run in processes; while all of its places are taken, `light` lets one query more
    try whether it is done soon. `scripts` is for scripts that are checked.
    """

    def __init__(self, settings: ServerSettings) -> None:
        shared = len(settings.tokens) > 1
        self.small = Lane("reads", READERS, _WAITING, shared)
        self.light = Lane("short queries", 1, _QUERIES_WAITING)
        self.heavy = Lane("queries", settings.queries, _QUERIES_WAITING, shared)
        self.scripts = Lane("checks of scripts", 1, _SCRIPTS_WAITING)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self.small, self.light, self.heavy, self.scripts


def client_of(connection: HTTPConnection) -> str:
    """Whose request it is, for fairness: a known token's, else an address's."""
    client: str = connection.scope.get(CLIENT, "")
    return client
