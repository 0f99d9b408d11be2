"""The `nexmark` connector."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamhouse.connectors.datagen.connector import GeneratedConnector, GeneratedSource
from streamhouse.connectors.datagen.random_streams import Disorder, Numbers
from streamhouse.connectors.nexmark.events import (
    DECLARED,
    NexmarkOptions,
    check_columns,
    event_columns,
)
from streamhouse.connectors.specs import arrow_schema
from streamhouse.source import Lag, Offset
from streamhouse.sql.plan import Column

_MAX_BATCH = 1_000_000


class NexmarkSource(GeneratedSource):
    """Generates the events of Nexmark; without a pace, as many as a batch takes."""

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        self._options = given = NexmarkOptions.parse(options)
        schema = arrow_schema(columns)

        def generated(numbers: Numbers, due_ms: Numbers) -> list[pa.Array]:
            return event_columns(given, schema, numbers, due_ms)

        super().__init__(schema, generated, given.rate, given.total, Disorder(seed=given.seed))

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        if self._options.paced:
            return super().latest_offset(start, max_rows)
        done = int(start.get("rows", 0))
        end = done + min(max_rows or _MAX_BATCH, _MAX_BATCH)
        end = end if self._total is None else min(end, self._total)
        if end <= done:
            return start
        # The clock of the first batch sets the times of all events.
        base_ms = int(start.get("base_ms", time.time_ns() // 1_000_000))
        return {"rows": end, "base_rows": 0, "base_ms": base_ms}

    def lag(self, offset: Offset) -> Lag | None:
        if self._options.paced or not offset:
            return super().lag(offset)
        return Lag(rows=None if self._total is None else self._total - int(offset["rows"]))


class _Nexmark(GeneratedConnector):
    name = "nexmark"
    summary = (
        "Generates the persons, auctions and bids of the benchmark Nexmark; a replayed micro-batch "
        "has the same events."
    )
    options = DECLARED.options
    without_effect = DECLARED.without_effect
    scan_note = "all events; needs `events.num`"

    def generated(
        self,
        columns: Sequence[Column],
        options: Mapping[str, str],
        names: Sequence[str] | None = None,
    ) -> NexmarkSource:
        check_columns(columns)
        return NexmarkSource([c for c in columns if names is None or c.name in names], options)


CONNECTOR = _Nexmark()
