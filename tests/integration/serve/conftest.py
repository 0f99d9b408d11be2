from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

pytest.register_assert_rewrite("tests.integration.serve.browser")

from tests.integration.serve.browser import chromium  # noqa: E402


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened
