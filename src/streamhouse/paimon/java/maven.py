"""Downloads jars by Spark's resolver, so settings of Ivy and Maven apply."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    with (
        JavaProcess(spark_jars(), list(_JAVA)) as process,
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
