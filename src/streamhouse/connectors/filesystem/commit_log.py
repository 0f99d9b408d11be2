"""What a query has committed to a folder: the last batch, and the files that it makes visible.

In an object store these are multipart uploads. A task uploads the parts of its objects, which
nobody sees. The commit completes the uploads: each object appears as a whole, and an upload can be
completed once only.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streamhouse.connectors.filesystem.folders import objects_of
from streamhouse.durable_files import replace_text, sync_folder
from streamhouse.errors import DataLossError
from streamhouse.paimon.storage.object_store.store_retries import retried

OWN_FOLDER = ".streamhouse"
"""Hidden from readers: staged files and commit logs."""


@dataclass(frozen=True)
class StagedFile:
    """A file that a task has written: where it is staged, and its final path in the folder."""

    staged: str
    final: str


class CommitLog:
    """Commits batches of one query to a folder; driver only.

    Writing the log is the commit. Then each file is renamed to its final name, which a new driver
    completes if the process is killed meanwhile; a renamed file is recognised by its name. Once all
    are renamed, their staging folders are removed: then others may move or delete the files.
    `success_file`: the name of an empty file for each partition that gets files, None: none.
    """

    def __init__(self, folder: Path, query_id: str, success_file: str | None = None) -> None:
        self._folder, self._success_file = folder, success_file
        self._own = folder / OWN_FOLDER
        self._path = self._own / f"{query_id}.json"
        self._staging = self._own / query_id
        self.last = -1
        if self._path.exists():
            state = json.loads(self._path.read_text())
            self.last = int(state["batch"])
            files = [StagedFile(*pair) for pair in state["files"]]
            self._rename([file for file in files if self._attempt(file).exists()])

    def commit(self, batch: int, files: Sequence[StagedFile]) -> None:
        """Record a batch, then make its files visible."""
        self._own.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"batch": batch, "files": [[file.staged, file.final] for file in files]})
        replace_text(self._path, text)
        self.last = batch
        self._rename(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Delete the staged files of a batch that was committed before."""
        for file in files:
            staged = self._folder / file.staged
            staged.unlink(missing_ok=True)
            self._remove_empty(staged.parent)

    def remove_leftovers(self, from_batch: int, keep: Collection[str]) -> int:
        """Delete the staged files of dead tasks; returns how many."""
        removed = 0
        for folder in self._staging.glob("*-*"):
            number, _, attempt = folder.name.partition("-")
            if int(number) >= from_batch and attempt not in keep:
                removed += sum(1 for path in folder.rglob("*") if path.is_file())
                shutil.rmtree(folder, ignore_errors=True)
        return removed

    def forget(self) -> None:
        """Remove the log of a query that has ended for good."""
        self._path.unlink(missing_ok=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        with suppress(OSError):
            self._own.rmdir()

    def _attempt(self, file: StagedFile) -> Path:
        """The staging folder of the task that has written a file."""
        return self._folder.joinpath(*Path(file.staged).parts[:3])

    def _rename(self, files: Sequence[StagedFile]) -> None:
        folders = {(self._folder / file.final).parent for file in files}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            final = self._folder / file.final
            try:
                (self._folder / file.staged).rename(final)
            except FileNotFoundError:
                if not final.exists():
                    raise DataLossError(
                        f"the file {final} of batch {self.last} is missing: it was committed, and "
                        "neither it nor its staged file is there; restore it, or run the script "
                        "with --from-scratch"
                    ) from None
        for folder in folders:
            if self._success_file is not None and folder != self._folder:
                (folder / self._success_file).touch()
            sync_folder(folder)
        for file in files:
            self._remove_empty((self._folder / file.staged).parent)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._own and self._own in folder.parents:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


_NAME = re.compile(r"part-(?P<query>[^-]+)-(?P<batch>\d{8})-(?P<attempt>[^-]+)-\d+\.")


class ObjectCommitLog:
    """As `CommitLog`, for objects; `StagedFile.staged` is an upload as `StagedObjects` has it.

    The log is one object. It has the files of a batch until all of them are completed.
    """

    def __init__(
        self, path: str, store: Mapping[str, str], query_id: str, success_file: str | None = None
    ) -> None:
        self._path, self._query, self._success_file = path, query_id, success_file
        self._objects = objects_of(path, store)
        self._log = f"{path}/{OWN_FOLDER}/{query_id}.json"
        self.last = -1
        text = retried(lambda: self._objects.read_text(self._log))
        if text is not None:
            state = json.loads(text)
            self.last = int(state["batch"])
            self._complete([StagedFile(*pair) for pair in state["files"]])

    def commit(self, batch: int, files: Sequence[StagedFile]) -> None:
        """Record a batch, then make its files visible."""
        self._record(batch, files)
        self.last = batch
        self._complete(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Give up the uploads of a batch that was committed before."""
        for file in files:
            self._objects.abort_upload(self._address(file), file.staged)

    def remove_leftovers(self, from_batch: int, keep: Collection[str]) -> int:
        """Give up the uploads of dead tasks; returns how many."""
        removed = 0
        for path, upload in self._objects.uploads(self._path):
            name = _NAME.match(path.rpartition("/")[2])
            if name is None or name["query"] != self._query[:8]:
                continue
            if int(name["batch"]) >= from_batch and name["attempt"] not in keep:
                self._objects.abort_upload(path, json.dumps({"id": upload, "parts": []}))
                removed += 1
        return removed

    def forget(self) -> None:
        """Remove the log of a query that has ended for good, and its uploads."""
        self.remove_leftovers(0, ())
        self._objects.delete_object(self._log)

    def _record(self, batch: int, files: Sequence[StagedFile]) -> None:
        pairs = [[file.staged, file.final] for file in files]
        text = json.dumps({"batch": batch, "files": pairs})
        retried(lambda: self._objects.write_text(self._log, text))

    def _complete(self, files: Sequence[StagedFile]) -> None:
        if not files:
            return
        for file in files:
            address = self._address(file)
            if not retried(partial(self._objects.complete_upload, address, file.staged)):
                raise DataLossError(
                    f"the object {address} of batch {self.last} is missing: it was committed, and "
                    "neither it nor its upload is there; restore it, or run the script with "
                    "--from-scratch"
                )
        folders = {file.final.rpartition("/")[0] for file in files} - {""}
        for folder in folders if self._success_file is not None else ():
            self._objects.write_text(f"{self._path}/{folder}/{self._success_file}", "")
        # From now on others may move or delete the objects.
        self._record(self.last, ())

    def _address(self, file: StagedFile) -> str:
        return f"{self._path}/{file.final}"
