"""The jars of Paimon's Java core: downloaded once by Spark's resolver, and cached."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError

from streamhouse.durable_files import locked
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.jvm import JavaProcess, spark_jars
from streamhouse.progress_timer import ticking

_FETCH_SECONDS = 600.0
_PROGRESS_SECONDS = 2.0
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class _DownloadError(Exception):
    """The jars could not be downloaded; the text is the reason."""


@contextmanager
def _download_lock(lock: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock that the system releases when this process dies.

    Raises `StreamhouseError` if its folder cannot be written; `otherwise` says what to set instead.
    """
    with ExitStack() as held:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(lock, create=True))
        except OSError as error:
            raise StreamhouseError(
                f"the cache folder '{lock.parent}' cannot be written ({error.strerror}); set "
                f"XDG_CACHE_HOME to a writable folder, or {otherwise}"
            ) from None
        yield


def download(
    coordinates: str, work: Path, title: str, progress: Callable[[], str], dependencies: bool
) -> list[Path]:
    """Download an artifact, with `dependencies` these too; the resolver's cache is `work`.

    After two seconds it prints to stderr every two seconds `title` and `progress`, how much there
    is. Raises `_DownloadError`, after ten minutes at the latest.
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
            raise _DownloadError(reason) from None


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
class Artifact:
    """What is downloaded once: a jar, or with `dependencies` a folder of jars.

    `variable` names an environment variable: a path that takes precedence.
    """

    title: str
    coordinates: str
    variable: str
    dependencies: bool = False

    @property
    def name(self) -> str:
        """Its name in the cache folder."""
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}" + ("" if self.dependencies else ".jar")

    @property
    def _kind(self) -> str:
        return "a folder of jars" if self.dependencies else "a file"

    def path(self) -> Path:
        """Where it is; downloads it if it is not there yet.

        Of concurrent processes one downloads it, and the others wait. Raises `StreamhouseError`.
        """
        configured = os.environ.get(self.variable)
        if configured:
            path = Path(configured)
            if not (any(path.glob("*.jar")) if self.dependencies else path.is_file()):
                raise StreamhouseError(
                    f"{self.variable} is '{configured}', which is not {self._kind}; set it to the "
                    f"path of {self.name}, or unset it to have it fetched"
                )
            return path
        path = cache_folder() / self.name
        otherwise = f"{self.variable} to the path of {self.name}"
        if not path.exists():
            with _download_lock(path.with_name(f"{self.name}.lock"), otherwise):
                if not path.exists():
                    self._fetch(path)
        return path

    def _fetch(self, path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=path.parent) as folder:
            work = Path(folder)

            def progress() -> str:
                return f"{sum(map(_size, work.rglob('*.jar*'))) / 1e6:.0f} MB"

            try:
                found = download(self.coordinates, work, self.name, progress, self.dependencies)
                if self.dependencies:
                    os.replace(work / "jars", path)
                else:
                    if len(found) != 1 or not found[0].is_file():
                        raise _DownloadError("the resolver found no jar")
                    # It may be on another disk.
                    partial = work / self.name
                    shutil.move(found[0], partial)
                    os.replace(partial, path)
            except (_DownloadError, OSError) as error:
                raise StreamhouseError(
                    f"{self.title} ({self.coordinates}) could not be fetched: {error}; check the "
                    "network (Spark's resolver reads ivysettings and proxy settings as "
                    f"spark-submit does), or download it and set {self.variable} to its path"
                ) from None


_CORE = Artifact("Paimon's Java core", COORDINATES, JAR_VARIABLE)
_S3 = Artifact(
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


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


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
