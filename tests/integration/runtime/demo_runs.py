"""Runs of `streamhouse demo`, as a new user starts it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.forked_commands import forked_commands


def run_demo(
    folder: Path, *arguments: str, timeout: float, spark: bool = True
) -> tuple[dict[str, Any], str]:
    """The JSON that `streamhouse demo` prints in a folder, and its standard error.

    It and the commands of its steps start as forks; its pipelines are processes of their own, whose
    queries run in threads without `spark`.
    """
    with TemporaryDirectory() as place, forked_commands(Path(place), spark) as commands:
        ended = subprocess.run(
            [str(commands / "streamhouse"), "demo", *arguments, "--json", "--dir", str(folder)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result, ended.stderr
