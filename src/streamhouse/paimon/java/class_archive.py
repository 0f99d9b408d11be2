"""The Java classes of Paimon's core, parsed and verified once, for quicker starts of its JVM.

The JVM of the sidecar maps the archive into memory, where `streamhouse.runtime.class_archive_maker`
has made it. The JVM itself checks that it fits the JVM and its jars, and ignores one that does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from streamhouse.paimon.java.jars import cache_folder
from streamhouse.paimon.java.jvm import java_command

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Options of a JVM that says nothing of an archive which does not fit."""
OUT_VARIABLE = "STREAMHOUSE_CORE_ARCHIVE_OUT"
"""Where the JVM is to write an archive when it ends, instead of using one."""


def java_options(classpath: Sequence[Path]) -> tuple[str, ...]:
    """Options for the JVM of these jars: use their archive, where it is there."""
    out = os.environ.get(OUT_VARIABLE)
    if out is not None:
        return (f"-XX:ArchiveClassesAtExit={out}", *SILENT)
    path = archive_path(classpath)
    return (f"-XX:SharedArchiveFile={path}", *SILENT) if path.is_file() else ()


def archive_path(classpath: Sequence[Path]) -> Path:
    """Where the archive of these jars and this Java is, or would be."""
    java = os.path.realpath(shutil.which(java_command()) or "java")
    release = Path(java).parent.parent / "release"
    parts = [java, release.read_text() if release.is_file() else "", *map(_written, classpath)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder().parent / "classes" / f"paimon-{digest}.jsa"


def _written(jar: Path) -> str:
    """A jar as the JVM tells it from another: by its path, its size, and when it was written."""
    told = jar.stat()
    return f"{jar} {told.st_size} {told.st_mtime_ns}"
