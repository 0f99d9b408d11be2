"""Finds the jar of the Java core."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java import jars


def test_the_environment_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "mine.jar"
    jar.touch()
    monkeypatch.setenv(jars.JAR_VARIABLE, str(jar))
    assert jars.paimon_jar() == jar


def test_a_variable_that_names_no_file_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.JAR_VARIABLE, "/nowhere/x.jar")
    with pytest.raises(StreamhouseError, match="STREAMHOUSE_PAIMON_JAR is '/nowhere/x.jar'"):
        jars.paimon_jar()


def test_a_jar_in_the_cache_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jars.JAR_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = tmp_path / "streamhouse" / "jars" / "paimon-bundle-1.4.2.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    assert jars.paimon_jar() == jar


def test_a_home_without_settings_has_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / ".cache" / "streamhouse" / "jars"


def test_a_cache_that_cannot_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(jars.JAR_VARIABLE, raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(StreamhouseError, match="cannot be written"):
        jars.paimon_jar()
