"""Jars that are no part of Spark: downloaded once by Spark's resolver, and cached."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError

from streamhouse.background import ticking
from streamhouse.durable_files import locked
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.jvm import JavaProcess, spark_jars

_FETCH_SECONDS = 600.0
_PROGRESS_SECONDS = 2.0
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SPARK_JARS = (
    "hadoop-client-*.jar",
    "slf4j-api-*.jar",
    "commons-*.jar",
    "snappy-java-*.jar",
    "zstd-jni-*.jar",
    "lz4-java-*.jar",
    "aircompressor-*.jar",
)
JAR_VARIABLE = "STREAMHOUSE_PAIMON_JAR"
COORDINATES = "org.apache.paimon:paimon-bundle:1.4.2"


@dataclass(frozen=True)
class Artifact:
    """A jar, or with `dependencies` a folder of jars: what it is, its Maven coordinates, and the
    environment variable that may name its path."""

    title: str
    coordinates: str
    variable: str
    dependencies: bool = False

    def path(self) -> Path:
        """Its path; fetches it into the cache folder when it is not there yet.

        The path in `variable` takes precedence; the cache is `streamhouse/jars` in `XDG_CACHE_HOME`
        (default `~/.cache`). Spark's own resolver fetches jars, so settings of Ivy and Maven apply.
        Progress is printed to stderr if it takes longer than 2 seconds. Of concurrent processes one
        fetches, and the others wait. Raises `StreamhouseError` if that fails.
        """
        _, artifact, version = self.coordinates.split(":")
        stem = f"{artifact}-{version}"
        name = f"the folder {stem}" if self.dependencies else f"{stem}.jar"
        configured = os.environ.get(self.variable)
        if configured:
            path = Path(configured)
            if not (any(path.glob("*.jar")) if self.dependencies else path.is_file()):
                wrong = "has no jars" if self.dependencies else "is not a file"
                raise StreamhouseError(
                    f"{self.variable} is '{configured}', which {wrong}; set it to the path of "
                    f"{name}, or unset it to have it fetched"
                )
            return path
        folder = cache_folder()
        path = folder / (stem if self.dependencies else f"{stem}.jar")
        if path.exists():
            return path
        lock = folder / f"{stem}.lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.touch()
        except OSError as error:
            raise StreamhouseError(
                f"the cache folder '{folder}' cannot be written ({error.strerror}); set "
                f"XDG_CACHE_HOME to a writable folder, or {self.variable} to the path of {name}"
            ) from None
        with locked(lock):
            if not path.exists():
                self._fetch(path)
        return path

    def _fetch(self, path: Path) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="fetch-", dir=path.parent) as work:
                fetched = download(self.coordinates, Path(work), path.name, self.dependencies)
                os.replace(Path(work) / "jars" if self.dependencies else fetched[0], path)
        except (DownloadError, OSError) as error:
            raise StreamhouseError(
                f"{self.title} ({self.coordinates}) could not be fetched: {error}; check the "
                "network (Spark's resolver reads ivysettings and proxy settings as spark-submit "
                f"does), or download it and set {self.variable} to its path"
            ) from None


# These have their dependencies inside, which are not resolved.
_CORE = Artifact("Paimon's Java core", COORDINATES, JAR_VARIABLE)
S3_JAR = Artifact(
    "Paimon's file system for S3",
    "org.apache.paimon:paimon-s3:1.4.2",
    "STREAMHOUSE_PAIMON_S3_JAR",
)
"""With which the Java core accesses S3; needed for warehouses in object stores only."""


def paimon_jar() -> Path:
    """The jar of Paimon's Java core; `STREAMHOUSE_PAIMON_JAR` may name its path."""
    return _CORE.path()


def classpath() -> list[Path]:
    """The jars of the sidecar's JVM: Paimon's, fetched if it is not there, and some of Spark's."""
    return [paimon_jar(), *spark_jars(_SPARK_JARS)]


def cache_folder() -> Path:
    """The folder that fetched jars are kept in; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "streamhouse" / "jars"


class DownloadError(Exception):
    """The jars could not be downloaded; the text is the reason."""


def download(coordinates: str, work: Path, title: str, dependencies: bool) -> list[Path]:
    """Download an artifact, with `dependencies` these too, to `jars` in the folder `work`.

    After two seconds it prints to stderr every two seconds `title`, and how much there is. Raises
    `DownloadError`, after ten minutes at the latest.
    """
    # The resolver fails for an artifact of which mvn has left only the POM in ~/.m2.
    options = [*_JAVA, f"-Duser.home={work}"]
    with JavaProcess(spark_jars(), options) as process:

        def tick(elapsed: float) -> None:
            size = f"{sum(map(_size, work.rglob('*.jar*'))) / 1e6:.0f} MB"
            text = f"fetching {title} (once): {size}, {elapsed:.0f} s"
            print(text, file=sys.stderr, flush=True)
            if elapsed > _FETCH_SECONDS:
                process.kill()

        jvm = process.jvm
        try:
            with ticking(tick, _PROGRESS_SECONDS, _PROGRESS_SECONDS):
                resolved = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
                    dependencies, "", coordinates, "", str(work), jvm.scala.Option.apply(None)
                )
            paths = [Path(path) for path in str(resolved.mkString(",")).split(",") if path]
        except Py4JError as error:
            reason = "no answer in 10 minutes" if not process.alive else _first_line(error)
            raise DownloadError(reason) from None
    if not paths or not all(path.is_file() for path in paths):
        raise DownloadError("the resolver found no jar")
    return paths


def _first_line(error: Py4JError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if line.startswith(": "):
            return line[2:]
    return lines[0] if lines else "no reason given"


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
