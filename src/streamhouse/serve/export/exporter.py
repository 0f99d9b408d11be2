"""A table or a view as a file that is replaced as a whole each time there is a new snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.serve.export.atomic_file import replacing, sweep
from streamhouse.serve.export.extract import Extract, Extracts, Rows
from streamhouse.serve.formats.row_formats import Format
from streamhouse.serve.queries.row_files import Origin, write_rows

_TRIES = 5
"""How often rows are read anew because their snapshot expired meanwhile."""


class Stopped(Exception):
    """The export was asked to stop while it wrote; the file is as it was."""


class ProgressListener(Protocol):
    """Is told how far a file is; see `streamhouse.runtime.batch.progress_line.Progress`."""

    def part(self, name: str, total: int | None) -> None: ...

    def advance(self, rows: int) -> None: ...


@dataclass(frozen=True)
class Written:
    """A file that was written; `snapshot` is None where nothing was committed yet."""

    path: Path
    snapshot: int | None
    rows: int
    bytes: int
    seconds: float


class Export:
    """Writes `folder/<name>.<format>`, again and again; for one thread.

    `name` is that of a table, a branch or a view, `extracts` looks at it. `stopped` is asked
    between batches, also while rows are sorted. The folder is made if it is not there, and what a
    killed export of the same file left in it is deleted.
    """

    def __init__(
        self,
        extracts: Extracts,
        name: str,
        format: Format,
        folder: Path,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        if os.sep in name:
            raise TableError(f"'{name}' cannot be the name of a file: it has a '{os.sep}'")
        self._extracts = extracts
        self._format = format
        self._stopped = stopped
        self._state: str | None = None
        self.path = folder / f"{name}.{format.value}"
        _make(folder)
        sweep(self.path)

    def write(self, shown: ProgressListener) -> Written | None:
        """Replace the file by what is there now; None if it has that already.

        Raises `Stopped`, and `TableError`, `SqlError` or `DataLossError` for rows that are not
        there; then the file stays as it was.
        """
        for attempt in range(1, _TRIES + 1):
            extract = self._extracts.look()
            if extract.state == self._state:
                return None
            try:
                done = self._replace(extract, shown)
            except DataLossError:
                # It expired while it was read; then there is a newer one, or the loss is real.
                if attempt == _TRIES or self._extracts.look().state == extract.state:
                    raise
            else:
                self._state = extract.state
                return done
        raise AssertionError("the last attempt returns or raises")

    def _replace(self, extract: Extract, shown: ProgressListener) -> Written:
        began = time.monotonic()
        shown.part("reading", extract.total)
        origin = Origin(extract.name, extract.snapshot, extract.time_ms)
        with replacing(self.path) as out, extract.open(self._step(shown)) as rows:
            counted = _Counted(rows, shown, self._step(shown))
            write_rows(self._format, out, origin, rows.schema, counted)
            out.flush()
            size = out.tell()
        seconds = time.monotonic() - began
        return Written(self.path, extract.snapshot, counted.rows, size, seconds)

    def _step(self, shown: ProgressListener) -> Callable[[int], None]:
        def step(rows: int) -> None:
            if self._stopped():
                raise Stopped
            shown.advance(rows)

        return step


class _Counted:
    """Batches on their way into the file."""

    def __init__(self, rows: Rows, shown: ProgressListener, step: Callable[[int], None]) -> None:
        self._given = rows
        self._shown = shown
        self._step = step
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(self._given.batches):
            # What is not sorted is read as it is written, and counted there.
            if self._given.sorted and number == 0:
                self._shown.part("writing", None)
            self.rows += batch.num_rows
            yield batch
            if self._given.sorted:
                self._step(batch.num_rows)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise OptionError(
            f"'{folder}' cannot be a folder, since there is a file; name another one"
        ) from None
