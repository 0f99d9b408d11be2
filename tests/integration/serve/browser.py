"""Headless Chromium; collects a page's errors and the hosts that it contacts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.waiting import DEADLINE_S

WAIT_MS = 1_000 * DEADLINE_S
WIDE = (1200, 750)
PHONE = (390, 780)
_WATCH = """
  window.flashed = [];
  const note = ({ dataset, textContent }) => {
    if (dataset?.flash) window.flashed.push(`${dataset.flash} ${textContent}`);
  };
  new MutationObserver((changes) => {
    for (const { type, target, addedNodes } of changes) {
      if (type === "attributes") note(target);
      addedNodes.forEach(note);
    }
  }).observe(document, { subtree: true, childList: true, attributeFilter: ["data-flash"] });
"""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of the system; playwright downloads none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.fail("Chromium is not installed; run `make setup`, or `apt-get install chromium`")
    arguments = ["--disable-dev-shm-usage", "--disable-gpu"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@contextlib.contextmanager
def visit(
    browser: Browser,
    url: str,
    size: tuple[int, int] = WIDE,
    dark: bool = False,
    expected: str | None = None,
) -> Iterator[Page]:
    """The page, in a window of its own.

    Fails at the end if the console has errors that do not match `expected`, or if the page sent
    requests to other hosts.
    """
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        locale="en-US",
        timezone_id="UTC",
    )
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(_WATCH)
    page = context.new_page()
    errors: list[str] = []
    asked: set[str] = set()
    page.on(
        "console", lambda answers: errors.extend([answers.text] if answers.type == "error" else [])
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    page.on("websocket", lambda socket: asked.add(urlsplit(socket.url).netloc))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    unexpected = [text for text in errors if not (expected and re.search(expected, text))]
    assert unexpected == []
    assert asked == {urlsplit(url).netloc}


def flashed(page: Page, text: str) -> None:
    """Wait until a cell or a row has lit up: `up`, `down`, `set` or `new`, and its text."""
    page.wait_for_function("text => window.flashed.includes(text)", arg=text)
