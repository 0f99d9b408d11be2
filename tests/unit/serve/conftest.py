"""Fixture that starts servers, and stops them at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from tests.serving import Serving, servers

Serve: TypeAlias = Callable[..., Serving]


@pytest.fixture
def serve(shop: Any) -> Iterator[Serve]:
    """Starts servers over the warehouse of `shop`, with other settings if they are given."""
    with servers(shop.path) as start:
        yield start
