"""The marker of a reset that has begun: once it is written, the reset is finished, whatever dies.

It is the file `.from-scratch.json` in a pipeline's folder of checkpoints, one record for each
target: whether its rows are kept, and the ids of the queries that go. A run that is killed leaves
it behind; the next run of a script that writes one of the targets finishes the reset first.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from streamhouse.runtime.state.checkpoint import pipeline_folder

NAME = ".from-scratch.json"


@dataclass(frozen=True)
class Reset:
    """What is to become of a target: whether its rows stay, and which queries go."""

    keep: bool
    queries: tuple[str, ...]


class ResetMarker:
    """The resets of one pipeline that have begun and not ended."""

    def __init__(self, root: Path, pipeline: str) -> None:
        self._folder = pipeline_folder(root, pipeline)

    def read(self) -> dict[str, Reset]:
        """The resets by target, `database.table`."""
        path = self._folder / NAME
        if not path.exists():
            return {}
        records = json.loads(path.read_text())
        return {
            target: Reset(bool(record["keep"]), tuple(record["queries"]))
            for target, record in records.items()
        }

    def add(self, resets: Mapping[str, Reset]) -> None:
        """Begin resets, all of them or, if this process dies now, none."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._write({**self.read(), **resets})

    def remove(self, targets: Iterable[str]) -> None:
        """The resets of these targets have ended."""
        with self._locked():
            gone = set(targets)
            self._write({name: one for name, one in self.read().items() if name not in gone})

    def _write(self, resets: Mapping[str, Reset]) -> None:
        path = self._folder / NAME
        if not resets:
            path.unlink(missing_ok=True)
            return
        part = path.with_name(f"{NAME}.{os.getpid()}")
        with open(part, "w", encoding="utf-8") as file:
            json.dump({name: asdict(one) for name, one in resets.items()}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Scripts of the same pipeline with other targets may be reset at the same time."""
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def any_left(roots: Iterable[Path]) -> bool:
    """Whether some pipeline's checkpoints below these folders have a reset that was cut off."""
    return any(next(root.glob(f"*/{NAME}"), None) is not None for root in roots)
