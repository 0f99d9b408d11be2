"""The jars of a Kafka broker, downloaded once and cached.

`python -m streamhouse.demo.kafka.jars` fetches them ahead of time and prints their folder.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.jars import cache_folder
from streamhouse.paimon.java.jvm import JavaProcess, spark_jars

COORDINATES = "org.apache.kafka:kafka_2.13:4.1.2"
VARIABLE = "STREAMHOUSE_KAFKA_JARS"
_FOLDER = "kafka_2.13-4.1.2"
_FETCH_SECONDS = 600.0
_PROGRESS_SECONDS = 2.0


def kafka_jars() -> list[Path]:
    """The jars of a broker, fetched into the cache folder if they are not there yet.

    `STREAMHOUSE_KAFKA_JARS`, a folder of jars, takes precedence. Spark's resolver fetches them, so
    settings of Ivy and Maven apply. Of concurrent processes one fetches, and the others wait.
    Raises `StreamhouseError` if that fails.
    """
    configured = os.environ.get(VARIABLE)
    if configured:
        jars = sorted(Path(configured).glob("*.jar"))
        if not jars:
            raise StreamhouseError(
                f"{VARIABLE} is '{configured}', which has no jars; set it to the folder of "
                f"{COORDINATES} and its dependencies, or unset it to have them fetched"
            )
    else:
        folder = cache_folder() / _FOLDER
        if not folder.is_dir():
            with _locked(cache_folder() / f"{_FOLDER}.lock"):
                if not folder.is_dir():
                    _fetch(folder)
        jars = sorted(folder.glob("*.jar"))
    # Spark's resolver leaves out Scala's library, since Spark has it.
    return [*jars, *spark_jars(["scala-library*.jar"])]


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise StreamhouseError(
            f"the cache folder '{lock.parent}' cannot be written ({error.strerror}); set "
            f"XDG_CACHE_HOME to a writable folder, or {VARIABLE} to a folder with Kafka's jars"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as work:
        _resolve(Path(work))
        os.replace(Path(work) / "jars", folder)


def _resolve(work: Path) -> None:
    """Download the jars into `jars` in the folder `work`."""
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with JavaProcess(spark_jars(), options) as process, _with_progress(process, work):
        jvm = process.jvm
        try:
            resolved = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
                True, "", COORDINATES, "", str(work), jvm.scala.Option.apply(None)
            )
            resolved.mkString(",")
        except Py4JError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.startswith(": ")]
            reason = lines[0][2:] if lines else "no answer in 10 minutes"
            raise StreamhouseError(
                f"Kafka ({COORDINATES}) could not be fetched: {reason}; check the network, or set "
                f"{VARIABLE} to a folder with its jars"
            ) from None


@contextmanager
def _with_progress(process: JavaProcess, work: Path) -> Iterator[None]:
    done, began = threading.Event(), time.monotonic()

    def watch() -> None:
        while not done.wait(_PROGRESS_SECONDS):
            elapsed = time.monotonic() - began
            count = sum(1 for _ in (work / "jars").glob("*.jar"))
            print(f"fetching Kafka (once): {count} jars, {elapsed:.0f} s", file=sys.stderr)
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


def main() -> int:
    """Fetch the jars and print their folder."""
    try:
        print(kafka_jars()[0].parent)
    except StreamhouseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
