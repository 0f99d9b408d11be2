"""Prepares what Streamhouse needs beside its Python packages: Java, MariaDB, a jar, class archives.

Java runs Spark and Paimon's Java core, whose jar is fetched once. The class archives only make
starts faster. MariaDB is for the demos.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from streamhouse.background import ticking
from streamhouse.errors import StreamhouseError

_FIRST_LINE_AFTER_S = 2.0
_LINE_EVERY_S = 10.0


@dataclass(frozen=True)
class MissingProgram:
    """A program that is missing, why it counts as missing, and the Debian packages that have it."""

    name: str
    reason: str
    packages: tuple[str, ...]


def missing_packages(with_demo: bool) -> list[MissingProgram]:
    """What the system lacks; MariaDB counts only `with_demo`."""
    from streamhouse.paimon.java.installed_java import OLDEST, PACKAGE, check_java

    found = []
    try:
        check_java()
    except StreamhouseError as error:
        found.append(MissingProgram(f"Java {OLDEST}", str(error).split("; ")[0], (PACKAGE,)))
    if with_demo:
        from streamhouse.demo.mariadb import PACKAGES, missing_program

        reason = missing_program()
        if reason is not None:
            found.append(MissingProgram("MariaDB (for the demos)", reason, PACKAGES))
    return found


def install_command(missing: list[MissingProgram]) -> str:
    """The command that installs the packages on Debian."""
    words = [package for requirement in missing for package in requirement.packages]
    sudo = "sudo " if os.geteuid() and shutil.which("sudo") else ""
    return f"{sudo}apt-get install --no-install-recommends {' '.join(words)}"


def check_packages(with_demo: bool) -> None:
    """Raise `StreamhouseError` with one line that names all that is missing and the command."""
    missing = missing_packages(with_demo)
    if missing:
        what = ", ".join(f"{requirement.name} ({requirement.reason})" for requirement in missing)
        raise StreamhouseError(f"missing: {what}; install: {install_command(missing)}")


def prepare(report: Callable[[str], None]) -> Mapping[str, object]:
    """Fetch the jar and make the class archives, where they are missing; needs Java.

    `report` gets a line for a step that takes more than two seconds, then one every ten, and one if
    the archives could not be made. Returns `jar`, its path, and `archives`: whether they exist.
    """
    from streamhouse.paimon.java.jars import paimon_jar
    from streamhouse.runtime.class_archive_maker import archives, make, missing_archives

    def told(what: str) -> AbstractContextManager[None]:
        return ticking(
            lambda seconds: report(f"{what} … {seconds:.0f} s"), _FIRST_LINE_AFTER_S, _LINE_EVERY_S
        )

    with told("Paimon's Java core"):
        jar = str(paimon_jar())
    missing = missing_archives()
    if missing:
        try:
            with told("making class archives, for quicker starts"):
                make(archives())
            missing = []
        except (StreamhouseError, OSError) as error:
            report(f"left out, starts will be slower: {error}")
    return {"jar": jar, "archives": not missing}
