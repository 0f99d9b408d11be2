"""Fixtures that start servers, and stop them at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest
from tests.processes import PRELOADED
from tests.serving import Serving, servers

from streamhouse.serve.queries import worker

Serve: TypeAlias = Callable[..., Serving]


@pytest.fixture(scope="module", autouse=True)
def forked_workers() -> Iterator[None]:
    """The processes of servers are forks of the process of which tests make others, too."""
    with patch.object(worker, "PRELOADED", PRELOADED):
        yield


@pytest.fixture
def serve(shop: Any) -> Iterator[Serve]:
    """Starts servers over the warehouse of `shop`, with other settings if they are given."""
    with servers(shop.path) as start:
        yield start
