"""Set-up makes the class archive of the Java core, and the JVM uses it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from streamhouse.paimon.java import class_archive
from streamhouse.paimon.java.jars import JAR_VARIABLE, classpath, paimon_jar
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.class_archive_maker import archives, make


@pytest.mark.soak
def test_it_is_made_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAR_VARIABLE, str(paimon_jar()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = class_archive.archive_path(classpath())
    make(archives())
    with Sidecar({"warehouse": str(tmp_path / "warehouse")}) as java:
        java.start()
        assert java.pid is not None
        mapped = {one.path for one in psutil.Process(java.pid).memory_maps()}
    assert str(path) in mapped
