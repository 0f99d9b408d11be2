"""The demo's page: a server that starts and ends with the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.waiting import DEADLINE_S

from streamhouse.demo.driver import DemoPage
from streamhouse.errors import StreamhouseError


def nothing() -> None:
    """What a demo does at each step, where nobody asks it to end."""


def test_the_page_is_served_until_the_demo_ends(shop: Any, tmp_path: Path) -> None:
    shop.sales()
    with DemoPage(shop.path, tmp_path, "shop.sales") as page:
        url = page.wait(nothing)
        assert "<title>Streamhouse</title>" in httpx.get(url, timeout=DEADLINE_S).text
        listed = httpx.get(f"{url}/views", timeout=DEADLINE_S).json()["views"]
        assert [view["name"] for view in listed] == ["shop.sales"]
        assert page.news() == f"Open {url}/#/views/shop.sales"
        assert page.news() is None
    assert page.url is None
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=DEADLINE_S)


def test_the_error_of_a_page_that_does_not_start_names_its_log(tmp_path: Path) -> None:
    with DemoPage(tmp_path / "nowhere", tmp_path, "shop.sales") as page:
        with pytest.raises(StreamhouseError, match=r"see .*page\.log"):
            page.wait(nothing)
        assert page.news() == f"the web page could not be started; see {tmp_path / 'page.log'}"
    assert "nowhere" in (tmp_path / "page.log").read_text()
