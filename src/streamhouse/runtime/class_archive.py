"""Spark's Java classes, parsed and verified once and mapped into memory at each later start.

Half of what a Spark session costs until its first batch is the loading of some 15,000 classes; the
JVM's class data sharing does that work ahead of time. `python -m streamhouse.runtime.class_archive`
makes the archive in the cache folder, by running a small script of queries. Without it everything
works, only later. The JVM itself checks that an archive fits it and its jars, and ignores one that
does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.jars import cache_folder
from streamhouse.paimon.jvm import java_command

_MAKE_SECONDS = 300
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_VARIABLE = "STREAMHOUSE_CLASS_ARCHIVE_OUT"

SCRIPT = """
CREATE DATABASE shop; USE shop;
CREATE TEMPORARY TABLE made (id INT, price DOUBLE) WITH ('connector' = 'datagen',
  'rows-per-second' = '100', 'number-of-rows' = '100');
CREATE TABLE orders (id INT, price DOUBLE) WITH ('bucket' = '-1');
CREATE TABLE sales (price DOUBLE PRIMARY KEY NOT ENFORCED, orders BIGINT) WITH ('bucket' = '1');
INSERT INTO orders SELECT id, price FROM made;
INSERT INTO sales SELECT price, 1 FROM orders;
"""


def java_options() -> str:
    """Options for Spark's JVM: use the archive, or make it where `main` asks for that."""
    out = os.environ.get(_VARIABLE)
    if out is not None:
        return f'"-XX:ArchiveClassesAtExit={out}" {_SILENT}'
    path = archive_path()
    return f'"-XX:SharedArchiveFile={path}" {_SILENT}' if path.is_file() else ""


def archive_path() -> Path:
    """Where the archive of this Spark and this Java is, or would be."""
    java = shutil.which(java_command()) or "java"
    spark = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    release = Path(os.path.realpath(java)).parent.parent / "release"
    parts = [pyspark.__version__, spark, os.path.realpath(java)]
    parts.append(release.read_text() if release.is_file() else "")
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder().parent / "classes" / f"spark-{pyspark.__version__}-{digest}.jsa"


def make(path: Path) -> None:
    """Make the archive at `path`; takes about 20 seconds. Raises `StreamhouseError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="make-", dir=path.parent) as work:
        partial = Path(work) / "classes.jsa"
        command = [sys.executable, "-m", "streamhouse.runtime.class_archive", "--train", work]
        done = subprocess.run(
            command,
            env={**os.environ, _VARIABLE: str(partial)},
            capture_output=True,
            text=True,
            timeout=_MAKE_SECONDS,
        )
        if done.returncode or not partial.is_file():
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise StreamhouseError(
                f"the archive of Spark's classes was not made: {lines[-1] if lines else 'no word'}"
                "; Streamhouse runs without it, and starts more slowly"
            )
        os.replace(partial, path)


def _train(work: str) -> None:
    """Run the script in a JVM that writes its archive when it ends; waits for that end."""
    from pyspark import SparkContext

    from streamhouse.runtime.script import Script, ScriptOptions
    from streamhouse.sql.script import parse_script

    options = ScriptOptions("train", {"warehouse": f"{work}/warehouse"}, until_caught_up=True)
    Script(options, _Nothing()).run(parse_script(SCRIPT))
    gateway = SparkContext._gateway
    context = SparkContext._active_spark_context
    assert gateway is not None and context is not None
    context.stop()
    jvm = gateway.proc
    gateway.shutdown()
    jvm.stdin.close()
    jvm.wait(_MAKE_SECONDS)


class _Nothing:
    """A printer of nothing."""

    def notice(self, text: str) -> None: ...

    def rows(self, reader: object) -> None: ...

    def changes(self, batch: object) -> None: ...


def main() -> int:
    """Make the archive if it is not there, and print where it is."""
    if sys.argv[1:2] == ["--train"]:
        _train(sys.argv[2])
        return 0
    path = archive_path()
    try:
        if not path.is_file():
            make(path)
    except (StreamhouseError, subprocess.TimeoutExpired, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
