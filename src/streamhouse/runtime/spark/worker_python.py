"""The Python executable of Spark's workers: this Python, with the installed PySpark."""

import hashlib
import os
import shlex
import sys

from streamhouse.durable_files import replace_text
from streamhouse.paimon.java.jars import cache_folder


def worker_python() -> str:
    """The path of a shell script that runs this Python, for processes on this machine.

    Spark puts its zipped Python sources first on `PYTHONPATH`, and each of its many Python
    processes compiles them again, which takes half a second. The script restores `PYTHONPATH`. If
    the script cannot be written, returns the path of Python itself.
    """
    own = os.environ.get("PYTHONPATH")
    path = "unset PYTHONPATH" if own is None else f"export PYTHONPATH={shlex.quote(own)}"
    text = f'#!/bin/sh\n{path}\nexec {shlex.quote(sys.executable)} "$@"\n'
    program = cache_folder().parent / "python" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        if not program.is_file() or program.read_text() != text:
            program.parent.mkdir(parents=True, exist_ok=True)
            replace_text(program, text, durable=False, mode=0o755)
    except OSError:
        return sys.executable
    return str(program)
