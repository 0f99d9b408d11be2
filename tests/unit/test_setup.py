"""What set-up says when it cannot go on; that it works, every run of the tests shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.documents import ROOT

TOOLS = (
    "bash cat cp cut date dirname env flock grep head id mkdir rm sed sh sha256sum sleep tail tr"
).split()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with a PATH of its own: common tools, this Python, nothing else."""
    root = tmp_path / "a project"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/setup.sh", root / "scripts")
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (root / "bin" / tool).symlink_to(found)
    program(root, "java", "echo 'openjdk version \"17.0.1\"' >&2")
    program(root, "mariadbd", "exit 0")
    program(root, "mariadb-install-db", "exit 0")
    program(root, "chromium", "exit 0")
    return root


def program(project: Path, name: str, text: str) -> None:
    path = project / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def set_up(project: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(project / "bin"), "HOME": str(project), "PYTHON": sys.executable}
    return subprocess.run(
        ["bash", "scripts/setup.sh"],
        cwd=project,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_python_that_does_not_fit_is_named(project: Path) -> None:
    done = set_up(project, PYTHON="/bin/false")
    assert done.returncode == 1
    assert "PYTHON=/bin/false is not Python 3.11 or newer" in done.stderr


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_an_old_java_is_named(project: Path, version: str) -> None:
    home = project / "bin"
    program(project, "java", f"echo 'openjdk version \"{version}\"' >&2")
    (home / "bin").symlink_to(home)
    done = set_up(project, JAVA_HOME=str(home))
    assert done.returncode == 1
    assert f"JAVA_HOME={home} has no Java 17 or newer" in done.stderr


def test_what_is_missing_and_cannot_be_installed_is_named(project: Path) -> None:
    (project / "bin" / "java").unlink()
    done = set_up(project)
    assert done.returncode == 1
    assert "Java 17 is missing, and there is no apt-get" in done.stderr


def test_a_missing_browser_is_named(project: Path) -> None:
    (project / "bin" / "chromium").unlink()
    done = set_up(project)
    assert done.returncode == 1
    assert "Chromium (the tests open the page in it) is missing" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="as a user it would ask sudo")
def test_a_step_that_fails_shows_why_and_leaves_no_stamp(project: Path) -> None:
    (project / "bin" / "java").unlink()
    program(project, "apt-get", "sleep 2.3; echo 'E: no network' >&2; exit 100")
    done = set_up(project)
    assert done.returncode == 1
    assert "… . failed" in done.stdout, "a step longer than two seconds shows progress"
    assert "E: no network" in done.stderr
    assert "code 100" in done.stderr
    assert not (project / ".venv").exists()


def test_packages_that_do_not_install_leave_no_stamp(project: Path) -> None:
    made = "echo 'ERROR: no such version'; exit 1"
    program(project, "template", made)
    copy = f'mkdir -p "$4/bin"; cp \'{project}/bin/template\' "$4/bin/python"'
    program(project, "python", f'[ "$2" != venv ] || {{ {copy}; }}')
    done = set_up(project, PYTHON="python")
    assert done.returncode == 1
    assert "ERROR: no such version" in done.stderr
    assert "Python packages" in done.stderr and "build/setup.log" in done.stderr
    assert not (project / ".venv/.streamhouse-setup").exists()
