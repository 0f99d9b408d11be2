"""Reports from the driver to the planner which dimension versions the executors have preloaded.

Driver and planner are two processes, so the report is a file in the query's run folder. It only
affects whether a version can be joined without waiting. What a planned batch joins is in its
offset.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamhouse.source import Offset

_FILE = "loaded.json"


def write(folder: Path, end: Offset, reports: Sequence[Mapping[str, Any]]) -> None:
    """Write which relations' `coming` versions all tasks of the batch up to `end` have preloaded.

    `loaded` in a task's report lists those of this task; None if the task joined nothing.
    """
    if "coming" not in end:
        return
    reported = [set(report["loaded"]) for report in reports if report["loaded"] is not None]
    loaded = set(end["coming"]).intersection(*reported)
    part = folder / f"{_FILE}.part"
    # The folder may be gone if the run is being stopped.
    with contextlib.suppress(FileNotFoundError):
        part.write_text(json.dumps({"batch": end["batch"], "loaded": sorted(loaded)}))
        part.replace(folder / _FILE)


def read(folder: Path | None, start: Offset) -> Collection[str]:
    """The relations reported for the batch that ended at `start`; none if it ran in another run."""
    if folder is None or "coming" not in start:
        return ()
    try:
        report = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return ()
    found: list[str] = report["loaded"]
    return found if report["batch"] == start["batch"] else ()
