"""`streamhouse` as a process whose queries run in threads instead of Spark.

For tests of what a killed process leaves: the same planner, tasks, commits and checkpoints, without
a JVM and Python workers, which take ten seconds of a processor to start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tests.documents import ROOT
from tests.integration.differential.local_run import without_spark

from streamhouse.cli.main import main

PROGRAM = f"""\
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
runpy.run_module("tests.local_command", run_name="__main__")
"""


@contextmanager
def local_commands() -> Iterator[None]:
    """Let this command run without Spark, and the pipelines that it starts (`serve`, `demo`)."""
    with (
        without_spark(),
        patch("streamhouse.demo.child_process._MAIN", PROGRAM),
        patch("streamhouse.serve.pipelines.runner._PROGRAM", ("-c", PROGRAM)),
    ):
        yield


if __name__ == "__main__":
    with local_commands():
        main()
