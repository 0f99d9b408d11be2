"""The `datagen` source: computes each row from its number, so a replay gives the same rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamhouse.connectors.datagen.field import total_rows
from streamhouse.connectors.datagen.field_options import fields_of
from streamhouse.errors import OptionError
from streamhouse.options import integer
from streamhouse.source import Lag, Offset
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

_MAX_BATCH = 2_000_000
_MIN_PARTITION = 250_000
_CHUNK = 262_144


@dataclass(frozen=True)
class Rows:
    """A partition of a batch: rows `first` to `last` (exclusive), and the clock of their rate.

    Row `i` is due `(i + 1 - base_rows) / rate` seconds after `base_ms` (epoch milliseconds).
    """

    first: int
    last: int
    base_rows: int
    base_ms: int


class DatagenSource:
    """A `Source` that generates rows at a steady rate.

    Options are Flink's: `rows-per-second` (10000), `number-of-rows` (unbounded), and
    `fields.<name>.*`, see `connectors.datagen.field_options`. The clock in the offset sets when
    each row is due, see `Rows`: a `TIMESTAMP` column has that time (less up to `max-past`), however
    late the row is generated. After a restart the clock starts again: no rows are generated for the
    downtime.
    """

    changelog = False
    ordered = False

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        self._rate = integer("rows-per-second", options.get("rows-per-second", "10000"), 1)
        self._fields = fields_of(columns, options)
        limit = options.get("number-of-rows")
        self._total = total_rows(
            self._fields, None if limit is None else integer("number-of-rows", limit, 0)
        )
        self._clock: tuple[int, int] | None = None
        if not columns:
            raise OptionError("datagen: the table has no physical column; declare one")
        self._schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in columns])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def bounded(self) -> bool:
        """Whether the rows end (`number-of-rows` or a sequence)."""
        return self._total is not None

    def initial_offset(self) -> Offset:
        return {}

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        done = int(start.get("rows", 0))
        now = time.time_ns() // 1_000_000
        if self._clock is None:
            self._clock = (done, now)
        base_rows, base_ms = self._clock
        due = base_rows + (now - base_ms) * self._rate // 1000
        due = min(due, done + min(max_rows or _MAX_BATCH, _MAX_BATCH))
        if self._total is not None:
            due = min(due, self._total)
        if due <= done:
            return start
        return {"rows": due, "base_rows": base_rows, "base_ms": base_ms}

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Rows]:
        first, last = int(start.get("rows", 0)), int(end.get("rows", 0))
        if last <= first:
            return []
        pieces = max(1, min(parallelism, (last - first) // _MIN_PARTITION))
        bounds = [first + (last - first) * i // pieces for i in range(pieces + 1)]
        clock = (int(end["base_rows"]), int(end["base_ms"]))
        return [Rows(a, b, *clock) for a, b in zip(bounds, bounds[1:], strict=False)]

    def read(self, partition: Rows) -> Iterator[pa.RecordBatch]:
        step = _CHUNK
        for first in range(partition.first, partition.last, step):
            numbers = np.arange(first, min(first + step, partition.last), dtype=np.int64)
            due_ms = partition.base_ms + (numbers + 1 - partition.base_rows) * 1000 // self._rate
            arrays = [field.values(numbers, due_ms) for field in self._fields]
            yield pa.record_batch(arrays, schema=self._schema)

    def committed(self, end: Offset) -> None:
        pass

    def finished(self, offset: Offset) -> bool:
        return self._total is not None and int(offset.get("rows", 0)) >= self._total

    def lag(self, offset: Offset) -> Lag | None:
        """The rows due but not generated yet, by the clock of `offset`; None before the first."""
        if not offset:
            return None
        now = time.time_ns() // 1_000_000
        due = int(offset["base_rows"]) + (now - int(offset["base_ms"])) * self._rate // 1000
        if self._total is not None:
            due = min(due, self._total)
        rows = max(0, due - int(offset["rows"]))
        return Lag(seconds=rows / self._rate, rows=rows)

    def close(self) -> None:
        pass
