"""Class data sharing (CDS) archive of Spark's JVM: Java classes, parsed and verified ahead of time.

Half the time from the start of a Spark session to its first batch is the loading of some 15,000
classes. The same holds for Paimon's Java core in the sidecar JVM. With CDS, a JVM maps an archive
of its classes into memory instead. `streamhouse.runtime.class_archive_maker` makes one archive for
each of the two JVMs in the cache folder. Without an archive a JVM only starts more slowly. The JVM
itself checks that an archive fits it and its jars, and ignores one that does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pyspark

from streamhouse.paimon.java import class_archive
from streamhouse.paimon.java.installed_java import java_command
from streamhouse.paimon.java.jars import cache_folder
from streamhouse.runtime.spark import jvm

_SILENT = " ".join(class_archive.SILENT)
OUT_VARIABLE = "STREAMHOUSE_CLASS_ARCHIVE_OUT"
"""Environment variable: the file that the JVM writes its archive to, instead of using one."""


def java_options(path: Path) -> str:
    """Options for Spark's JVM: use the archive at `path`, or make the one `OUT_VARIABLE` names."""
    out = os.environ.get(OUT_VARIABLE)
    if out is not None:
        return f'"-XX:ArchiveClassesAtExit={out}" {_SILENT}'
    return f'"-XX:SharedArchiveFile={path}" {_SILENT}' if path.is_file() else ""


def archive_path() -> Path:
    """The archive's path for this version of Spark and Java, whether it exists or not."""
    java = shutil.which(java_command()) or "java"
    release = Path(os.path.realpath(java)).parent.parent / "release"
    parts = [pyspark.__version__, jvm.classpath(), os.path.realpath(java)]
    parts.append(release.read_text() if release.is_file() else "")
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder().parent / "classes" / f"spark-{pyspark.__version__}-{digest}.jsa"


def options_path(archive: Path) -> Path:
    """The file with the Java options for the same JVM (`jvm.save_options`)."""
    return archive.with_suffix(".json")
