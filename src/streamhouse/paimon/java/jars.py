"""The jars of Paimon's Java core, downloaded once and cached.

`python -m streamhouse.paimon.java.jars` fetches it ahead of time and prints its path.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.maven import DownloadError, download, download_lock

JAR_VARIABLE = "STREAMHOUSE_PAIMON_JAR"
COORDINATES = "org.apache.paimon:paimon-bundle:1.4.2"


@dataclass(frozen=True)
class _Jar:
    """A jar: what it is, its Maven coordinates, and the variable that may name its path."""

    title: str
    coordinates: str
    variable: str

    @property
    def name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"

    def path(self) -> Path:
        configured = os.environ.get(self.variable)
        if configured:
            path = Path(configured)
            if not path.is_file():
                raise StreamhouseError(
                    f"{self.variable} is '{configured}', which is not a file; set it to the path "
                    f"of {self.name}, or unset it to have the jar fetched"
                )
            return path
        jar = cache_folder() / self.name
        if not jar.is_file():
            otherwise = f"{self.variable} to the path of {self.name}"
            with download_lock(jar.with_suffix(".lock"), otherwise):
                if not jar.is_file():
                    _fetch(self, jar)
        return jar


_CORE = _Jar("Paimon's Java core", COORDINATES, JAR_VARIABLE)
_S3 = _Jar(
    "Paimon's file system for S3",
    "org.apache.paimon:paimon-s3:1.4.2",
    "STREAMHOUSE_PAIMON_S3_JAR",
)


def paimon_jar() -> Path:
    """The jar of Paimon's Java core, fetched into the cache folder when it is not there yet.

    `STREAMHOUSE_PAIMON_JAR`, a path, takes precedence; the cache is `streamhouse/jars` in
    `XDG_CACHE_HOME` (default `~/.cache`). Spark's own resolver fetches the jar, so settings of Ivy
    and Maven apply. Progress is printed to stderr if it takes longer than 2 seconds. Of concurrent
    processes one fetches, and the others wait. Raises `StreamhouseError` if that fails.
    """
    return _CORE.path()


def s3_jar() -> Path:
    """The jar with which the Java core accesses S3; as `paimon_jar`, `STREAMHOUSE_PAIMON_S3_JAR`.

    It is needed for warehouses in object stores only.
    """
    return _S3.path()


def cache_folder() -> Path:
    """The folder that fetched jars are kept in; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "streamhouse" / "jars"


def _fetch(jar: _Jar, path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=path.parent) as work:
        fetched = _resolve(jar, Path(work))
        partial = Path(work) / jar.name
        try:
            shutil.move(fetched, partial)
            os.replace(partial, path)
        except OSError as error:
            raise StreamhouseError(_failure(jar, error.strerror or str(error))) from None


def _resolve(jar: _Jar, work: Path) -> Path:
    """Download the jar into the folder `work`; returns its path."""

    def progress() -> str:
        return f"{sum(_size(file) for file in work.rglob('*.jar*')) / 1e6:.0f} MB"

    try:
        # The jars contain their dependencies, so those are not resolved.
        paths = download(jar.coordinates, work, jar.name, progress, dependencies=False)
    except DownloadError as error:
        raise StreamhouseError(_failure(jar, str(error))) from None
    if len(paths) != 1 or not paths[0].is_file():
        raise StreamhouseError(_failure(jar, "the resolver found no jar"))
    return paths[0]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _failure(jar: _Jar, reason: str) -> str:
    return (
        f"{jar.title} ({jar.coordinates}) could not be fetched: {reason}; check the network "
        f"(Spark's resolver reads ivysettings and proxy settings as spark-submit does), or "
        f"download the jar and set {jar.variable} to its path"
    )


def main() -> int:
    """Fetch the jar and print where it is."""
    try:
        print(paimon_jar())
    except StreamhouseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
