"""Partial aggregation: combines the rows of each key before they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamhouse.sql.options.merge_functions import merge_function
from streamhouse.sql.plan import Column

_COMBINERS = {"sum": "sum", "min": "min", "max": "max"}
"""DuckDB's aggregate function for each merge function that may be applied in parts."""


@dataclass(frozen=True)
class PartialAggregation:
    """How the rows of a batch are combined.

    `keys` is the target's primary key, `functions` the other columns with their functions.
    """

    keys: tuple[str, ...]
    functions: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls, columns: Sequence[Column], primary_key: Sequence[str], options: Mapping[str, str]
    ) -> PartialAggregation | None:
        """How to combine rows of a table; None if it must get all rows, in their order."""
        if options.get("merge-engine") != "aggregation" or not primary_key:
            return None
        if any(key.endswith("sequence.field") or "sequence-group" in key for key in options):
            return None
        if "rowkind.field" in options:
            return None
        functions = []
        for column in columns:
            if column.name in primary_key:
                continue
            name = merge_function(options, column.name)
            if name not in _COMBINERS:
                return None
            functions.append((column.name, _COMBINERS[name]))
        return cls(tuple(primary_key), tuple(functions))

    def sql(self, relation: str, columns: Sequence[str]) -> str:
        """The DuckDB SELECT that pre-aggregates the rows of a relation."""
        functions = dict(self.functions)
        parts = [
            f'{functions[name]}("{name}") AS "{name}"' if name in functions else f'"{name}"'
            for name in columns
        ]
        keys = ", ".join(f'"{key}"' for key in self.keys)
        return f"SELECT {', '.join(parts)} FROM {relation} GROUP BY {keys}"
