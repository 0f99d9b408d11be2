"""Watermarks of inputs, from those of their splits: computed on the driver, stored in offsets.

The offset of a batch of a stream whose query has CURRENT_WATERMARK has a part `watermark`: `at`,
the watermark of the rows of former batches (epoch ms; null: none), and `splits`, for each split of
the source its watermark and the time when its last rows came. The tasks of a batch report what they
have found in its rows, which the driver notes for the planner before the batch counts as done.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from streamhouse.options import duration_ms
from streamhouse.runtime.state.batch_logs import note, noted
from streamhouse.source import Offset
from streamhouse.sql.plan import StreamQuery
from streamhouse.sql.statements.watermark import IDLE_OPTION

Splits: TypeAlias = Mapping[str, int | None]
"""The greatest watermark among rows of each split."""
Moved: TypeAlias = dict[str, list[Any]]
"""Each split's watermark, and the time when its last rows came."""
NOTHING: Mapping[str, Any] = MappingProxyType({"at": None, "splits": {}})
"""The part `watermark` before the first row."""
_FILE = "watermark.json"


def latest(a: int | None, b: int | None) -> int | None:
    """The later of two watermarks; None if there is none."""
    return max((each for each in (a, b) if each is not None), default=None)


def moved(splits: Moved, found: Splits, now_ms: int) -> Moved:
    """The splits after rows with the watermarks `found` have come."""
    known = {name: each for name, each in splits.items() if each[0] is not None}
    return known | {
        name: [latest(known.get(name, [None])[0], value), now_ms] for name, value in found.items()
    }


def common(inputs: Iterable[tuple[Moved, int]], now_ms: int) -> int | None:
    """The least watermark of the splits that are not idle; of idle ones alone the greatest.

    Each input has its splits, and the time without rows after which one is idle (ms; 0: never).
    """
    active, known = [], []
    for splits, idle_ms in inputs:
        for value, moved_ms in splits.values():
            known.append(value)
            if not 0 < idle_ms <= now_ms - moved_ms:
                active.append(value)
    if active:
        return None if None in active else min(active)
    return max((value for value in known if value is not None), default=None)


def note_found(checkpoint: Path, end: Offset, reports: Sequence[Mapping[str, Any]]) -> None:
    """Note the watermarks that the tasks of the batch that ends at `end` have found."""
    found: dict[str, int | None] = {}
    for report in reports:
        for split, at in report["watermarks"].items():
            found[split] = latest(found.get(split), at)
    note(checkpoint / _FILE, end, found)


def watermark_before(end: Offset) -> int | None:
    """The watermark of the rows before the batch that ends at an offset (epoch ms); None: none."""
    at: int | None = end.get("watermark", NOTHING)["at"]
    return at


def before_batch(
    checkpoint: Path, query: StreamQuery, start: Offset, now_ms: int
) -> dict[str, Any]:
    """The part `watermark` of the offset of the batch after `start`."""
    found = noted(checkpoint / _FILE, start) or {}
    return advanced(start.get("watermark", NOTHING), found, query, now_ms)


def advanced(
    before: Mapping[str, Any], found: Splits, query: StreamQuery, now_ms: int
) -> dict[str, Any]:
    """A part `watermark` after rows with the watermarks `found` have come."""
    assert query.source.watermark is not None
    own = query.source.watermark.idle_timeout
    splits = moved(before["splits"], found, now_ms)
    at = common([(splits, duration_ms(IDLE_OPTION, own) if own else 0)], now_ms)
    return {"at": latest(before["at"], at), "splits": splits}
