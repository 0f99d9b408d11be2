"""The jars of Paimon's Java core: downloaded once by Spark's resolver, and cached."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.jvm import JavaProcess, spark_jars
from streamhouse.progress_timer import ticking

_FETCH_SECONDS = 600.0
_PROGRESS_SECONDS = 2.0
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class DownloadError(Exception):
    """The jars could not be downloaded; the text is the reason."""


@contextmanager
def download_lock(lock: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock that the system releases when this process dies.

    Raises `StreamhouseError` if its folder cannot be written; `otherwise` says what to set instead.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise StreamhouseError(
            f"the cache folder '{lock.parent}' cannot be written ({error.strerror}); set "
            f"XDG_CACHE_HOME to a writable folder, or {otherwise}"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def download(
    coordinates: str, work: Path, title: str, progress: Callable[[], str], dependencies: bool
) -> list[Path]:
    """Download an artifact, with `dependencies` these too; the resolver's cache is `work`.

    After two seconds it prints to stderr every two seconds `title` and `progress`, how much there
    is. Raises `DownloadError`, after ten minutes at the latest.
    """
    # The resolver fails for an artifact of which mvn has left only the POM in ~/.m2.
    options = [*_JAVA, f"-Duser.home={work}"]
    with (
        JavaProcess(spark_jars(), options) as process,
        _with_progress(process, title, progress),
    ):
        jvm = process.jvm
        try:
            resolved = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
                dependencies, "", coordinates, "", str(work), jvm.scala.Option.apply(None)
            )
            return [Path(path) for path in str(resolved.mkString(",")).split(",") if path]
        except Py4JError as error:
            reason = "no answer in 10 minutes" if not process.alive else _first_line(error)
            raise DownloadError(reason) from None


@contextmanager
def _with_progress(process: JavaProcess, title: str, progress: Callable[[], str]) -> Iterator[None]:
    """Print progress to stderr every 2 seconds, and kill the download after 10 minutes."""

    def tick(elapsed: float) -> None:
        text = f"fetching {title} (once): {progress()}, {elapsed:.0f} s"
        print(text, file=sys.stderr, flush=True)
        if elapsed > _FETCH_SECONDS:
            process.kill()

    with ticking(tick, _PROGRESS_SECONDS, _PROGRESS_SECONDS):
        yield


def _first_line(error: Py4JError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if line.startswith(": "):
            return line[2:]
    return lines[0] if lines else "no reason given"


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
