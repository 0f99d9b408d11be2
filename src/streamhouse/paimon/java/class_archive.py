"""Class data sharing (CDS) archive of Paimon's Java core, with which the sidecar starts faster.

`streamhouse.runtime.class_archive_maker` makes the archive, and the sidecar's JVM maps it into
memory if it exists. The JVM checks that the archive fits itself and its jars, and ignores one that
does not.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from streamhouse.paimon.java.installed_java import java_command
from streamhouse.paimon.java.jars import cache_folder

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""JVM options that suppress messages about an archive that does not fit."""
OUT_VARIABLE = "STREAMHOUSE_CORE_ARCHIVE_OUT"
"""Environment variable: the path to which the JVM writes an archive at exit, and then uses none."""


def java_options(classpath: Sequence[Path]) -> tuple[str, ...]:
    """JVM options to use the archive of these jars if it exists, or to write it to OUT_VARIABLE."""
    return options(OUT_VARIABLE, archive_path(classpath))


def archive_path(classpath: Sequence[Path]) -> Path:
    """The path of the archive for these jars and this Java; it may not exist."""
    return cached("paimon", [*this_java(), *map(_fingerprint, classpath)])


def options(out_variable: str, path: Path) -> tuple[str, ...]:
    """JVM options to use an archive if it exists, or to write the one that a variable names."""
    out = os.environ.get(out_variable)
    if out is not None:
        return (f"-XX:ArchiveClassesAtExit={out}", *_SILENT)
    return (f"-XX:SharedArchiveFile={path}", *_SILENT) if path.is_file() else ()


def cached(name: str, parts: Sequence[str]) -> Path:
    """The path of the archive for what `parts` identify."""
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder().parent / "classes" / f"{name}-{digest}.jsa"


def this_java() -> tuple[str, str]:
    """What identifies this Java: its path, and the text of its release."""
    java = os.path.realpath(shutil.which(java_command()) or "java")
    release = Path(java).parent.parent / "release"
    return java, release.read_text() if release.is_file() else ""


def _fingerprint(jar: Path) -> str:
    """What identifies a jar for the JVM: its path, its size and its modification time."""
    stat = jar.stat()
    return f"{jar} {stat.st_size} {stat.st_mtime_ns}"
