"""Stores computed columns in a Paimon table's options, in the format of Paimon's Flink catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from streamhouse.sql.plan import Column, ComputedColumn

_KEY = re.compile(r"^schema\.(\d+)\.(name|expr|data-type)$")


def with_computed(
    options: Mapping[str, str], columns: Sequence[Column], computed: Sequence[ComputedColumn]
) -> dict[str, str]:
    """The table's options, with its computed columns added."""
    result = dict(options)
    for number, column in enumerate(computed, start=len(columns)):
        result[f"schema.{number}.name"] = column.name
        result[f"schema.{number}.expr"] = column.expression
    return result


def computed_of(
    options: Mapping[str, str],
) -> tuple[dict[str, str], tuple[ComputedColumn, ...]]:
    """The table's other options, and the computed columns that its options define."""
    parts: dict[int, dict[str, str]] = {}
    rest = {}
    for key, value in options.items():
        match = _KEY.match(key)
        if match is None:
            rest[key] = value
        else:
            parts.setdefault(int(match[1]), {})[match[2]] = value
    computed = [
        ComputedColumn(part["name"], part["expr"])
        for _, part in sorted(parts.items())
        if "name" in part and "expr" in part
    ]
    return rest, tuple(computed)
