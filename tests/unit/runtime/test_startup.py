"""Spark's quick start: the class archive and the workers' Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import DEADLINE_S

from streamhouse.errors import StreamhouseError
from streamhouse.runtime import class_archive_maker
from streamhouse.runtime.spark import jvm
from streamhouse.runtime.spark.worker_python import worker_python

_TELL = "import json, os, sys; print(json.dumps([sys.executable, os.environ.get('PYTHONPATH')]))"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _messages(program: str) -> tuple[str, str | None]:
    """What a Python process that Spark starts sees; Spark adds its own places to PYTHONPATH."""
    done = subprocess.run(
        [program, "-c", _TELL],
        env={**os.environ, "PYTHONPATH": "/spark/pyspark.zip:/spark/core.jar"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    executable, path = json.loads(done.stdout)
    return executable, path


def test_workers_run_this_python_without_the_places_that_spark_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    program = worker_python()
    assert program != sys.executable
    assert _messages(program) == (sys.executable, None)
    assert worker_python() == program


def test_workers_keep_the_places_that_a_user_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/a place/with 'quotes'")
    assert _messages(worker_python()) == (sys.executable, "/a place/with 'quotes'")


def test_a_cache_that_cannot_be_written_costs_only_time(cache: Path) -> None:
    cache.write_text("in the way")
    assert worker_python() == sys.executable


def test_workers_load_what_they_need_before_they_are_forked() -> None:
    load = "import sys; from streamhouse.runtime.spark.worker_daemon import load; load()"
    done = subprocess.run(
        [sys.executable, "-c", f"{load}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    found = set(done.stdout.split())
    assert found >= {
        "duckdb",
        "pandas",
        "pyarrow",
        "pyspark.worker",
        "streamhouse.runtime.streaming.tasks.task",
    }
    assert not {"pypaimon", "fastapi", "typer"} & found


def test_the_archive_is_used_once_it_is_there() -> None:
    path = jvm.archive_path()
    assert jvm.java_options(path) == ""
    path.parent.mkdir(parents=True)
    path.touch()
    assert f'"-XX:SharedArchiveFile={path}"' in jvm.java_options(path)


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = jvm.archive_path()
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert jvm.archive_path() != before


def test_the_error_of_making_it_has_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    path = jvm.archive_path()
    with pytest.raises(StreamhouseError, match="the archives of Java classes could not be made"):
        class_archive_maker.make({jvm.OUT_VARIABLE: path})
    assert not path.exists()
    assert not [*path.parent.glob("*")]
