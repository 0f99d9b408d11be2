"""A local folder that has some of the metadata of a table in an object store.

It has the layout of a table, so the Rust core opens it as one. Manifests and lists of manifests
never change, so each is fetched once. Snapshots are those that the caller knows to be current.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pypaimon_rust.datafusion import Table as RustTable

from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel
from streamhouse.work_folder import work_folder

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_PREFIX = "streamhouse-metadata-"
LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")
_PARTS = ("snapshot", "schema", "manifest")
_MOST_HELD = 64
_MOST_BYTES = 64 << 20
_MEMORY = "/dev/shm"
_LEAST_FREE_BYTES = 1 << 30
_folders: dict[int, str] = {}


class MirrorFolder:
    """The local folder of one followed table; not for several threads at once.

    Raises `OSError` for metadata that is gone or large, `StoreError` if the store fails.
    """

    def __init__(self, table: Table, files: ObjectFiles, snapshots: FollowedSnapshots) -> None:
        self.files, self.snapshots = files, snapshots
        self.root, self.schema = table.root, table.schema
        self.path = os.path.join(tempfile.mkdtemp(dir=_process_folder()), "db.db", "table")
        for part in _PARTS:
            os.makedirs(os.path.join(self.path, part))
        self._write(f"schema/schema-{self.schema['id']}", json.dumps(self.schema).encode())
        self._held = 0
        self.newest = 0
        """The newest snapshot that it holds."""
        self.etag: str | None = None
        """The ETag of that snapshot in the store."""

    @property
    def is_full(self) -> bool:
        """Whether it is time for a new folder: this one has manifests that are not needed."""
        return self._held >= _MOST_HELD

    def open(self, schema: Mapping[str, Any]) -> Any:
        """The Rust core's table on this folder; `schema` has the options to read or write with."""
        return RustTable.from_resolved_schema(
            self.path, json.dumps(schema), database="db", table="table"
        )

    def hold(
        self, first: int, last: int, manifests: bool = True, lists: Sequence[str] = LISTS
    ) -> bool:
        """Hold the snapshots from `first` to `last`, which is then the newest one.

        Also their lists of manifests, and with `manifests` what these name. False if
        `FollowedSnapshots` does not have them all.
        """
        # Before the texts: a commit on top of them must fail if they have just been replaced.
        etag = self.snapshots.etag(last)
        texts = self.snapshots.texts(first, last)
        if not texts:
            return False
        records = [json.loads(text) for text in texts]
        keys = (*lists, "indexManifest")
        names = {entry[key] for entry in records for key in keys if entry.get(key)}
        self._fetch(names)
        if manifests:
            named = {entry[key] for entry in records for key in lists if entry.get(key)}
            sizes = {name: size for entry in named for name, size in self._named_by(entry).items()}
            missing = sum(size for name, size in sizes.items() if not self._has(name))
            if missing > _MOST_BYTES:
                raise OSError(f"{missing} bytes of manifests are not here")
            self._fetch(set(sizes))
        self._remove_after(last)
        for record, text in zip(records, texts, strict=True):
            self._write(f"snapshot/snapshot-{record['id']}", text.encode())
        self._write("snapshot/LATEST", str(last).encode())
        self._held += 1
        self.newest, self.etag = last, etag
        return True

    def names(self) -> set[str]:
        """The files, relative to the folder, without snapshots and schemas."""
        found = set()
        for folder, _, files in os.walk(self.path):
            part = os.path.relpath(folder, self.path)
            if part.split(os.sep)[0] not in ("snapshot", "schema"):
                found |= {os.path.join(part, name) for name in files}
        return found

    def data_files(self) -> set[str]:
        """The data files, relative to the folder."""
        return {name for name in self.names() if not name.startswith("manifest/")}

    def upload(self, names: Sequence[str]) -> None:
        """Copy files from here to the store."""
        run_parallel(self.uploads(names))

    def uploads(self, names: Sequence[str]) -> list[Callable[[], None]]:
        """The calls that copy files from here to the store."""
        return [partial(self._upload, name) for name in names]

    def read(self, name: str) -> bytes | None:
        """A file's content; None if there is none."""
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def delete(self, names: Iterable[str]) -> None:
        """Delete files from here."""
        for name in names:
            os.remove(os.path.join(self.path, name))

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(os.path.dirname(os.path.dirname(self.path)), ignore_errors=True)

    def _upload(self, name: str) -> None:
        content = self.read(name)
        assert content is not None
        self.files.put(f"{self.root}/{name}", content)

    def fetch(self, names: Sequence[str]) -> None:
        """Copy files from the store to here; `FileNotFoundError` if one is gone."""
        run_parallel([partial(self._fetch_one, name) for name in names])

    def _fetch(self, names: set[str]) -> None:
        self.fetch([f"manifest/{name}" for name in sorted(names) if not self._has(name)])

    def _has(self, name: str) -> bool:
        """Whether a file is here, or can be linked to one in another folder of this machine."""
        if os.path.exists(self._place(name)):
            return True
        for folder in self.snapshots.peer_folders:
            with suppress(OSError):
                os.link(f"{folder}/manifest/{name}", self._place(name))
                return True
        return False

    def _fetch_one(self, name: str) -> None:
        found = self.files.get(f"{self.root}/{name}")
        if found is None:
            raise FileNotFoundError(f"{self.root}/{name}")
        os.makedirs(os.path.dirname(os.path.join(self.path, name)), exist_ok=True)
        self._write(name, found[0])

    def _named_by(self, name: str) -> dict[str, int]:
        """The manifests that a list names, and their sizes."""
        # Imported here, since it takes 24 ms, and tables on local disks never need it.
        import fastavro

        with open(self._place(name), "rb") as file:
            records: Any = fastavro.reader(file)
            return {str(record["_FILE_NAME"]): int(record["_FILE_SIZE"]) for record in records}

    def _remove_after(self, number: int) -> None:
        """Remove snapshots after this one: the table was rolled back, or a plan ends earlier."""
        for name in os.listdir(os.path.join(self.path, "snapshot")):
            found = name.removeprefix("snapshot-")
            if found.isdigit() and int(found) > number:
                os.remove(os.path.join(self.path, "snapshot", name))

    def _place(self, name: str) -> str:
        return os.path.join(self.path, "manifest", name)

    def _write(self, name: str, content: bytes) -> None:
        path = os.path.join(self.path, name)
        # Complete under its name: another thread's error may have ended a fetch half-way.
        with open(f"{path}.tmp", "wb") as file:
            file.write(content)
        os.replace(f"{path}.tmp", path)


def _memory() -> str | None:
    """A file system in memory, if it has room: the Rust core makes each file durable (`fsync`).

    What is here is only a copy, so it need not survive.
    """
    if not os.access(_MEMORY, os.W_OK):
        return None
    found = os.statvfs(_MEMORY)
    return _MEMORY if found.f_bavail * found.f_frsize >= _LEAST_FREE_BYTES else None


def _process_folder() -> str:
    """This process's folder for all of them, deleted when it ends."""
    folder = _folders.get(os.getpid())
    if folder is None:
        stack = ExitStack()
        folder = _folders[os.getpid()] = stack.enter_context(work_folder(_PREFIX, _memory()))
        atexit.register(stack.close)
    return folder


_free: list[tuple[tuple[object, ...], MirrorFolder]] = []
"""The folders that no block has, each with what it is for; the one used last is the last."""


@contextmanager
def borrowed(table: Table, most: int | None = None) -> Iterator[MirrorFolder]:
    """A folder of a table with `object_store_parts`, for the block alone.

    It is removed if the block raises, or it is full. `most`: it also has data files, and at most
    so many such folders are kept.
    """
    parts = object_store_parts(table)
    assert parts is not None
    use = (os.getpid(), *parts[0].store, most)
    key = (*use, table.root, table.schema["id"])
    folder = _taken(key, 0) or MirrorFolder(table, *parts)
    try:
        yield folder
    except BaseException:
        folder.remove()
        raise
    if folder.is_full or not os.path.isdir(folder.path):
        folder.remove()
        return
    _free.append((key, folder))
    if most is not None and (oldest := _taken(use, most)) is not None:
        oldest.remove()


def _taken(use: tuple[object, ...], but: int) -> MirrorFolder | None:
    """The oldest free folder of a use, unless there are at most so many; it is free no more."""
    found = [each for each in list(_free) if each[0][: len(use)] == use]
    for each in found[: len(found) - but]:
        # Another thread may have taken it.
        with suppress(ValueError):
            _free.remove(each)
            return each[1]
    return None


def object_store_parts(table: Table) -> tuple[ObjectFiles, FollowedSnapshots] | None:
    """The files and snapshots of a followed table in an object store.

    None for others, for branches, and for tables whose commits a REST server decides.
    """
    files, snapshots = table.files, table.snapshots
    if not isinstance(files, ObjectFiles) or not isinstance(snapshots, FollowedSnapshots):
        return None
    if table.root != table.location or table.catalog_options.get("metastore") == "rest":
        return None
    return files, snapshots
