"""The installed Java: which version it is, and the error if there is none or an old one."""

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from streamhouse.errors import StreamhouseError

OLDEST = 17
PACKAGE = "openjdk-17-jre-headless"
"""Debian's package."""
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_VERSION = re.compile(r'version "([^"]+)"')
_TIMEOUT_S = 30.0


def java_command() -> str:
    """The `java` command: that of JAVA_HOME if it is set, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"


def check_java() -> str:
    """The version of Java, such as `17.0.19`.

    Raises `StreamhouseError` with one line if there is no Java, or an older one than Spark needs.
    Usually starts no process.
    """
    command = java_command()
    program = shutil.which(command)
    if program is None:
        where = (
            f"JAVA_HOME is '{os.environ['JAVA_HOME']}', which has no bin/java"
            if os.environ.get("JAVA_HOME")
            else "there is no 'java' on the PATH"
        )
        raise StreamhouseError(f"Java {OLDEST} or newer is needed, and {where}; {_advice()}")
    version = _version(os.path.realpath(program))
    if _major(version) < OLDEST:
        raise StreamhouseError(
            f"Java {OLDEST} or newer is needed, and {program} is {version}; {_advice()}"
        )
    return version


def _advice() -> str:
    install = f"run `apt-get install {PACKAGE}`" if shutil.which("apt-get") else "install it"
    return f"{install}, or set JAVA_HOME to its folder"


@lru_cache
def _version(program: str) -> str:
    release = Path(program).parent.parent / "release"
    try:
        found = _RELEASE.search(release.read_text())
    except OSError:
        found = None
    return found[1] if found else _reported_version(program)


def _reported_version(program: str) -> str:
    """The version that the program itself reports."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StreamhouseError(f"{program} does not run: {error}; {_advice()}") from None
    found = _VERSION.search(done.stderr + done.stdout)
    return found[1] if found else "of an unknown version"


def _major(version: str) -> int:
    """17 of `17.0.19`, 8 of `1.8.0_392`, 0 if unknown."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if len(numbers) == 2 and numbers[0] == 1:
        return numbers[1]
    return numbers[0] if numbers else 0
