"""Plans the refreshes of a view: which snapshots of its inputs each one reads.

An offset is `{"batch", "now", "view", "vector"}`: the number of the batch that ends there, its time
(epoch ms), what was computed (a fingerprint of the query, and the identity of the view's table),
and a position in each input table: its newest snapshot, when that was committed, and the table's
identity. The identity is a digest of the first schema, which differs for a table that was dropped
and created again. Windows that wait for a watermark add it (`runtime.views.watermarks`),
`open_since`, before which no row was in an open session when the batch began (epoch ms), `since`:
the first batch of the query, and by which watermark windows were final before it, and `replays` if
late rows were read again: for each time by which watermark windows were `final`, and up to which
batch rows are `late` no more, by the names of their tables. `staged` is the number of tasks of each
level, if the refresh is staged (`runtime.views.staged`).
"""

import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias

from streamhouse.connectors.bad_records import DeadLetterReplays
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import EXPIRED_AFTER, hides_new_rows
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.runtime.state.batch_logs import next_batch, next_time, noted
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.staged.planning import STAGED, inputs_of, task_count, tasks_of
from streamhouse.runtime.views.watermarks import Watermarks
from streamhouse.source import Lag, Offset

Position: TypeAlias = dict[str, Any]
"""A position in an input table: `snapshot` (0: it is empty), `time` and `table`."""
OPEN_SINCE = "open_since.json"
"""A note about each batch: since when sessions are open. It spares reading older rows; if it is
lost, the next batch reads all of them."""
TICK_S = 1.0
"""How often a view that depends on the time is computed anew, unless FRESHNESS says otherwise."""

JOINT_WAIT_S = 0.1
"""How long a refresh waits for inputs that change together, at most."""


class JointChanges:
    """Lets a refresh wait for inputs that change together (decision 263).

    Otherwise it would read those of the first input, and the next refresh those of the others,
    which would then be shown twice as late. Inputs change together if one refresh has read changes
    of them, or if the others changed while it ran. A refresh waits for half of the time that the
    last one took, and at most for `JOINT_WAIT_S`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batch = -1
        self._last: Set[str] = frozenset()
        self._together: Set[str] = frozenset()
        self._planned = self._noticed = 0.0
        self._wait_s = 0.0
        self._at_once = False
        """Whether there were changes when the last refresh ended."""

    def awaited(self, batch: int, changed: Set[str]) -> bool:
        """Whether the refresh after `batch`, which would read `changed` inputs, waits for more."""
        now = self._clock()
        if batch != self._batch:
            self._batch, self._noticed, self._at_once = batch, 0.0, bool(changed)
            self._wait_s = min(JOINT_WAIT_S, (now - self._planned) / 2)
        if not changed:
            return False
        self._noticed = self._noticed or now
        return changed < self._together and now - self._noticed < self._wait_s

    def planned(self, changed: Set[str]) -> None:
        """A refresh reads changes of these inputs."""
        self._together = changed | (self._last if self._at_once else frozenset())
        self._last, self._planned = changed, self._clock()


class ViewPlanner:
    """Plans the refreshes of one view; driver only."""

    def __init__(self, spec: ViewSpec, folder: Path | None = None) -> None:
        """`folder` is that of the query's run."""
        self._spec, self._folder = spec, folder
        self._identities: dict[str, Identity] = {}
        self._target: Identity | None = None
        self._joint = JointChanges()
        self._watermarks = None if spec.plan.windows is None else Watermarks(spec)
        self._requests = {
            each.identifier: DeadLetterReplays(each, spec.query_id)
            for each in spec.auxiliary_tables
        }

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end offset of the next refresh; `start` if no input has changed and none is due."""
        now = next_time(start)
        age_s = (now - int(start.get("now", 0))) / 1000
        if start and age_s < self._spec.freshness_s:
            return start
        tick = self._spec.plan.timed and age_s >= max(TICK_S, self._spec.freshness_s)
        newest = self.newest(start)
        if self._watermarks is not None:
            newest |= self._windows(self._watermarks, start, newest, now)
        before = start.get("vector", {})
        changed = {key for key, at in newest["vector"].items() if before.get(key) != at}
        awaited = self._joint.awaited(int(start.get("batch", -1)), changed)
        if start and not tick and (awaited or self._is_current(start, newest)):
            return start
        # The first refresh reads all inputs, whatever has changed.
        self._joint.planned(changed if start else frozenset())
        end = {"batch": next_batch(start), "now": now, **newest}
        if self._folder is not None and self._spec.plan.windows is not None:
            same = all(start.get(part) == end.get(part) for part in ("view", "replays"))
            end["open_since"] = noted(self._folder / OPEN_SINCE, start) if same else None
        count = task_count(self._spec, start, end)
        if count:
            end[STAGED] = count
        return end

    def _windows(
        self, watermarks: Watermarks, start: Offset, newest: Offset, now: int
    ) -> dict[str, Any]:
        """The parts of an offset of windows that wait for a watermark."""
        before = self._spec.continued(start, newest["view"])
        since = start.get("since", {"batch": 0, "final": None})
        if start and start.get("view") != newest["view"]:
            since = {"batch": next_batch(start), "final": self._spec.final_at(before)}
        watermark = watermarks.after(before, newest["vector"], now)
        return {"watermark": watermark, "since": since, **self._replays(start)}

    def _replays(self, start: Offset) -> dict[str, Any]:
        """The part of an offset with the late rows that are late no more, if there are some."""
        known: list[dict[str, Any]] = start.get("replays", [])
        asked = {name: each.requested() for name, each in self._requests.items() if start}
        late = {name: batch for name, batch in asked.items() if batch >= 0}
        if late and (not known or late != known[-1]["late"]):
            known = [*known, {"final": self._spec.final_at(start), "late": late}]
        return {"replays": known} if known else {}

    def newest(self, start: Offset) -> Offset:
        """What a refresh would compute now, and from what: the parts `view` and `vector`."""
        # Called up to 100 times a second: an identity costs reading a schema file.
        if self._target is None or not self._target.is_unchanged(0, 0, certain=False):
            self._target = Identity(self._spec.target.follow())
        view = f"{self._spec.fingerprint} {self._target.digest}"
        return {"view": view, "vector": self._vector(start)}

    def _is_current(self, start: Offset, newest: Offset) -> bool:
        return all(start.get(part) == value for part, value in newest.items())

    def _vector(self, start: Offset) -> dict[str, Position]:
        """The newest positions; those of `start` where the rows of a table are the same."""
        before = start.get("vector", {})
        return {
            key: self._position(key, address.follow(), before.get(key))
            for key, address in self._spec.tables.items()
        }

    def _position(self, key: str, table: Table, before: Position | None) -> Position:
        latest = table.latest_snapshot_id() or 0
        if before is not None and self._same_rows(key, table, before, latest):
            return before
        self._identities[key] = identity = Identity(table)
        taken = table.snapshot(latest).time_ms if latest else 0
        return {"snapshot": latest, "time": taken, "table": identity.digest}

    def _same_rows(self, key: str, table: Table, before: Position, latest: int) -> bool:
        """Whether a table has the rows that it had at a position."""
        identity = self._identities.get(key)
        if identity is None or identity.digest != before["table"]:
            identity = self._identities[key] = Identity(table)
        snapshot = int(before["snapshot"])
        if identity.digest != before["table"] or latest < snapshot:
            return False
        if not identity.is_unchanged(snapshot, int(before["time"]), certain=False):
            return False
        if latest == snapshot:
            return True
        # Compactions make some rows visible, and remove others.
        if hides_new_rows(table) or EXPIRED_AFTER in table.options:
            return False
        # If the snapshot has expired, later ones may be of another history, after a rollback.
        known = not snapshot or table.snapshots.find(snapshot) is not None
        return known and not table.snapshots.changed_rows(snapshot, latest)

    def tasks(self, start: Offset, end: Offset) -> Sequence[TaskInput]:
        """The tasks that read the inputs, one unless it is staged; none if nothing has changed."""
        if start == end:
            return []
        count = tasks_of(self._spec, end)
        return inputs_of(self._spec, start, end, count, 0) if count else [TaskInput(0, start, end)]

    def committed(self, end: Offset) -> None:
        """Nothing: the inputs are read anew each time."""

    def caught_up(self, start: Offset) -> bool:
        """Whether the inputs have the rows that the refresh up to `start` has read."""
        return bool(start) and self._is_current(start, self.newest(start) | self._replays(start))

    def lag(self, start: Offset) -> Lag | None:
        """The seconds since the last refresh began, if an input has changed since; else 0."""
        if not start or self.caught_up(start):
            return Lag(seconds=0.0) if start else None
        return Lag(seconds=max(0.0, time.time() - int(start["now"]) / 1000))

    def rows_left(self, start: Offset) -> int | None:
        """About how many rows of the inputs the first refresh has yet to read; None after it."""
        if start:
            return None
        total = 0
        for address in self._spec.tables.values():
            table = address.follow()
            latest = table.latest_snapshot_id()
            total += (table.snapshot(latest).total_record_count or 0) if latest else 0
        try:
            progress = Path(self._spec.progress)
            read = [int(each.read_text()) for each in progress.parent.glob(f"{progress.name}*")]
            return max(0, total - sum(read))
        except (OSError, ValueError):
            return total

    def close(self) -> None:
        self._identities.clear()
