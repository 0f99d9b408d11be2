"""Fixtures that start servers, and stop them at the end of a test."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest
from tests.processes import QueryParent
from tests.serving import Serving, servers

from streamhouse.serve.queries import fork_server

Serve: TypeAlias = Callable[..., Serving]


start_fork_server = fork_server.start_fork_server
"""As a server starts the parent of its query processes."""


@pytest.fixture(scope="module", autouse=True)
def forked_workers() -> Iterator[None]:
    """The processes of servers are forks: to start Python takes 0.7 s of a processor."""

    async def start(control: socket.socket) -> QueryParent:
        return QueryParent(control)

    with patch.object(fork_server, "start_fork_server", start):
        yield


@pytest.fixture
def serve(shop: Any) -> Iterator[Serve]:
    """Starts servers over the warehouse of `shop`, with other settings if they are given."""
    with servers(shop.path) as start:
        yield start
