"""The logs of a query: which batches it has planned, and which are done.

Beside them are notes about a batch, from those who commit it to the planner of the next one. What
the planner reads there it puts into the offset.
"""

import contextlib
import json
import os
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from streamhouse.durable_files import replace_text
from streamhouse.errors import DataLossError
from streamhouse.source import Offset

_LOGS = ("offsets", "commits")
_VERSION = "v1"
KEPT = 100
"""So many batches stay in the logs."""
FIXED_MS: ContextVar[int] = ContextVar("fixed_ms", default=0)
"""The time at which the next batches run (epoch ms); 0: that of the clock."""


def next_batch(end: Offset) -> int:
    """The number of the batch after the one that ends at an offset; 0 after `{}`."""
    return int(end.get("batch", -1)) + 1


def next_time(end: Offset) -> int:
    """The time of the next batch, from now on (epoch ms): later than that of the one before."""
    now = FIXED_MS.get() or time.time_ns() // 1_000_000
    return max(now, int(end.get("now", 0)) + 1)


def note(file: Path, end: Offset, value: Any) -> None:
    """Note a JSON value about the batch that ends at `end`, in place of a former note."""
    # The folder may be gone if the run is being stopped.
    with contextlib.suppress(FileNotFoundError):
        replace_text(file, json.dumps([end["batch"], value]), durable=False)


def noted(file: Path, start: Offset) -> Any:
    """The value about the batch that ends at `start`; None if there is none."""
    try:
        batch, value = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return value if batch == start.get("batch") else None


class BatchLogs:
    """The offset log and the commit log in a checkpoint's `folder`, with a file for each batch.

    A batch is written to the offset log before it runs, and to the commit log afterwards. A batch
    that is only in the offset log runs again with the same offsets.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self) -> None:
        """Create the folders of both logs, unless they exist."""
        for log in _LOGS:
            (self._folder / log).mkdir(parents=True, exist_ok=True)

    def plan(self, end: Offset) -> None:
        """Log the end of the next batch, durably: its tables, to which it commits, are, too."""
        text = f"{_VERSION}\n{json.dumps(end)}"
        replace_text(self._folder / "offsets" / str(self.last_logged() + 1), text)

    def commit(self) -> None:
        """Log that the last planned batch is done, and delete old batches."""
        number = self.last_logged()
        replace_text(self._folder / "commits" / str(number), f"{_VERSION}\n{{}}", durable=False)
        for log in _LOGS:
            (self._folder / log / str(number - KEPT)).unlink(missing_ok=True)

    def last_committed(self) -> int:
        """The last batch that is done; -1 before the first.

        A batch is planned only after the one before is done, also if the commit log has lost that.
        """
        return max(*self._numbers("commits"), self.last_logged() - 1, -1)

    def last_logged(self) -> int:
        """The last batch in the offset log; -1 before the first."""
        return max(self._numbers("offsets"), default=-1)

    def newest(self) -> Offset:
        """The last logged offset; `{}` before the first."""
        return self._offset(self.last_logged())

    def last_batch(self) -> int:
        """The number in the last logged offset; -1 before the first."""
        return next_batch(self.newest()) - 1

    def logged_s(self, number: int) -> float:
        """When a batch was written to the offset log (epoch seconds)."""
        return (self._folder / "offsets" / str(number)).stat().st_mtime

    def logged(self) -> dict[int, Offset]:
        """End offsets of the batches in the offset log, by their number there."""
        return {number: self._offset(number) for number in sorted(self._numbers("offsets"))}

    def unfinished(self) -> list[Offset]:
        """End offsets of batches in the offset log that are not in the commit log."""
        last = self.last_committed()
        return [offset for number, offset in self.logged().items() if number > last]

    def last_offset(self) -> Offset:
        """The end of the last committed batch; `{}` before the first."""
        return self._offset(self.last_committed())

    def change_last(self, offset: Offset) -> None:
        """Replace the offset of the last batch, while no query runs."""
        path = self._folder / "offsets" / str(self.last_logged())
        *first, _ = path.read_text().splitlines()
        replace_text(path, "\n".join([*first, json.dumps(offset)]))

    def remove_incomplete(self) -> None:
        """Delete files that a crash has left incomplete at the end.

        If a sink has the batch of a deleted file, it refuses to go on
        (`connectors.base.SinkCommitter.check_log`).
        """
        for log in _LOGS:
            folder = self._folder / log
            for path in folder.glob(".*"):
                path.unlink(missing_ok=True)
            for number in sorted(self._numbers(log), reverse=True):
                if _is_complete(folder / str(number)):
                    break
                (folder / str(number)).unlink()

    def _numbers(self, folder: str) -> set[int]:
        path = self._folder / folder
        names = os.listdir(path) if path.exists() else []
        return {int(name) for name in names if name.isdigit()}

    def _offset(self, number: int) -> Offset:
        if number < 0:
            return {}
        path = self._folder / "offsets" / str(number)
        try:
            offset: Offset = json.loads(path.read_text().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            raise DataLossError(
                f"{path} is missing or damaged, so it is unknown how far the query has read. "
                "Restore the folder of this checkpoint, or run the script once with "
                "--from-scratch to compute its targets anew"
            ) from None
        return offset


def _is_complete(path: Path) -> bool:
    """Whether a file of a log has all its lines: a version, then JSON."""
    try:
        lines = path.read_text().splitlines()
        json.loads(lines[-1])
    except (ValueError, IndexError):
        return False
    return len(lines) > 1
