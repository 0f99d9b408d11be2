"""The jar of Paimon's Java core, downloaded once and cached.

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
from pathlib import Path

from py4j.protocol import Py4JError

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.jvm import JavaProcess, spark_jars

JAR_VARIABLE = "STREAMHOUSE_PAIMON_JAR"
COORDINATES = "org.apache.paimon:paimon-bundle:1.4.2"

_NAME = "paimon-bundle-1.4.2.jar"
_FETCH_SECONDS = 600.0
_PROGRESS_SECONDS = 2.0


def paimon_jar() -> Path:
    """The jar of Paimon's Java core, fetched into the cache folder when it is not there yet.

    `STREAMHOUSE_PAIMON_JAR`, a path, takes precedence; the cache is `streamhouse/jars` in
    `XDG_CACHE_HOME` (default `~/.cache`). Spark's own resolver fetches the jar, so settings of Ivy
    and Maven apply. Progress is printed to stderr if it takes longer than 2 seconds. Of concurrent
    processes one fetches, and the others wait. Raises `StreamhouseError` if that fails.
    """
    configured = os.environ.get(JAR_VARIABLE)
    if configured:
        path = Path(configured)
        if not path.is_file():
            raise StreamhouseError(
                f"{JAR_VARIABLE} is '{configured}', which is not a file; set it to the path of "
                f"{_NAME}, or unset it to have the jar fetched"
            )
        return path
    jar = cache_folder() / _NAME
    if not jar.is_file():
        with _locked(jar.with_suffix(".lock")):
            if not jar.is_file():
                _fetch(jar)
    return jar


def cache_folder() -> Path:
    """The folder that fetched jars are kept in; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "streamhouse" / "jars"


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Hold a lock that the system releases when this process dies."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise StreamhouseError(
            f"the cache folder '{lock.parent}' cannot be written ({error.strerror}); set "
            f"XDG_CACHE_HOME to a writable folder, or {JAR_VARIABLE} to the path of {_NAME}"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(jar: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=jar.parent) as work:
        fetched = _resolve(Path(work))
        partial = Path(work) / _NAME
        try:
            shutil.move(fetched, partial)
            os.replace(partial, jar)
        except OSError as error:
            raise StreamhouseError(_failure(error.strerror or str(error))) from None


def _resolve(work: Path) -> Path:
    """Download the jar with Spark's resolver, whose cache is `work`; returns its path."""
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with JavaProcess(spark_jars(), options) as process, _with_progress(process, work):
        jvm = process.jvm
        try:
            # The bundle shades its dependencies, so they are not resolved.
            resolved = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
                False, "", COORDINATES, "", str(work), jvm.scala.Option.apply(None)
            )
            paths = [Path(path) for path in str(resolved.mkString(",")).split(",") if path]
        except Py4JError as error:
            reason = "no answer in 10 minutes" if not process.alive else _first_line(error)
            raise StreamhouseError(_failure(reason)) from None
    if len(paths) != 1 or not paths[0].is_file():
        raise StreamhouseError(_failure("the resolver found no jar"))
    return paths[0]


@contextmanager
def _with_progress(process: JavaProcess, work: Path) -> Iterator[None]:
    """Print progress to stderr every 2 seconds, and kill the download after 10 minutes."""
    done = threading.Event()

    def watch() -> None:
        start = time.monotonic()
        while not done.wait(_PROGRESS_SECONDS):
            elapsed = time.monotonic() - start
            megabytes = sum(_size(file) for file in work.rglob("*.jar*")) / 1e6
            print(
                f"fetching {_NAME} (once): {megabytes:.0f} MB, {elapsed:.0f} s",
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


def _failure(reason: str) -> str:
    return (
        f"Paimon's Java core ({COORDINATES}) could not be fetched: {reason}; check the network "
        f"(Spark's resolver reads ivysettings and proxy settings as spark-submit does), or "
        f"download the jar and set {JAR_VARIABLE} to its path"
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
