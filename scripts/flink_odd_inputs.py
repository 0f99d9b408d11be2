#!/usr/bin/env python
"""Writes `flink_odd_inputs.jsonl` of the SQL tests: what Flink answers to generated expressions.

Give it the folder of Flink's jars: `lib` of a distribution, or `pyflink/lib` of the Python package
`apache-flink-libraries`. It needs javac, and takes a few minutes. Run it after a change of
`tests/unit/sql/odd_inputs.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
OPENED = ("java.lang", "java.util", "java.nio", "java.time")


def answers(jars: Path, expressions: list[str]) -> list[object]:
    """The answers of Flink: a text, None for null, or a dict with the error."""
    classpath = os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))
    with tempfile.TemporaryDirectory() as folder:
        source = str(ROOT / "scripts" / "FlinkValues.java")
        subprocess.run(["javac", "-cp", classpath, "-d", folder, source], check=True)
        Path(folder, "log4j2.properties").write_text("rootLogger.level = OFF\n")
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        lines = (f"CAST({text} AS STRING)".replace("\n", "\x01") for text in expressions)
        result = subprocess.run(
            ["java", "-Xmx1g", "-XX:TieredStopAtLevel=1", *opened,
             f"-Dlog4j2.configurationFile={folder}/log4j2.properties",
             "-cp", os.pathsep.join([folder, classpath]), "FlinkValues"],
            input="".join(f"{line}\n" for line in lines), text=True, check=True, encoding="utf-8",
            stdout=subprocess.PIPE,
        )  # fmt: skip
    return [json.loads(line) for line in result.stdout.splitlines()]


def main() -> None:
    from tests.unit.sql.odd_inputs import FIXTURE, expressions, fixture_text

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jars", type=Path, help="the folder of Flink's jars")
    FIXTURE.write_text(fixture_text(answers(parser.parse_args().jars, expressions())))


if __name__ == "__main__":
    main()
