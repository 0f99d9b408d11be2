"""Writes a table or a view to a file, and replaces the file atomically for each new snapshot."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from streamhouse.durable_files import locked, sync_folder
from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.serve.export.extract import Extract, ExtractedRows, Extractor
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.serve.queries.output import RowsOrigin, write_export

_SUFFIX = ".part"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the `with` ends; by then it is synced to disk.

    If the `with` ends with an exception, the old file stays. The folder must exist.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{_SUFFIX}")
    try:
        with _locked(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # While the file is still locked, so that no sweep takes it for a leftover.
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sweep(path: Path) -> int:
    """Delete the leftovers of killed writers of `path`; returns how many files that were."""
    prefix, deleted = f".{path.name}.", 0
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(_SUFFIX):
            deleted += _sweep_one(path.with_name(name))
    return deleted


def _sweep_one(part: Path) -> bool:
    try:
        with locked(part, wait=False) as is_dead:
            if is_dead:
                part.unlink()
            return is_dead
    except (FileNotFoundError, PermissionError):
        # Another process has just finished it, or it belongs to another user.
        return False


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """Create a file and lock it; repeats if a sweep deletes it between these two steps."""
    while True:
        with part.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if part.exists():
                yield file
                return
        # A concurrent sweep deleted the file before it was locked.


_TRIES = 5
"""How many attempts there are if the snapshot expires while it is read."""


class ExportStopped(Exception):
    """The export was stopped while it wrote; the old file is unchanged."""


class ProgressListener(Protocol):
    """Receives an export's progress; see `streamhouse.runtime.batch.progress_line.ProgressLine`."""

    def part(self, name: str, total: int | None) -> None: ...

    def advance(self, rows: int) -> None: ...


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written; `snapshot` is None before the first commit."""

    path: Path
    snapshot: int | None
    rows: int
    bytes: int
    seconds: float


class Exporter:
    """Writes `folder/<name>.<format>` repeatedly; not thread-safe.

    `name` is a table, a branch or a view, which `extractor` reads. `stopped` is called between
    batches, also while the input of a sort is read. The constructor creates the folder if needed,
    and deletes the leftovers of killed exports of the same file.
    """

    def __init__(
        self,
        extractor: Extractor,
        name: str,
        format: RowFormat,
        folder: Path,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        if os.sep in name:
            raise TableError(f"'{name}' cannot be the name of a file: it contains '{os.sep}'")
        self._extractor = extractor
        self._format = format
        self._stopped = stopped
        self._state: str | None = None
        self.path = folder / f"{name}.{format.value}"
        _make_folder(folder)
        sweep(self.path)

    def write(self, progress: ProgressListener) -> ExportedFile | None:
        """Replace the file with the current rows; None if it has them already.

        Raises `ExportStopped`, and `TableError`, `SqlError` or `DataLossError` if the rows cannot
        be read; then the old file stays.
        """
        for attempt in range(1, _TRIES + 1):
            extract = self._extractor.pin()
            if extract.state == self._state:
                return None
            try:
                done = self._replace(extract, progress)
            except DataLossError:
                # The snapshot expired while it was read: retry, unless there is no newer one.
                if attempt == _TRIES or self._extractor.pin().state == extract.state:
                    raise
            else:
                self._state = extract.state
                return done
        raise AssertionError("the last attempt returns or raises")

    def _replace(self, extract: Extract, progress: ProgressListener) -> ExportedFile:
        began = time.monotonic()
        progress.part("reading", extract.total)
        origin = RowsOrigin(extract.name, extract.snapshot, extract.time_ms)
        with replacing(self.path) as out, extract.open(self._step(progress)) as rows:
            counting = _Counted(rows, progress, self._step(progress))
            write_export(self._format, out, origin, rows.schema, counting)
            out.flush()
            size = out.tell()
        seconds = time.monotonic() - began
        return ExportedFile(self.path, extract.snapshot, counting.rows, size, seconds)

    def _step(self, progress: ProgressListener) -> Callable[[int], None]:
        def step(rows: int) -> None:
            if self._stopped():
                raise ExportStopped
            progress.advance(rows)

        return step


class _Counted:
    """Counts the batches that are written, and reports their progress."""

    def __init__(
        self, rows: ExtractedRows, progress: ProgressListener, step: Callable[[int], None]
    ) -> None:
        self._rows = rows
        self._progress = progress
        self._step = step
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(self._rows.batches):
            # Unsorted rows are read while they are written, and the reading reports progress.
            if self._rows.sorted and number == 0:
                self._progress.part("writing", None)
            self.rows += batch.num_rows
            yield batch
            if self._rows.sorted:
                self._step(batch.num_rows)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise OptionError(
            f"'{folder}' cannot be a folder, since a file is in its place; choose another folder"
        ) from None
