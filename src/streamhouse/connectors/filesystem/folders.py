"""Where files are: a folder, also in an object store, and partitions as folders in Hive's style."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.filesystem.options import HIDDEN
from streamhouse.durable_files import fsync, replace_text
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.s3_client import check_bucket
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.sql.options.store_options import is_object_store
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

OWN_FOLDER = ".streamhouse"
"""Hidden from readers: staged files and commit logs."""
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^") | {chr(n) for n in (*range(32), 127)}
"""The characters that Hive escapes in names of folders, and the null character."""


@dataclass(frozen=True, order=True)
class ListedFile:
    """A file as it was listed.

    `name`: its path below the folder (`day=1/a.json`; empty: the path is a file); `size` in bytes;
    `modified_ms`: when it was written (epoch ms), None in offsets of earlier versions.
    """

    name: str
    size: int
    modified_ms: int | None = None


class StagedFile(NamedTuple):
    """A file that a task has written: where it is staged, and its final path in the folder.

    `staged` is a path in the folder, or an upload as `ObjectFiles` has it.
    """

    staged: str
    final: str


def is_hidden(name: str) -> bool:
    """Whether readers skip a file or folder of this name, as Hive and Spark do."""
    return name.startswith(HIDDEN)


def is_hidden_folder(name: str) -> bool:
    """The same of a folder; that of a partition (`_day=1`) is read."""
    return is_hidden(name) and "=" not in name


_PATH, _NAME, _SIZE, _MODIFIED = "file.path", "file.name", "file.size", "file.modification-time"


def metadata_values(columns: Sequence[Column], path: str, file: ListedFile) -> dict[str, pa.Scalar]:
    """The values of the METADATA columns for all rows of a file, by the columns' names."""
    found = {
        _PATH: pa.scalar(path),
        _NAME: pa.scalar(path.rpartition("/")[2]),
        _SIZE: pa.scalar(file.size, pa.int64()),
        _MODIFIED: pa.scalar(file.modified_ms, pa.int64()).cast(pa.timestamp("ms", "UTC")),
    }
    return {
        column.name: found[column.metadata].cast(arrow_type(column.type))
        for column in columns
        if column.metadata is not None
    }


class Folder:
    """The files of a table, below a path that all machines see."""

    def __init__(self, path: str) -> None:
        self._path = path

    def files(self) -> list[ListedFile]:
        """All files that are not hidden, the oldest first; none if the folder is missing."""
        root = Path(self._path)
        if root.is_file():
            return [_data_file("", root.stat())]
        if root.exists() and not root.is_dir():
            raise OptionError(f"option 'path': {root} is neither a folder nor a file")
        found = []
        for entry, name in _entries(self._path, ""):
            try:
                facts = entry.stat()
            except FileNotFoundError:
                continue
            found.append((facts.st_mtime_ns, _data_file(name, facts)))
        return [file for _, file in sorted(found)]

    def address(self, name: str) -> str:
        """The whole path of a file."""
        return os.path.join(self._path, name) if name else self._path

    def size(self, name: str) -> int | None:
        """The bytes of a file; None if it is gone."""
        try:
            return os.stat(self.address(name)).st_size
        except FileNotFoundError:
            return None

    def open(self, name: str) -> IO[bytes]:
        """Open a file to read it; it can seek."""
        return open(self.address(name), "rb", buffering=1 << 20)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Where a task writes files, below `OWN_FOLDER`, before it stages them."""
        yield Path(self._path)

    def stage(self, path: Path, final: str) -> str:
        """Keep a file of the workspace until it is published; returns `StagedFile.staged`."""
        fsync(path.parent)
        return str(path.relative_to(self._path))

    def staged(self, query_id: str) -> Iterator[StagedFile]:
        """The staged files of a query, which are neither published nor discarded."""
        for path in sorted(Path(self._path, OWN_FOLDER, query_id).rglob("*")):
            if path.is_file():
                yield StagedFile(str(path.relative_to(self._path)), path.name)

    def publish(self, file: StagedFile) -> bool:
        """Make a staged file visible; False if neither it nor the visible file is there."""
        staged, final = Path(self._path, file.staged), Path(self._path, file.final)
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            staged.rename(final)
        except FileNotFoundError:
            return final.exists()
        fsync(final.parent)
        self._remove_empty(staged.parent)
        return True

    def discard(self, file: StagedFile) -> None:
        """Delete a staged file, if it is still there."""
        self.delete(file.staged)

    def read_text(self, name: str) -> str | None:
        """The text of a file; None if there is none."""
        path = Path(self._path, name)
        return path.read_text() if path.exists() else None

    def write_text(self, name: str, text: str) -> None:
        """Create or replace a file, durably."""
        path = Path(self._path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, text)

    def delete(self, name: str) -> None:
        """Delete a file of `OWN_FOLDER`, if it is there."""
        path = Path(self._path, name)
        path.unlink(missing_ok=True)
        self._remove_empty(path.parent)

    def _remove_empty(self, folder: Path) -> None:
        """Remove the empty folders from `folder` up to `OWN_FOLDER`."""
        while folder != Path(self._path):
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


class ObjectFolder(Folder):
    """A prefix of a bucket of an S3-compatible store."""

    def __init__(self, path: str, store: Mapping[str, str]) -> None:
        super().__init__(path)
        self._store = store

    @cached_property
    def _objects(self) -> ObjectFiles:
        return objects_of(self._path, self._store)

    def files(self) -> list[ListedFile]:
        found = []
        for name, size, modified in retried(lambda: list(self._objects.entries(self._path))):
            *folders, file = name.split("/")
            if not is_hidden(file) and not any(map(is_hidden_folder, folders)):
                modified_ms = round(modified.timestamp() * 1000)
                found.append((modified, ListedFile(name, size, modified_ms)))
        return [file for _, file in sorted(found)]

    def address(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def size(self, name: str) -> int | None:
        return retried(lambda: self._objects.size(self.address(name)))

    def open(self, name: str) -> IO[bytes]:
        opened: IO[bytes] = retried(lambda: self._objects.open_input(self.address(name)))
        return opened

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="streamhouse-files-") as folder:
            yield Path(folder)

    def stage(self, path: Path, final: str) -> str:
        """Upload the parts of the object, and delete the local file."""
        upload = retried(lambda: self._objects.upload_parts(self.address(final), path))
        path.unlink()
        return upload

    def staged(self, query_id: str) -> Iterator[StagedFile]:
        """The uploads of all queries into the folder."""
        for address, upload in self._objects.uploads(self._path):
            final = address.removeprefix(f"{self._path}/")
            yield StagedFile(json.dumps({"id": upload, "parts": []}), final)

    def publish(self, file: StagedFile) -> bool:
        address = self.address(file.final)
        return retried(lambda: self._objects.complete_upload(address, file.staged))

    def discard(self, file: StagedFile) -> None:
        self._objects.abort_upload(self.address(file.final), file.staged)

    def read_text(self, name: str) -> str | None:
        return retried(lambda: self._objects.read_text(self.address(name)))

    def write_text(self, name: str, text: str) -> None:
        retried(lambda: self._objects.write_text(self.address(name), text))

    def delete(self, name: str) -> None:
        self._objects.delete_object(self.address(name))


def folder_of(path: str, store: Mapping[str, str]) -> Folder:
    """The folder at a checked path; `store`: the options of its object store."""
    return ObjectFolder(path, store) if is_object_store(path) else Folder(path)


def objects_of(path: str, store: Mapping[str, str]) -> ObjectFiles:
    """The objects of a folder; raises `StreamhouseError` if its bucket does not answer."""
    check_bucket(store, path)
    return ObjectFiles(path, store)


def _data_file(name: str, facts: os.stat_result) -> ListedFile:
    return ListedFile(name, facts.st_size, facts.st_mtime_ns // 1_000_000)


def _entries(folder: str, below: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                if entry.is_dir():
                    if not is_hidden_folder(entry.name):
                        yield from _entries(entry.path, f"{name}/")
                elif entry.is_file() and not is_hidden(entry.name):
                    yield entry, name
    except FileNotFoundError:
        return


def escaped(text: str) -> str:
    """A value as Hive writes it in the name of a folder."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def split_rows(
    rows: pa.RecordBatch, columns: Sequence[str], default_name: str
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each partition, without the partition columns, with its folder; in order."""
    others = [name for name in rows.schema.names if name not in columns]
    if not columns:
        yield "", rows
        return
    folders = _folders(rows, columns, default_name).dictionary_encode()
    codes = folders.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(folders.dictionary) + 1))
    values = rows.select(others)
    for number, folder in enumerate(folders.dictionary.to_pylist()):
        mine = order[bounds[number] : bounds[number + 1]]
        yield folder, values.take(pa.array(mine))


def _folders(rows: pa.RecordBatch, columns: Sequence[str], default_name: str) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    for number, name in enumerate(columns):
        encoded = _texts(name, rows.column(name)).dictionary_encode()
        texts = [escaped(value) or default_name for value in encoded.dictionary.to_pylist()]
        values = pa.array(texts, pa.string()).take(encoded.indices)
        parts += [
            pa.scalar(("/" if number else "") + f"{escaped(name)}="),
            pc.fill_null(values, default_name),
        ]
    return pc.binary_join_element_wise(*parts, pa.scalar(""))


def _texts(name: str, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowException as error:
        raise TableError(
            f"filesystem: a value of the partition column '{name}' cannot be the name of a folder "
            f"({error}); write it as text, such as by ENCODE or CAST"
        ) from None


def partition_values(
    folder: str, columns: Sequence[pa.Field], default_name: str
) -> dict[str, pa.Scalar]:
    """The values of partition columns in the path of a folder; `TableError` if one is missing."""
    found: dict[str, str] = {}
    for part in folder.split("/"):
        name, mark, value = part.partition("=")
        if mark:
            found[unquote(name)] = value
    values = {}
    for field in columns:
        if field.name not in found:
            raise TableError(
                f"filesystem: the folder '{folder}' names no value of the partition column "
                f"'{field.name}'; expected a folder such as '{field.name}=…'"
            )
        values[field.name] = _value(field, found[field.name], default_name)
    return values


def _value(field: pa.Field, text: str, default_name: str) -> pa.Scalar:
    if text == default_name:
        if not field.nullable:
            raise TableError(
                f"filesystem: the folder '{field.name}={text}' stands for null, but the partition "
                "column is NOT NULL; rename the folder, or declare the column without NOT NULL"
            )
        return pa.scalar(None, field.type)
    try:
        texts = pa.array([unquote(text)])
        if pa.types.is_time(field.type):
            texts = pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us"))
        return texts.cast(field.type)[0]
    except pa.ArrowException:
        raise TableError(
            f"filesystem: the folder '{field.name}={text}' is not a value of the partition "
            f"column, which is {field.type}; rename the folder, or declare the column as STRING"
        ) from None
