"""The Python that Spark starts its processes with: this one, with pyspark as it is installed."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys

from streamhouse.paimon.jars import cache_folder


def worker_python() -> str:
    """The path of a program that runs this Python, for processes on this machine.

    Spark puts its zipped Python sources first on `PYTHONPATH`, from which each of its many Python
    processes compiles them anew, at half a second each. The program takes them off again. Where
    it cannot be written, Python itself is named.
    """
    own = os.environ.get("PYTHONPATH")
    path = "unset PYTHONPATH" if own is None else f"export PYTHONPATH={shlex.quote(own)}"
    text = f'#!/bin/sh\n{path}\nexec {shlex.quote(sys.executable)} "$@"\n'
    program = cache_folder().parent / "python" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        if not program.is_file() or program.read_text() != text:
            program.parent.mkdir(parents=True, exist_ok=True)
            fresh = program.with_name(f"{program.name}.{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(0o755)
            os.replace(fresh, program)
    except OSError:
        return sys.executable
    return str(program)
