"""The store of one view's kept rows: a folder of segments, and a manifest for each batch.

Segments never change, and a manifest is written last, so a batch that is interrupted leaves the
kept rows of the batch before it as they were. Whatever is missing or damaged counts as no state.
"""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self, TypeAlias

from streamhouse.durable_files import locked, replace_text
from streamhouse.state.manifest import Manifest, Merge, Segments
from streamhouse.state.segment import Segment, SegmentFile, StateError, mapped

FOLDER = "state"
"""The folder of kept rows in the checkpoint of a view."""
LOOKUPS = "lookups"
"""The folder in the checkpoint of a query of what a process keeps of looked-up tables."""
MANIFESTS_KEPT = 2
"""The last batch may run again, from the state after the one before it. Besides them, the newest
manifest with rows before the last batch is kept."""
MANIFEST = "manifest-"
"""What the names of manifests begin with."""
_WRITING = "writing.lock"
"""The file that `StateStore.writing` locks."""
LEFT_OVER_S = 3600.0
"""Files that no manifest names are left by dead tasks, or belong to a running one."""

_Stamp: TypeAlias = tuple[int, int, int]
"""The size, time and inode of a file."""
_open: dict[Path, tuple[SegmentFile, _Stamp, Segment]] = {}


class StateStore:
    """The kept rows in a folder, which exists on one host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def usable(self) -> bool:
        """Whether this is the host of the folder; makes it, if it was deleted."""
        with contextlib.suppress(OSError):
            if self.folder.parent.is_dir():
                self.folder.mkdir(exist_ok=True)
                return True
        return False

    @classmethod
    def of(cls, checkpoint: Path) -> Self:
        """What the view of a checkpoint keeps."""
        return cls(checkpoint / FOLDER)

    @property
    def newest(self) -> Manifest | None:
        """The newest manifest with rows, else that of the last batch; None before the first."""
        found = self.manifests()
        return next((each for each in found if each.arrangements), next(iter(found), None))

    def manifests(self) -> list[Manifest]:
        """The manifests that can be read, the newest first."""
        found = []
        for path in sorted(self._manifest_paths(), key=_batch_of, reverse=True):
            with contextlib.suppress(OSError, UnicodeDecodeError, StateError):
                found.append(Manifest.from_json(path.read_text()))
        return found

    def segment(self, file: SegmentFile) -> Segment:
        """An open segment; a process opens each once, and verifies it then.

        Raises `StateError` if it is missing or damaged.
        """
        path = self.folder / file.name
        found, stamp = _open.get(path), _stamp(path)
        if found is None or found[:2] != (file, stamp):
            found = _open[path] = file, stamp, Segment(mapped(self.folder, file))
        return found[2]

    def manifests_beside(self) -> list[tuple[str, Manifest]]:
        """The folder and a manifest of each store of the same pipeline, also of this one."""
        folders = sorted(self.folder.parents[1].glob(f"*/{FOLDER}"))
        return [(str(each), found) for each in folders for found in StateStore(each).manifests()]

    def link(self, folder: str, files: Iterable[SegmentFile]) -> None:
        """Share segments of another store; `OSError` if one is gone, or on another disk."""
        for file in files:
            with contextlib.suppress(FileExistsError):
                os.link(Path(folder, file.name), self.folder / file.name)

    def save(self, manifest: Manifest) -> None:
        """Write a batch's manifest, and remove what the last ones do not need."""
        self._write(manifest)
        self._remove_unneeded(manifest.batch)
        self.publish()

    def fill(self, manifest: Manifest) -> None:
        """Write the manifest of a batch that others may have followed since."""
        self._write(manifest)
        self.publish()

    def publish(self) -> None:
        """Give other hosts what the manifests name, and remove the rest; nothing on one host."""

    def _write(self, manifest: Manifest) -> None:
        text = manifest.to_json()
        # Named by its checksum, so that a file of one name never changes.
        path = self.folder / f"{MANIFEST}{manifest.batch}-{text.partition(' ')[0]}.json"
        # Segments are not durable, either: what a power failure damages is computed anew.
        replace_text(path, text, durable=False)
        for other in self._manifest_paths():
            if _batch_of(other) == manifest.batch and other != path:
                other.unlink(missing_ok=True)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Held while the rows that a batch keeps are written; the next batch waits for it.

        Raises `StateError` if the folder was deleted.
        """
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder / _WRITING, create=True))
            except OSError as error:
                raise StateError(f"{self.folder} cannot be locked: {error}") from error
            yield

    def merging(self) -> AbstractContextManager[bool]:
        """Whether this process may merge segments beside the batches: one at a time does."""
        return locked(self.folder, wait_s=0)

    def record(self, merge: Merge) -> None:
        """Write the record of a merge, which later batches use."""
        path = self.folder / f"merge-{merge.output.name}.json"
        replace_text(path, merge.to_json())

    def merged(self, arrangements: Mapping[str, Segments]) -> dict[str, Segments]:
        """The segments of arrangements, with merges applied that are done."""
        found = dict(arrangements)
        for merge in self.merges():
            found = {name: merge.applied(files) for name, files in found.items()}
        return found

    def merges(self) -> list[Merge]:
        """The merges that are done, but not in a manifest."""
        return [merge for _, merge in self._recorded()]

    def _recorded(self) -> Iterator[tuple[Path, Merge]]:
        for path in self.folder.glob("merge-*.json"):
            with contextlib.suppress(OSError, UnicodeDecodeError, StateError):
                yield path, Merge.from_json(path.read_text())

    def clear(self) -> None:
        """Remove all."""
        for path in [path for path in list(_open) if path.parent == self.folder]:
            _open.pop(path, None)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.publish()

    def _remove_unneeded(self, batch: int) -> None:
        # A checkpoint that was set back numbers its batches anew.
        for path in self._manifest_paths():
            if _batch_of(path) > batch:
                path.unlink(missing_ok=True)
        manifests = self.manifests()
        before = (each for each in manifests if each.batch < batch and each.arrangements)
        needed = [*manifests[:MANIFESTS_KEPT], *itertools.islice(before, 1)]
        batches = {manifest.batch for manifest in needed}
        for path in self._manifest_paths():
            if _batch_of(path) not in batches:
                path.unlink(missing_ok=True)
        files = set().union(*(manifest.files for manifest in needed))
        for path, merge in self._recorded():
            if files.issuperset(merge.inputs) and merge.output.name not in files:
                files.add(merge.output.name)
            else:
                path.unlink(missing_ok=True)
        due = time.time() - LEFT_OVER_S
        for path in self.folder.glob("*.arrow"):
            if path.name not in files:
                with contextlib.suppress(OSError):
                    # The time of a link, which is not that of the last write.
                    if path in _open or path.stat().st_ctime < due:
                        _open.pop(path, None)
                        path.unlink()

    def _manifest_paths(self) -> list[Path]:
        return [path for path in self.folder.glob(f"{MANIFEST}*.json") if _batch_of(path) >= 0]


def _batch_of(manifest: Path) -> int:
    """The batch of a manifest's file; -1 for another file."""
    number = manifest.name.removeprefix(MANIFEST).partition("-")[0]
    return int(number) if number.isdigit() else -1


def _stamp(path: Path) -> _Stamp:
    try:
        stat = path.stat()
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
