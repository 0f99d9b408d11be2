"""Watermarks of a view's inputs: computed on the driver, and stored in the offsets of batches.

The part `watermark` of an offset has `at`, the watermark of the view after the batch, `final`, by
which windows do not change any more, and for each input with a WATERMARK clause those of its
splits, with the times when their last rows came (all in epoch milliseconds), and `zone`, the time
zone. A table is one split, unless a column says from which split of a source a row comes. A
watermark of instants is a local time of the zone, as the windows are: the last one that no row
after the watermark has.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_engine import Batches, Limits, opened
from streamhouse.operators.planning.closed_windows import ClosedWindows
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.streaming.watermark import Splits, common, latest, moved
from streamhouse.runtime.views.inputs import MEMORY, ViewInputs
from streamhouse.runtime.views.late_changes import batches_of
from streamhouse.runtime.views.net_change import known_change
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.source import Offset
from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.plan import BoundedQuery, BoundedScan

_MINUTES = "range(1501) AS minutes(number)"
_LOCAL_MS = """
  epoch_ms(min(timezone($1, greatest(
    "at" + to_milliseconds(1),
    date_trunc('minute', "at" + to_milliseconds(1)) + to_minutes(number)
  )))) - 1
"""
"""The last local time that no later instant has: clocks are set back at most once in a day."""
Watermark: TypeAlias = dict[str, Any]


class Watermarks:
    """Computes the watermark of a view with windows that wait for it; driver only."""

    def __init__(self, spec: ViewSpec) -> None:
        self._spec = spec
        assert spec.plan.windows is not None
        queries = ((spec.address(each.scans[0]), each) for each in spec.plan.windows.watermarks)
        self._queries = {table_key(at): (at, each) for at, each in queries if at is not None}
        self._known: dict[str, tuple[Any, Splits]] = {}
        """The watermarks of each input at the last position for which they were computed."""

    def after(self, start: Offset, vector: Mapping[str, Any], now_ms: int) -> Watermark:
        """The watermark after a batch from `start` up to `vector`, which has the time `now_ms`."""
        zone, nothing = self._spec.plan.zone, Watermark(at=None, inputs={})
        before: Watermark = start.get("watermark", nothing)
        known = start.get("vector", {})
        if before.get("zone", zone) != zone:
            # Local times of another zone are not comparable.
            before, known, start = nothing, {}, {}
        inputs = {}
        for key in self._queries:
            splits = before["inputs"].get(key, {"": [None, now_ms]})
            old = known.get(key)
            if old != vector[key]:
                splits = moved(splits, self._greatest(key, old, vector[key]), now_ms)
            inputs[key] = splits or {"": [None, now_ms]}
        idle = ((splits, self._spec.idle_ms.get(key, 0)) for key, splits in inputs.items())
        at = latest(before["at"], common(idle, now_ms))
        own = Watermark(at=at, inputs=inputs, zone=zone)
        final = latest(self._spec.final_at(start), self._spec.final_at({"watermark": own}))
        return own | {"final": final}

    def _greatest(self, key: str, start: Any, end: Any) -> Splits:
        """The greatest watermarks of the rows between two positions, at least of these rows."""
        if key not in self._known or self._known[key][0] != end:
            self._known[key] = end, self._computed(*self._queries[key], start, end)
        return self._known[key][1]

    def _computed(self, address: TableAddress, query: BoundedQuery, start: Any, end: Any) -> Splits:
        if not end["snapshot"]:
            return {"": None}
        known = bool(start) and start["snapshot"]
        change = known_change(query.scans[0], address, start, end) if known else None

        def scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
            if change is None:
                offset = {"vector": {table_key(address): end}}
                return ViewInputs(self._spec, offset).open_table(address, scan.columns)
            return batches_of(change.rows.select(scan.columns))

        with opened(query, scanner, Limits(memory=MEMORY)) as connection:
            zone = self._spec.plan.zone
            instants = str(connection.sql(query.sql).types[0]) == "TIMESTAMP WITH TIME ZONE"
            sql = f'SELECT split, epoch_ms(CAST("at" AS TIMESTAMP)) FROM ({query.sql})'
            if zone != UTC and instants:
                sql = f"SELECT split, {_LOCAL_MS} FROM ({query.sql}), {_MINUTES} GROUP BY ALL"
            found = connection.execute(sql, [zone] if "$1" in sql else []).fetchall()
            return {str(split): at for split, at in found}


def of_later_windows(
    batches: Iterator[pa.RecordBatch], windows: ClosedWindows, zone: str, final: int | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a result that are of windows that were not final by a watermark."""
    for batch in batches:
        if final is None:
            yield batch
            continue
        ends = batch.column(windows.column)
        if ends.type.tz is not None:
            offset = zone.removeprefix("GMT") if ":" in zone else zone
            ends = pc.local_timestamp(ends.cast(pa.timestamp(ends.type.unit, offset)))
        limit = pa.scalar(final - windows.offset_ms, pa.timestamp("ms"))
        yield batch.filter(pc.greater(ends, limit.cast(ends.type)))
