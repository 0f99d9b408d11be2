"""Makes the class data sharing (CDS) archives that `spark.jvm` describes.

`python -m streamhouse.runtime.class_archive_maker` makes two archives in the cache folder, in one
process: for the one of Spark's JVM it runs a small script of queries, for the one of the sidecar
JVM compactions, reads and snapshot expiry of Paimon's Java core.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java import class_archive
from streamhouse.runtime.spark.jvm import OUT_VARIABLE, archive_path

_MAKE_SECONDS = 300

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


def archives() -> dict[str, Path]:
    """The paths of both archives by the variable that lets a JVM write its own.

    Fetches the jar of Paimon's Java core.
    """
    from streamhouse.paimon.java.jars import classpath

    return {
        OUT_VARIABLE: archive_path(),
        class_archive.OUT_VARIABLE: class_archive.archive_path(classpath()),
    }


def missing_archives() -> list[Path]:
    """The paths of the archives that do not exist; fetches the jar of Paimon's Java core."""
    return [path for path in archives().values() if not path.is_file()]


def make(paths: Mapping[str, Path]) -> None:
    """Make both `archives`; takes about 30 seconds. Raises `StreamhouseError`."""
    folder = next(iter(paths.values())).parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="make-", dir=folder) as work:
        made = {variable: Path(work) / f"{variable}.jsa" for variable in paths}
        try:
            process = subprocess.run(
                [sys.executable, "-m", "streamhouse.runtime.class_archive_maker", "--train", work],
                env={**os.environ, **{name: str(path) for name, path in made.items()}},
                capture_output=True,
                text=True,
                timeout=_MAKE_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _failure(str(error)) from error
        if process.returncode or not all(path.is_file() for path in made.values()):
            lines = (process.stderr or process.stdout).strip().splitlines()
            raise _failure(lines[-1] if lines else "no output")
        for variable, path in paths.items():
            os.replace(made[variable], path)


def _failure(reason: str) -> StreamhouseError:
    return StreamhouseError(
        f"the archives of Java classes could not be made: {reason}; Streamhouse runs without them, "
        "but starts more slowly"
    )


def _train(work: str) -> None:
    """Run the script in a JVM that writes its archive when it exits, and wait for the exit."""
    from pyspark import SparkContext

    from streamhouse.runtime.run_output import RunOutput
    from streamhouse.runtime.script import ScriptOptions, ScriptRunner
    from streamhouse.sql.statements.script import parse_script

    options = ScriptOptions("train", {"warehouse": f"{work}/warehouse"}, until_caught_up=True)
    ScriptRunner(options, RunOutput()).run(parse_script(SCRIPT))
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


def main() -> int:
    """Make the archives if one is missing, and print their paths; returns the exit code."""
    if sys.argv[1:2] == ["--train"]:
        # The sidecar of the script must not write the archive, too.
        core = os.environ.pop(class_archive.OUT_VARIABLE)
        _train(sys.argv[2])
        os.environ[class_archive.OUT_VARIABLE] = core
        _train_core(sys.argv[2])
        return 0
    try:
        paths = archives()
        if missing_archives():
            make(paths)
    except (StreamhouseError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(*paths.values(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
