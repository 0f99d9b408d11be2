"""What the tasks of a batch had loaded for later ones: told by the driver to its planner.

They are two processes, so it stands in a file of the query's run folder. It only says whether a
version can be joined without waiting; once a batch is planned, what it joins is in its offset.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamhouse.source import Offset

_FILE = "loaded.json"


def tell(folder: Path, end: Offset, reports: Sequence[Mapping[str, Any]]) -> None:
    """Keep which relations' `coming` versions all tasks of the batch up to `end` have loaded.

    A report's `loaded` names those of its task, or is None where the task joined nothing.
    """
    if "coming" not in end:
        return
    told = [set(one["loaded"]) for one in reports if one["loaded"] is not None]
    loaded = set(end["coming"]).intersection(*told)
    part = folder / f"{_FILE}.part"
    # Where the run is being ended, its folder may be gone.
    with contextlib.suppress(FileNotFoundError):
        part.write_text(json.dumps({"batch": end["batch"], "loaded": sorted(loaded)}))
        part.replace(folder / _FILE)


def loaded(folder: Path | None, start: Offset) -> Collection[str]:
    """What was told of the batch up to `start`; nothing where it ran in another run."""
    if folder is None or "coming" not in start:
        return ()
    try:
        told = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return ()
    found: list[str] = told["loaded"]
    return found if told["batch"] == start["batch"] else ()
