"""Runs of `streamhouse demo`, as a new user starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_demo(folder: Path, *arguments: str, timeout: float) -> tuple[dict[str, Any], str]:
    """The JSON that `streamhouse demo` prints in a folder, and its standard error."""
    program = str(Path(sys.executable).with_name("streamhouse"))
    ended = subprocess.run(
        [program, "demo", *arguments, "--json", "--dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result, ended.stderr
