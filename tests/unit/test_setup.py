"""Set-up's errors; `make fresh` shows that it works."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.documents import ROOT
from tests.waiting import DEADLINE_S

TOOLS = (
    "bash cat cp cut date dirname env flock grep head id mkdir mktemp rm sed sh sha256sum sleep "
    "tail tr wc"
).split()
PROGRAMS = {
    "java": "echo 'openjdk version \"17.0.1\"' >&2",
    "mariadbd": "exit 0",
    "mariadb-install-db": "exit 0",
    "my_print_defaults": "exit 0",
    "chromium": "exit 0",
    "curl": "exit 0",
}
MISSING = {
    "java": ("Java 17", "openjdk-17-jre-headless"),
    "mariadbd": ("MariaDB", "mariadb-server-core mariadb-client-core"),
    "mariadb-install-db": ("MariaDB", "mariadb-server-core mariadb-client-core"),
    "my_print_defaults": ("MariaDB", "mariadb-server-core mariadb-client-core"),
    "chromium": ("Chromium", "chromium"),
    "curl": ("curl", "curl"),
}
NO_LIBRARY = (
    "echo; echo 'starting'; echo 'error while loading shared libraries: libx.so' >&2; "
    "echo 'see https://example.org/docs'; exit 127"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with a PATH of its own: common tools, this Python, programs that only end well."""
    root = tmp_path / "a project"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/setup.sh", root / "scripts")
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (root / "bin" / tool).symlink_to(found)
    for name, text in PROGRAMS.items():
        program(root, name, text)
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
        timeout=DEADLINE_S,
        check=False,
    )


def as_root(project: Path) -> None:
    _with_id(project, 0)


def as_user(project: Path) -> None:
    _with_id(project, 1000)


def _with_id(project: Path, number: int) -> None:
    (project / "bin" / "id").unlink()
    program(project, "id", f"echo {number}")


def test_the_driver_of_the_browser_runs() -> None:
    """It is no Python, and needs libraries that a machine may not have."""
    command = [sys.executable, "-m", "playwright", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


def test_a_missing_library_is_named(project: Path) -> None:
    program(project, "ldconfig", "echo 'libc.so.6 => /lib/libc.so.6'")
    done = set_up(project)
    assert done.returncode == 1
    why = "libatomic.so.1 is not among the libraries"
    assert f"missing: libatomic ({why}); there is no apt-get" in done.stderr


# Not mariadbd: set-up finds it in /usr/sbin where this machine has it.
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"mariadbd"}))
def test_a_missing_program_is_named(project: Path, name: str) -> None:
    (project / "bin" / name).unlink()
    done = set_up(project)
    assert done.returncode == 1
    assert (
        f"missing: {MISSING[name][0]} ({name} is not on PATH); there is no apt-get" in done.stderr
    )


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"mariadb-install-db"}))
def test_a_program_that_does_not_run_shows_its_own_error(project: Path, name: str) -> None:
    program(project, name, NO_LIBRARY)
    done = set_up(project)
    assert done.returncode == 1
    what = f"{name} ended with code 127: error while loading shared libraries: libx.so"
    assert f"missing: {MISSING[name][0]} ({what})" in done.stderr


def test_a_program_that_does_not_run_after_its_installation_either(project: Path) -> None:
    as_root(project)
    program(project, "chromium", NO_LIBRARY)
    program(project, "apt-get", "exit 0")
    program(project, "dpkg", "exit 0")
    done = set_up(project)
    assert done.returncode == 1
    assert "Chromium does not run: chromium ended with code 127: error while" in done.stderr


def test_mariadb_has_to_make_a_database(project: Path) -> None:
    text = (
        "echo; echo 'FATAL ERROR: Could not find x'; echo; echo 'The latest: https://a.b'; exit 1"
    )
    program(project, "mariadb-install-db", text)
    done = set_up(project)
    assert done.returncode == 1
    said = "MariaDB does not run: mariadb-install-db ended with code 1: FATAL ERROR: Could not find"
    assert said in done.stderr
    assert "https" not in done.stderr


def test_without_sudo_a_user_is_reported_what_root_has_to_run(project: Path) -> None:
    as_user(project)
    program(project, "apt-get", "exit 1")
    for name in ("chromium", "my_print_defaults"):
        (project / "bin" / name).unlink()
    done = set_up(project)
    assert done.returncode == 1
    packages = "mariadb-server-core mariadb-client-core chromium"
    assert "you are not root and there is no sudo, so have root run" in done.stderr
    assert f"apt-get install --no-install-recommends {packages}\n" in done.stderr


def test_sudo_that_wants_a_password_cannot_be_asked_without_a_terminal(project: Path) -> None:
    as_user(project)
    program(project, "apt-get", "exit 1")
    program(project, "sudo", "exit 1")
    (project / "bin" / "chromium").unlink()
    done = set_up(project)
    assert done.returncode == 1
    assert "sudo does not run without a password" in done.stderr
    assert "sudo apt-get install --no-install-recommends chromium\n" in done.stderr


def test_sudo_installs_all_that_is_missing_at_once_through_the_proxy(project: Path) -> None:
    as_user(project)
    program(project, "apt-get", "exit 1")
    program(project, "dpkg", "exit 0")
    program(project, "sudo", f'[ "$2" = true ] || echo "sudo $*" >>\'{project}/calls\'')
    for name in ("chromium", "java"):
        (project / "bin" / name).unlink()
    done = set_up(project, http_proxy="http://proxy:1", https_proxy="")
    assert done.returncode == 1
    update, install = (project / "calls").read_text().splitlines()
    sudo = "sudo -n DEBIAN_FRONTEND=noninteractive http_proxy=http://proxy:1"
    assert update.startswith(f"{sudo} apt-get")
    assert install.startswith(f"{sudo} sh -c")
    assert install.endswith("--no-install-recommends openjdk-17-jre-headless chromium")
    assert "no Java 17: java is not on PATH" in done.stderr


def test_a_step_that_fails_shows_why_and_leaves_no_stamp(project: Path) -> None:
    as_root(project)
    (project / "bin" / "java").unlink()
    said = "Get:1 libgpg-error0; echo 'E: no network' >&2; echo 'E: more' >&2"
    program(project, "apt-get", f"sleep 2.3; echo {said}; exit 100")
    done = set_up(project)
    assert done.returncode == 1
    assert "… . failed" in done.stdout, "a step longer than two seconds shows progress"
    assert "code 100: E: no network\n" in done.stderr
    assert not (project / ".venv").exists()


def python_with_pip(project: Path, pip: str) -> None:
    """Makes `python`, whose virtual environments have `pip` as their Python."""
    program(project, "template", pip)
    copy = f'mkdir -p "$4/bin"; cp \'{project}/bin/template\' "$4/bin/python"'
    program(project, "python", f'[ "$2" != venv ] || {{ {copy}; }}')


def test_packages_that_do_not_install_leave_no_stamp(project: Path) -> None:
    python_with_pip(project, "echo 'ERROR: no such version'; exit 1")
    done = set_up(project, PYTHON="python")
    assert done.returncode == 1
    assert "ERROR: no such version" in done.stderr
    assert "Python packages" in done.stderr and "build/setup.log" in done.stderr
    assert not (project / ".venv/.streamhouse-setup").exists()


def test_a_download_that_breaks_is_tried_again(project: Path) -> None:
    tries = project / "tries"
    count = f"echo try >> '{tries}'; [ $(wc -l < '{tries}') -ge 3 ]"
    python_with_pip(project, f"{count} || {{ echo 'ERROR: connection broken'; exit 1; }}")
    done = set_up(project, PYTHON="python")
    assert "[3/5] Python packages" in done.stdout and "failed" not in done.stdout
    assert tries.read_text().count("try") == 3
    assert "playwright does not run" in done.stderr, "what comes after the packages"
