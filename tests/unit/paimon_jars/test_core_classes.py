"""Selects the class archive for the JVM of Paimon's core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamhouse.paimon.java import class_archive


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = [tmp_path / "one.jar", tmp_path / "two.jar"]
    for jar in made:
        jar.touch()
    return made


def test_the_archive_is_used_once_it_is_there(jars: list[Path]) -> None:
    assert class_archive.java_options(jars) == ()
    path = class_archive.archive_path(jars)
    path.parent.mkdir(parents=True)
    path.touch()
    assert class_archive.java_options(jars)[0] == f"-XX:SharedArchiveFile={path}"


def test_other_jars_have_another_archive(jars: list[Path]) -> None:
    before = class_archive.archive_path(jars)
    assert class_archive.archive_path(jars[::-1]) != before
    os.utime(jars[0], (1, 1))
    assert class_archive.archive_path(jars) != before
