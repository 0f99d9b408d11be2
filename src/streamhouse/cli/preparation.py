"""Prepares what Streamhouse needs beside its Python packages: Java, MariaDB, a jar, class archives.

Java runs Spark and Paimon's Java core, whose jar is fetched once. The class archives only make
starts faster. MariaDB is for the demos.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from streamhouse.errors import StreamhouseError
from streamhouse.progress_timer import ticking

_SHOWN_AFTER_S = 2.0
_LINE_EVERY_S = 10.0
_ARCHIVES_S = 900.0


@dataclass(frozen=True)
class Missing:
    """A program that is missing, why it counts as missing, and the Debian packages that have it."""

    name: str
    why: str
    packages: tuple[str, ...]


def missing_packages(with_demo: bool) -> list[Missing]:
    """What the system lacks; MariaDB counts only `with_demo`."""
    from streamhouse.paimon.java.installed_java import OLDEST, PACKAGE, check_java

    found = []
    try:
        check_java()
    except StreamhouseError as error:
        found.append(Missing(f"Java {OLDEST}", str(error).split("; ")[0], (PACKAGE,)))
    if with_demo:
        from streamhouse.demo.mariadb import PACKAGES, missing_program

        why = missing_program()
        if why is not None:
            found.append(Missing("MariaDB (for the demos)", why, PACKAGES))
    return found


def install_command(missing: list[Missing]) -> str:
    """The command that installs the packages on Debian."""
    words = [package for one in missing for package in one.packages]
    sudo = "sudo " if os.geteuid() and shutil.which("sudo") else ""
    return f"{sudo}apt-get install --no-install-recommends {' '.join(words)}"


def check_packages(with_demo: bool) -> None:
    """Raise `StreamhouseError` with one line that names all that is missing and the command."""
    missing = missing_packages(with_demo)
    if missing:
        what = ", ".join(f"{one.name} ({one.why})" for one in missing)
        raise StreamhouseError(f"missing: {what}; install: {install_command(missing)}")


def fetch_jar() -> str:
    """Fetch the jar of Paimon's Java core if it is missing; returns its path."""
    from streamhouse.paimon.java.jars import paimon_jar

    return str(paimon_jar())


def archives_are_missing() -> bool:
    """Whether a class archive is missing; needs the jar."""
    from streamhouse.runtime.class_archive_maker import missing_archives

    return bool(missing_archives())


def make_archives() -> str | None:
    """Make the missing class archives; returns why if that failed, since all works without them."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "streamhouse.runtime.class_archive_maker"],
            capture_output=True,
            text=True,
            timeout=_ARCHIVES_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else (lines[-1] if lines else f"code {done.returncode}")


def prepare(say: Callable[[str], None]) -> Mapping[str, object]:
    """Fetch the jar and make the class archives, where they are missing; needs Java.

    `say` gets a line after two seconds and then every ten while one takes that long, and if the
    archives could not be made. Returns `jar`, its path, and `archives`: whether they are there.
    """
    with _waiting("Paimon's Java core", say):
        jar = fetch_jar()
    why = None
    if archives_are_missing():
        with _waiting("making class archives, for quicker starts", say):
            why = make_archives()
    if why is not None:
        say(f"left out, starts will be slower: {why}")
    return {"jar": jar, "archives": why is None}


@contextmanager
def _waiting(what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Say after two seconds, and then every ten, how long the `with` block already takes."""
    with ticking(lambda seconds: say(f"{what} … {seconds:.0f} s"), _SHOWN_AFTER_S, _LINE_EVERY_S):
        yield
