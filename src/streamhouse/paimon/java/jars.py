"""The jars of Paimon's Java core, downloaded once and cached.

`python -m streamhouse.paimon.java.jars` fetches it ahead of time and prints its path.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.jvm import JavaProcess, spark_jars

JAR_VARIABLE = "STREAMHOUSE_PAIMON_JAR"
COORDINATES = "org.apache.paimon:paimon-bundle:1.4.2"

_FETCH_SECONDS = 600.0
_PROGRESS_SECONDS = 2.0


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
            with _locked(jar.with_suffix(".lock"), self):
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


@contextmanager
def _locked(lock: Path, jar: _Jar) -> Iterator[None]:
    """Hold a lock that the system releases when this process dies."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise StreamhouseError(
            f"the cache folder '{lock.parent}' cannot be written ({error.strerror}); set "
            f"XDG_CACHE_HOME to a writable folder, or {jar.variable} to the path of {jar.name}"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
    """Download the jar with Spark's resolver, whose cache is `work`; returns its path."""
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with JavaProcess(spark_jars(), options) as process, _with_progress(process, work, jar.name):
        jvm = process.jvm
        try:
            # The jars contain their dependencies, so those are not resolved.
            resolved = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
                False, "", jar.coordinates, "", str(work), jvm.scala.Option.apply(None)
            )
            paths = [Path(path) for path in str(resolved.mkString(",")).split(",") if path]
        except Py4JError as error:
            reason = "no answer in 10 minutes" if not process.alive else _first_line(error)
            raise StreamhouseError(_failure(jar, reason)) from None
    if len(paths) != 1 or not paths[0].is_file():
        raise StreamhouseError(_failure(jar, "the resolver found no jar"))
    return paths[0]


@contextmanager
def _with_progress(process: JavaProcess, work: Path, name: str) -> Iterator[None]:
    """Print progress to stderr every 2 seconds, and kill the download after 10 minutes."""
    done = threading.Event()

    def watch() -> None:
        start = time.monotonic()
        while not done.wait(_PROGRESS_SECONDS):
            elapsed = time.monotonic() - start
            megabytes = sum(_size(file) for file in work.rglob("*.jar*")) / 1e6
            print(
                f"fetching {name} (once): {megabytes:.0f} MB, {elapsed:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            if elapsed > _FETCH_SECONDS:
                process.kill()
                return

    thread = threading.Thread(target=watch, name="streamhouse-fetch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _first_line(error: Py4JError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if line.startswith(": "):
            return line[2:]
    return lines[0] if lines else "no reason given"


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
