"""Makes the class data sharing (CDS) archives that `class_archive` describes.

`python -m streamhouse.runtime.class_archive_maker` makes two archives in the cache folder. For the
one of Spark's JVM it runs a small script of queries. For the one of the sidecar JVM it runs
compactions, reads and snapshot expiry of Paimon's Java core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java import class_archive
from streamhouse.runtime.spark import jvm as spark_jvm
from streamhouse.runtime.spark.class_archive import OUT_VARIABLE, archive_path, options_path

_MAKE_SECONDS = 300
_SPARK, _CORE = "spark", "core"
_OUT_VARIABLES = {_SPARK: OUT_VARIABLE, _CORE: class_archive.OUT_VARIABLE}

SCRIPT = """
CREATE DATABASE shop; USE shop;
CREATE TEMPORARY TABLE made (id INT, price DOUBLE) WITH ('connector' = 'datagen',
  'rows-per-second' = '100', 'number-of-rows' = '100');
CREATE TABLE orders (id INT, price DOUBLE) WITH ('bucket' = '-1');
CREATE TABLE sales (price DOUBLE PRIMARY KEY NOT ENFORCED, orders BIGINT) WITH ('bucket' = '1');
INSERT INTO orders SELECT id, price FROM made;
INSERT INTO sales SELECT price, 1 FROM orders;
"""
_TABLES = {
    "days": "(d STRING, k INT, t TIMESTAMP(3), v DECIMAL(10, 2), PRIMARY KEY (d, k) NOT ENFORCED) "
    "PARTITIONED BY (d) WITH ('bucket' = '2', 'deletion-vectors.enabled' = 'true', 'file.format' "
    "= 'orc', 'changelog-producer' = 'lookup', 'sequence.field' = 't')",
    "sums": "(k INT PRIMARY KEY NOT ENFORCED, v BIGINT) WITH ('bucket' = '1', 'merge-engine' = "
    "'aggregation', 'changelog-producer' = 'full-compaction', "
    "'fields.v.aggregate-function' = 'sum')",
    "rows_": "(k INT, v DOUBLE, s STRING) WITH ('bucket' = '-1', 'compaction.min.file-num' = '2')",
}
_FEW_SNAPSHOTS = "'snapshot.num-retained.min' = '1', 'snapshot.num-retained.max' = '2'"
_ROWS = {
    "days": "('a', 1, TIMESTAMP '2026-01-01 00:00:00', 1.5)",
    "sums": "(1, 2)",
    "rows_": "(1, 0.5, 'x')",
}


def missing_archives() -> list[Path]:
    """The paths of the archives that do not exist; fetches the jar of Paimon's Java core."""
    from streamhouse.paimon.java.core_connection import classpath

    paths = [archive_path(), class_archive.archive_path(classpath())]
    return [path for path in paths if not path.is_file()]


def make(path: Path) -> None:
    """Make Spark's archive at `path`; takes about 20 seconds. Raises `StreamhouseError`."""
    try:
        spark_jvm.save_options(options_path(path))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise StreamhouseError(_failure("Spark's classes", str(error))) from error
    _make(path, _SPARK, "Spark's classes")


def make_core(path: Path) -> None:
    """Make the Java core's archive at `path`; takes some seconds. Raises `StreamhouseError`."""
    _make(path, _CORE, "Paimon's classes")


def _make(path: Path, kind: str, classes: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="make-", dir=path.parent) as work:
        partial = Path(work) / "classes.jsa"
        command = [
            sys.executable,
            "-m",
            "streamhouse.runtime.class_archive_maker",
            "--train",
            kind,
            work,
        ]
        process = subprocess.run(
            command,
            env={**os.environ, _OUT_VARIABLES[kind]: str(partial)},
            capture_output=True,
            text=True,
            timeout=_MAKE_SECONDS,
        )
        if process.returncode or not partial.is_file():
            lines = (process.stderr or process.stdout).strip().splitlines()
            raise StreamhouseError(_failure(classes, lines[-1] if lines else "no output"))
        os.replace(partial, path)


def _failure(classes: str, reason: str) -> str:
    return (
        f"the archive of {classes} could not be made: {reason}; Streamhouse runs without it, "
        "but starts more slowly"
    )


def _train(work: str) -> None:
    """Run the script in a JVM that writes its archive when it exits, and wait for the exit."""
    from pyspark import SparkContext

    from streamhouse.runtime.script import ScriptOptions, ScriptRunner
    from streamhouse.sql.statements.script import parse_script

    options = ScriptOptions("train", {"warehouse": f"{work}/warehouse"}, until_caught_up=True)
    ScriptRunner(options, _NullPrinter()).run(parse_script(SCRIPT))
    gateway = SparkContext._gateway
    context = SparkContext._active_spark_context
    assert gateway is not None and context is not None
    context.stop()
    jvm = gateway.proc
    gateway.shutdown()
    jvm.stdin.close()
    jvm.wait(_MAKE_SECONDS)


def _train_core(work: str) -> None:
    """Run the sidecar's usual maintenance jobs; its JVM writes the archive when it exits."""
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.paimon.java.sidecar import Sidecar
    from streamhouse.paimon.maintenance.expiry import expire
    from streamhouse.runtime.execute import execute

    warehouse = Warehouse(f"{work}/warehouse")
    java = Sidecar(warehouse.options)
    for name, definition in _TABLES.items():
        execute(warehouse, f"CREATE TABLE {name} {definition}", java)
        for _ in range(3):
            execute(warehouse, f"INSERT INTO {name} VALUES {_ROWS[name]}", java)
            java.compact(f"default.{name}", keep=True)
        java.compact(f"default.{name}", full=True)
        java.compact_manifests(f"default.{name}")
        execute(warehouse, f"ALTER TABLE {name} SET ({_FEW_SNAPSHOTS})")
        expire(java, warehouse.table(f"default.{name}"))
    java.close(_MAKE_SECONDS)


class _NullPrinter:
    """A `Printer` that prints nothing."""

    def notice(self, text: str) -> None: ...

    def rows(self, reader: object) -> None: ...

    def changes(self, batch: object) -> None: ...


def _make_missing(location: Callable[[], Path], make: Callable[[Path], None]) -> bool:
    """Make an archive if it does not exist, and print its path; False if that failed."""
    try:
        path = location()
        if not path.is_file():
            make(path)
    except (StreamhouseError, subprocess.TimeoutExpired, OSError) as error:
        print(error, file=sys.stderr)
        return False
    print(path)
    return True


def main() -> int:
    """Make the missing archives and print their paths; returns the exit code."""
    from streamhouse.paimon.java.core_connection import classpath

    if sys.argv[1:2] == ["--train"]:
        train = {_SPARK: _train, _CORE: _train_core}[sys.argv[2]]
        train(sys.argv[3])
        return 0
    results = [
        _make_missing(archive_path, make),
        _make_missing(lambda: class_archive.archive_path(classpath()), make_core),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
