"""Filter conditions in the Rust core's form: `{"method": …, "field": …, "literals": […]}`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Filter = Mapping[str, Any]
"""A comparison of one column, or a combination of several `children`."""


def all_of(conditions: Sequence[Filter]) -> Filter | None:
    """The condition that all of these hold; None without any."""
    if len(conditions) > 1:
        return {"method": "and", "children": list(conditions)}
    return conditions[0] if conditions else None


def only_on(condition: Filter | None, allowed: Callable[[str], bool]) -> Filter | None:
    """The part of a condition on `allowed` columns only, which passes the same rows or more."""
    if condition is None:
        return None
    if condition["method"] == "and":
        children = [only_on(child, allowed) for child in condition["children"]]
        return all_of([child for child in children if child is not None])
    return condition if all(map(allowed, _columns(condition))) else None


def _columns(condition: Filter) -> Iterator[str]:
    if "field" in condition:
        yield condition["field"]
    for child in condition.get("children", ()):
        yield from _columns(child)
