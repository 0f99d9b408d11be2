"""Files in a warehouse: local ones, or objects of S3-compatible stores."""

import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from streamhouse.durable_files import replace_text
from streamhouse.errors import OptionError
from streamhouse.sql.options.store_options import is_object_store, s3_location


class Files(Protocol):
    """The file system operations that tables need; paths have the form of `Table.location`."""

    def read_text(self, path: str) -> str | None:
        """The text of a file; None if there is no such file."""

    def exists(self, path: str) -> bool: ...

    def names(self, path: str) -> list[tuple[str, bool]]:
        """Names in a directory and whether each is a directory; empty if there is none."""

    def stamp(self, path: str) -> object | None:
        """A value that changes when the file does; None if it is missing, or if there is none."""

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Create a file, with its directories, and open it to write bytes.

        In an object store it appears when the block ends, unless that raises.
        """

    def write_text(self, path: str, text: str) -> None:
        """Replace a small file atomically: a reader sees the old text or the new one."""

    def modified_s(self, path: str) -> float | None:
        """When a file was last written (epoch seconds); None if there is no such file."""

    def open_input(self, path: str) -> Any: ...

    def copy(self, source: str, target: str) -> None:
        """Copy or replace a file; in an object store no content passes this machine.

        `FileNotFoundError` if the source is missing.
        """

    def delete(self, path: str) -> None:
        """Delete a file or a whole directory, if it is there."""


class LocalFiles:
    """Files of a mounted file system."""

    def read_text(self, path: str) -> str | None:
        try:
            with open(local_path(path), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(local_path(path))

    def names(self, path: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(local_path(path)) as entries:
                return [(entry.name, entry.is_dir()) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def stamp(self, path: str) -> object | None:
        try:
            stat = os.stat(local_path(path))
        except FileNotFoundError:
            return None
        return (stat.st_ino, stat.st_mtime_ns, stat.st_size)

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        os.makedirs(os.path.dirname(local_path(path)), exist_ok=True)
        return open(local_path(path), "xb")

    def write_text(self, path: str, text: str) -> None:
        target = Path(local_path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_text(target, text, durable=False)

    def modified_s(self, path: str) -> float | None:
        try:
            return os.stat(local_path(path)).st_mtime
        except FileNotFoundError:
            return None

    def open_input(self, path: str) -> Any:
        return open(local_path(path), "rb")

    def copy(self, source: str, target: str) -> None:
        os.makedirs(os.path.dirname(local_path(target)), exist_ok=True)
        shutil.copyfile(local_path(source), local_path(target))

    def delete(self, path: str) -> None:
        target = local_path(path)
        if os.path.isdir(target):
            shutil.rmtree(target, ignore_errors=True)
        else:
            with suppress(FileNotFoundError):
                os.remove(target)


def names_after(files: Files, folder: str, prefix: str) -> list[str]:
    """What follows `prefix` in the names of a folder that begin with it, sorted."""
    names = (name for name, _ in files.names(folder) if name.startswith(prefix))
    return sorted(name.removeprefix(prefix) for name in names)


def numbered_files(files: Files, folder: str, prefix: str) -> list[int]:
    """The numbers of the files in a folder that are named `prefix` and a number."""
    return [int(rest) for rest in names_after(files, folder, prefix) if rest.isdigit()]


def local_path(path: str) -> str:
    """The path in the local file system of a plain path or a `file:` URI."""
    return unquote(urlparse(path).path) if path.startswith("file:") else path


def is_local(path: str) -> bool:
    return path.startswith("file:") or "://" not in path


_opened: dict[str, Mapping[str, str]] = {}


def options_of(location: str) -> Mapping[str, str]:
    """The catalog's options with which this process has opened a location, or a folder above it.

    Locks are named by a location alone. Those of the last `remember` count.
    """
    wanted = s3_location(location).rstrip("/")
    if wanted in _opened:
        return _opened[wanted]
    above = [known for known in _opened if wanted.startswith(f"{known}/")]
    return _opened[max(above, key=len)] if above else {}


def remember(location: str, options: Mapping[str, str]) -> None:
    """Note the catalog's options of a location, for `options_of`."""
    place = local_path(location) if is_local(location) else s3_location(location)
    _opened[place.rstrip("/")] = options


def files_of(location: str, options: Mapping[str, str]) -> Files:
    """The file system of a location, with the catalog's options (such as `s3.*`).

    Raises `OptionError` for another one, which a REST catalog may name.
    """
    remember(location, options)
    if is_local(location):
        return LocalFiles()
    if is_object_store(location):
        from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
        from streamhouse.paimon.storage.object_store.s3_client import check_bucket

        check_bucket(options, location)
        return ObjectFiles(location, options)
    raise OptionError(
        f"a table is at {location.partition('://')[0]}://…, which is not supported; its files must "
        "be in a folder, or at s3://bucket/path (also s3a://, s3n://, oss://)"
    )
