"""Checks the version of the installed Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.installed_java import check_java


def _java(home: Path, release: str | None, says: str = "") -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{release}"\n')


@pytest.mark.parametrize("version", ["17.0.19", "21", "25-ea"])
def test_java_17_and_newer_will_do(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert check_java() == version


@pytest.mark.parametrize("version", ["11.0.25", "1.8.0_392"])
def test_an_older_java_is_named(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(StreamhouseError, match=f"bin/java is {version}; .*JAVA_HOME") as caught:
        check_java()
    assert len(str(caught.value).splitlines()) == 1


def test_a_java_without_a_release_file_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path / "shim", None, 'openjdk version "17.0.2" 2022-01-18')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "shim"))
    assert check_java() == "17.0.2"


def test_no_java_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StreamhouseError, match="there is no 'java' on the PATH; install it, or"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(StreamhouseError, match="JAVA_HOME is '/nowhere', which has no bin/java"):
        check_java()
