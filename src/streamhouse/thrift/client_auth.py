"""Sets the password of the Thrift server and restricts its clients: `Guard.java` in Spark's JVM."""

from __future__ import annotations

import hashlib
import secrets
from importlib.resources import files
from pathlib import Path
from typing import Any

_GUARD = "streamhouse.Guard"
_PROVIDER = f"{_GUARD}$Password"
"""The class that Hive's server calls to check a password."""
_SOURCE = "Guard.java"
_BYTES = 18


def new_password() -> str:
    """A random password, of letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(_BYTES)


def install(spark: Any, password: str | None, folder: Path) -> None:
    """Restrict the sessions that are derived from Spark's from now on, and set the password.

    The classes are written to `folder`, which is in the class path of the JVM: Hive's server loads
    the one that checks the password in threads with different class loaders.
    """
    jvm = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(files("streamhouse.thrift").joinpath(_SOURCE).read_text())
    for name, code in dict(compiler.getBytecodes()).items():
        file = folder.joinpath(*name.split(".")).with_suffix(".class")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    guard = loader.loadClass(_GUARD).newInstance()
    guard.confine(spark._jsparkSession)
    if password is not None:
        # Hive's server reads this from the system's properties, not from its own settings.
        jvm.java.lang.System.setProperty("hive.server2.custom.authentication.class", _PROVIDER)
        guard.password(hashlib.sha256(password.encode()).hexdigest())
