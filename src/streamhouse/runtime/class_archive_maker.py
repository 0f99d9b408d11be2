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
from typing import Any

from streamhouse.errors import StreamhouseError
from streamhouse.options import table_of
from streamhouse.paimon.java import class_archive
from streamhouse.runtime.spark.jvm import OUT_VARIABLE, archive_path

_MAKE_SECONDS = 300

_TRAINING: Mapping[str, Any] = table_of(__package__, "class_archives.toml")
"""What the JVMs run to load their classes: a `script`, and the definition and a row of `tables`."""


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
    ScriptRunner(options, RunOutput()).run(parse_script(_TRAINING["script"]))
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
    for name, table in _TRAINING["tables"].items():
        execute(warehouse, f"CREATE TABLE {name} {table['definition']}", java)
        for _ in range(3):
            execute(warehouse, f"INSERT INTO {name} VALUES {table['row']}", java)
            java.compact(f"default.{name}", keep=True)
        java.compact(f"default.{name}", full=True)
        java.compact_manifests(f"default.{name}")
        execute(warehouse, f"ALTER TABLE {name} SET ({_TRAINING['options']})")
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
