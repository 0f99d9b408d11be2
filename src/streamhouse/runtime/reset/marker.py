"""The marker file of a reset in progress: once it is written, the reset will be finished.

It is the file `.from-scratch.json` in a pipeline's folder of checkpoints, with one record for each
target: whether its rows are kept, and the ids of the queries to remove. A killed run leaves it
behind; the next run of a script that writes one of the targets finishes the reset first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from streamhouse.durable_files import locked, read_json, replace_json
from streamhouse.runtime.state.checkpoint import pipeline_folder

NAME = ".from-scratch.json"


@dataclass(frozen=True)
class Reset:
    """The reset of one target: whether its rows are kept, and the ids of the queries to remove."""

    keep: bool
    queries: tuple[str, ...]


class ResetMarker:
    """The unfinished resets of one pipeline."""

    def __init__(self, root: Path, pipeline: str) -> None:
        self._folder = pipeline_folder(root, pipeline)

    def read(self) -> dict[str, Reset]:
        """The unfinished resets by target, `database.table`."""
        records = read_json(self._folder / NAME) or {}
        return {
            target: Reset(bool(record["keep"]), tuple(record["queries"]))
            for target, record in records.items()
        }

    def add(self, resets: Mapping[str, Reset]) -> None:
        """Record resets as begun, atomically."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder):
            self._write({**self.read(), **resets})

    def remove(self, targets: Iterable[str]) -> None:
        """Record the resets of these targets as finished."""
        with locked(self._folder):
            finished = set(targets)
            self._write(
                {name: reset for name, reset in self.read().items() if name not in finished}
            )

    def _write(self, resets: Mapping[str, Reset]) -> None:
        path = self._folder / NAME
        if not resets:
            path.unlink(missing_ok=True)
            return
        replace_json(path, {name: asdict(reset) for name, reset in resets.items()})


def any_left(roots: Iterable[Path]) -> bool:
    """Whether a pipeline with checkpoints in these folders has an unfinished reset."""
    return any(next(root.glob(f"*/{NAME}"), None) is not None for root in roots)
