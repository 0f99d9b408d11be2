"""The jars of a Kafka broker, downloaded once and cached.

`python -m streamhouse.demo.kafka.jars` fetches them ahead of time and prints their folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.jars import DownloadError, cache_folder, download, download_lock
from streamhouse.paimon.java.jvm import spark_jars

COORDINATES = "org.apache.kafka:kafka_2.13:4.1.2"
VARIABLE = "STREAMHOUSE_KAFKA_JARS"
_FOLDER = "kafka_2.13-4.1.2"


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
            otherwise = f"{VARIABLE} to a folder with Kafka's jars"
            with download_lock(cache_folder() / f"{_FOLDER}.lock", otherwise):
                if not folder.is_dir():
                    _fetch(folder)
        jars = sorted(folder.glob("*.jar"))
    # Spark's resolver leaves out Scala's library, since Spark has it.
    return [*jars, *spark_jars(["scala-library*.jar"])]


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as work:
        jars = Path(work) / "jars"

        def progress() -> str:
            return f"{sum(1 for _ in jars.glob('*.jar'))} jars"

        try:
            download(COORDINATES, Path(work), "Kafka", progress, dependencies=True)
        except DownloadError as error:
            raise StreamhouseError(
                f"Kafka ({COORDINATES}) could not be fetched: {error}; check the network, or set "
                f"{VARIABLE} to a folder with its jars"
            ) from None
        os.replace(jars, folder)


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
