"""The logs of a Spark streaming query: which batches it has planned, and which are done."""

from __future__ import annotations

import json
import os
from pathlib import Path

from streamhouse.source import Offset

_LOGS = ("offsets", "commits")


def next_batch(end: Offset) -> int:
    """The number of the batch after the one that ends at an offset; 0 after `{}`."""
    return int(end.get("batch", -1)) + 1


class BatchLogs:
    """Spark's offset log and commit log in a checkpoint's `folder`.

    Spark writes a batch to the offset log before the batch runs, and to the commit log afterwards.
    A batch that is only in the offset log runs again with the same offsets.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self) -> None:
        """Create the folders of both logs, unless they exist.

        Spark would start a process for each, which sets the permissions.
        """
        for log in _LOGS:
            (self._folder / log).mkdir(parents=True, exist_ok=True)

    def last_committed(self) -> int:
        """The last batch in Spark's commit log; -1 before the first."""
        return max(self._numbers("commits"), default=-1)

    def last_logged(self) -> int:
        """The last batch in Spark's offset log; -1 before the first."""
        return max(self._numbers("offsets"), default=-1)

    def logged_s(self, number: int) -> float:
        """When a batch was written to the offset log (epoch seconds)."""
        return (self._folder / "offsets" / str(number)).stat().st_mtime

    def logged(self) -> dict[int, Offset]:
        """End offsets of the batches in Spark's offset log, by Spark's batch number."""
        return {number: self._offset(number) for number in sorted(self._numbers("offsets"))}

    def unfinished(self) -> list[Offset]:
        """End offsets of batches in the offset log that are not in the commit log."""
        last = self.last_committed()
        return [offset for number, offset in self.logged().items() if number > last]

    def last_offset(self) -> Offset:
        """The end of the last committed batch; `{}` before the first."""
        last = self.last_committed()
        return self._offset(last) if last >= 0 and last in self._numbers("offsets") else {}

    def remove_incomplete(self) -> None:
        """Delete files that a killed Spark has not completed.

        If the offset log has only such a file, Spark refuses to begin the first batch at each start
        (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY).
        """
        for log in _LOGS:
            for path in (self._folder / log).glob(".*.tmp"):
                path.unlink(missing_ok=True)

    def _numbers(self, folder: str) -> set[int]:
        path = self._folder / folder
        names = os.listdir(path) if path.exists() else []
        return {int(name) for name in names if name.isdigit()}

    def _offset(self, number: int) -> Offset:
        lines = (self._folder / "offsets" / str(number)).read_text().splitlines()
        offset: Offset = json.loads(lines[-1])
        return offset
