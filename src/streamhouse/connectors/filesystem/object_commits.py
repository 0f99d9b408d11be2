"""What a query has committed to a folder of an object store, by multipart uploads.

A task uploads the parts of its objects, which nobody sees. The commit completes the uploads: each
object appears as a whole, and an upload can be completed once only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from streamhouse.connectors.filesystem.commit_log import OWN_FOLDER, StagedFile
from streamhouse.connectors.filesystem.folders import objects_of
from streamhouse.errors import DataLossError
from streamhouse.paimon.storage.object_store.store_retries import retried

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
        self._objects.delete_file(self._log)

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
