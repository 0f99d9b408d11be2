"""Replicas: the kept rows of a view in an object store, which each host copies from there.

The tasks of a cluster run on any of its hosts. Manifests and segments never change, and no two have
one name, so a host is up to date once it has the files whose names it lacked.
"""

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.files import Files
from streamhouse.paimon.storage.object_store.parallel import run_parallel
from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import Segment, SegmentFile
from streamhouse.state.store import FOLDER, MANIFEST, StateStore

log = logging.getLogger("streamhouse.views")


class ReplicatedStore(StateStore):
    """The kept rows in a folder of this host, which is made, and in a replica at `location`.

    What one host saves is in the replica before `save` returns. If the store fails, this host goes
    on with its own copy, and others find no rows of the last batch: they recompute the view.
    """

    def __init__(self, folder: Path, files: Files, location: str) -> None:
        super().__init__(folder)
        self._files, self._location = files, location
        self._known: set[str] = set()
        """The manifests and their segments that are in the replica, as far as this host knows."""
        folder.mkdir(parents=True, exist_ok=True)

    def fetch(self, segments: bool = True) -> None:
        """Copy the manifests of the replica, and the segments of the newest one with rows.

        Other segments are copied when they are read.
        """

        self._attempt("read", lambda: self._fetch(segments))

    def remove_leftovers(self) -> None:
        """Remove the segments of the replica that no manifest names; nothing else may run."""

        def work() -> None:
            there = self._fetch(segments=False)
            self._each(self._delete, there - self._known)

        self._attempt("cleaned", work)

    def _fetch(self, segments: bool) -> set[str]:
        """As `fetch`; returns the names of all files of the replica."""
        own = self._manifest_paths()
        there = {name for name, _ in self._files.names(self._location)}
        manifests = {name for name in there if name.startswith(MANIFEST)}
        # Another process of this host may have written one since, which it has yet to publish.
        for path in own:
            if path.name not in manifests:
                path.unlink(missing_ok=True)
        self._each(self._download, self._missing(manifests))
        self._known = there & (manifests | self._named())
        newest = self.newest if segments else None
        self._each(self._download, self._missing(newest.files if newest else ()))
        return there

    def manifests_beside(self) -> list[tuple[str, Manifest]]:
        found: list[tuple[str, Manifest]] = []
        self._attempt("shared", lambda: found.extend(self._manifests_beside()))
        return found

    def _manifests_beside(self) -> Iterator[tuple[str, Manifest]]:
        """Those of all replicas, also of views that other drivers run."""
        root = self._location.rsplit("/", 2)[0]
        queries = [name for name, is_folder in self._files.names(root) if is_folder]
        with tempfile.TemporaryDirectory(prefix="streamhouse-manifests-") as folder:
            others = [
                ReplicatedStore(
                    Path(folder, str(n), FOLDER), self._files, f"{root}/{name}/{FOLDER}"
                )
                for n, name in enumerate(sorted(queries))
            ]
            run_parallel([partial(each.fetch, segments=False) for each in others])
            for each in others:
                for manifest in each.manifests():
                    yield each._location, manifest

    def link(self, folder: str, files: Iterable[SegmentFile]) -> None:
        """Copy segments of another replica to this one; also raises `StreamhouseError`."""

        def copy(name: str) -> None:
            self._files.copy(f"{folder}/{name}", self._path_of(name))
            self._known.add(name)

        self._each(copy, {file.name for file in files} - self._known)

    def segment(self, file: SegmentFile) -> Segment:
        if file.name in self._known and self._missing((file.name,)):
            self._attempt("read", lambda: self._download(file.name))
        return super().segment(file)

    def publish(self) -> None:
        self._attempt("written", self._publish)

    def _write(self, manifest: Manifest) -> None:
        # First, since another process that fetches removes a manifest that is not in the replica.
        self._attempt("written", lambda: self._send(manifest.files))
        super()._write(manifest)

    def _publish(self) -> None:
        """Copy what is new to the replica, manifests last, and delete what is needed no more."""
        segments, manifests = self._named(), {path.name for path in self._manifest_paths()}
        self._send(segments)
        self._each(self._upload, manifests - self._known)
        self._each(self._delete, self._known - segments - manifests)
        self._known = segments | manifests

    def _send(self, segments: set[str]) -> None:
        self._each(self._upload, segments - self._known - set(self._missing(segments)))

    def _named(self) -> set[str]:
        return set().union(*(manifest.files for manifest in self.manifests()))

    def _missing(self, names: Collection[str]) -> list[str]:
        return [name for name in names if not (self.folder / name).exists()]

    def _download(self, name: str) -> None:
        if not name.startswith(MANIFEST) and self._linked(name):
            return
        # A file without its last name is not seen by other processes of the host.
        part = self.folder / f"{name}.{uuid.uuid4().hex[:12]}.part"
        try:
            with self._files.open_input(self._path_of(name)) as source, part.open("xb") as target:
                shutil.copyfileobj(source, target)
            os.replace(part, self.folder / name)
        except FileNotFoundError:
            # Another host has removed it since.
            log.debug("%s is gone", self._path_of(name))
        finally:
            part.unlink(missing_ok=True)

    def _linked(self, name: str) -> bool:
        """Link a segment that another view of this host has; whether there is one."""
        for other in self.folder.parents[1].glob(f"*/{FOLDER}/{name}"):
            with suppress(OSError):
                os.link(other, self.folder / name)
                return True
        return False

    def _upload(self, name: str) -> None:
        path = self._path_of(name)
        with (self.folder / name).open("rb") as source, self._files.open_output(path) as target:
            shutil.copyfileobj(source, target)
        self._known.add(name)

    def _delete(self, name: str) -> None:
        self._files.delete(self._path_of(name))

    def _path_of(self, name: str) -> str:
        return f"{self._location}/{name}"

    def _each(self, work: Callable[[str], None], names: Iterable[str]) -> None:
        run_parallel([partial(work, name) for name in names])

    def _attempt(self, done: str, work: Callable[[], object]) -> None:
        try:
            work()
        except (OSError, StreamhouseError) as error:
            log.warning("kept rows at %s are not %s: %s", self._location, done, error)
