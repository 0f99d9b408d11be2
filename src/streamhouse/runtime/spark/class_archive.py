"""Java classes, parsed and verified once and mapped into memory at each later start.

Half of what a Spark session costs until its first batch is the loading of some 15,000 classes, and
so it is with Paimon's core in the sidecar; the JVM's class data sharing does that work ahead of
time. `streamhouse.runtime.class_archive_maker` makes an archive for either in the cache folder.
Without them everything works, only later. The JVM itself checks that an archive fits it and its
jars, and ignores one that does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pyspark

from streamhouse.paimon.java import class_archive
from streamhouse.paimon.java.jars import cache_folder
from streamhouse.paimon.java.jvm import java_command
from streamhouse.runtime.spark import jvm

_SILENT = " ".join(class_archive.SILENT)
OUT_VARIABLE = "STREAMHOUSE_CLASS_ARCHIVE_OUT"
"""Names, for a JVM that is to make an archive, the file."""


def java_options(path: Path) -> str:
    """Options for Spark's JVM: use the archive at `path`, or make the one `OUT_VARIABLE` names."""
    out = os.environ.get(OUT_VARIABLE)
    if out is not None:
        return f'"-XX:ArchiveClassesAtExit={out}" {_SILENT}'
    return f'"-XX:SharedArchiveFile={path}" {_SILENT}' if path.is_file() else ""


def archive_path() -> Path:
    """Where the archive of this Spark and this Java is, or would be."""
    java = shutil.which(java_command()) or "java"
    release = Path(os.path.realpath(java)).parent.parent / "release"
    parts = [pyspark.__version__, jvm.classpath(), os.path.realpath(java)]
    parts.append(release.read_text() if release.is_file() else "")
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder().parent / "classes" / f"spark-{pyspark.__version__}-{digest}.jsa"


def options_path(archive: Path) -> Path:
    """Where the options are of the JVM whose archive that is (`jvm.save_options`)."""
    return archive.with_suffix(".json")
