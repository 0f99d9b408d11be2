"""Notes about a batch, from the driver that commits it to the planner of the next one.

The planner is another process. What it reads there it puts into the offset.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from streamhouse.durable_files import replace_text
from streamhouse.source import Offset


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
