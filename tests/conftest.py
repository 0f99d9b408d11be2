"""The order of the tests: the longest files come first, so that none is left for the end."""

from __future__ import annotations

import pytest

LONGEST = (
    "integration/test_docs.py",
    "runtime/test_membership.py",
    "runtime/test_crash.py",
    "runtime/test_run.py",
    "integration/test_benchmarks.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get("/".join(item.path.parts[-2:]), len(places)))
