"""Commands and programs in README.md and the guides, run as a reader would run them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from tests.documents import GUIDES, README, ROOT, Block, blocks
from tests.forked_commands import forked_commands
from tests.waiting import DEADLINE_S, looks

from streamhouse.demo.mariadb import free_port

SKIPPED = "not run: "
NEEDED = (
    "catalogs", "dbt", "deployment", "deployment", "kafka", "object-storage", "python-data-sources",
)  # fmt: skip
"""The guides of blocks that need a server or program of the reader; tests of the feature start a
real one."""
ENDLESS = "runs until stopped"
BESIDE = "runs beside what follows"
PROGRAM = ("python", "")
PORT = "8080"
INSTALLED = Path(sys.executable).parent
LANGUAGES = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


def environment(language: str, folder: Path, commands: Path) -> dict[str, str]:
    """The reader's, with the project's commands first."""
    # Spark's settings are for programs that start a session: commands start Spark quickly
    # themselves, but with a folder of settings by `spark-submit` and without the class archive.
    settings = () if language == "python" else ("SPARK_CONF_DIR",)
    ours = ("STREAMHOUSE_W", "PYSPARK_", *settings)
    own = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    path = [part for part in own.get("PATH", "").split(os.pathsep) if part != str(INSTALLED)]
    # A program runs by the path of its interpreter, as `.venv/bin/python program.py`.
    ahead = [] if language == "python" else [str(commands), str(INSTALLED)]
    own["PATH"] = os.pathsep.join([*ahead, *path])
    # Checkpoints of warehouses in object stores: those of an earlier run are of other tables.
    own["XDG_STATE_HOME"] = str(folder / "state")
    return own


@contextlib.contextmanager
def started(block: Block, folder: Path, commands: Path) -> Iterator[subprocess.Popen[str]]:
    """The block's process in a group of its own, of which nothing is left afterwards."""
    process = subprocess.Popen(
        [*LANGUAGES[block.language], block.text],
        cwd=folder,
        env=environment(block.language, folder, commands),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)


def run(block: Block, folder: Path, commands: Path) -> None:
    with started(block, folder, commands) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, f"{block} ended with {process.returncode}:\n{output}"


def watch(block: Block, folder: Path, commands: Path) -> None:
    """A block that runs until Ctrl-C must print something, and end by it."""
    with started(block, folder, commands) as process:
        output = first_output(process)
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 130, -signal.SIGINT), f"{block}:\n{output}{rest}"
    assert output.strip() and "Traceback" not in output + rest, f"{block}:\n{output}{rest}"


@contextlib.contextmanager
def running_block(block: Block, folder: Path, commands: Path) -> Iterator[None]:
    """A block that says something when it is ready, and runs until what follows is over."""
    with started(block, folder, commands) as process:
        output = first_output(process)
        assert process.poll() is None, f"{block}:\n{output}"
        yield
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 130, -signal.SIGINT), f"{block}:\n{output}{rest}"
    assert "Traceback" not in output + rest, f"{block}:\n{output}{rest}"


def first_output(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        for _ in looks():
            if selector.select(0.5):
                break
            assert process.poll() is None
    return process.stdout.readline()


def together(found: Iterable[Block]) -> Iterator[Block]:
    """Python programs that follow each other as one, for which a JVM starts once; as in a notebook,
    but each with names of its own."""
    for programs, some in groupby(found, lambda block: (block.language, block.mark) == PROGRAM):
        cells = list(some)
        if not programs or len(cells) == 1:
            yield from cells
            continue
        named = "{'__name__': '__main__'}"
        texts = [f"exec(compile({c.text!r}, {str(c)!r}, 'exec'), {named})" for c in cells]
        yield replace(cells[0], text="\n".join(texts))


@pytest.fixture(scope="module")
def forks() -> Iterator[Path]:
    """A folder whose `streamhouse` starts in little time, and runs queries without Spark.

    README.md runs the installed one.
    """
    with tempfile.TemporaryDirectory() as folder, forked_commands(Path(folder), False) as commands:
        yield commands


@pytest.mark.usefixtures("quick_spark")
@pytest.mark.parametrize("document", GUIDES, ids=lambda path: path.stem)
def test_a_document_runs_from_top_to_bottom(document: Path, tmp_path: Path, forks: Path) -> None:
    commands = INSTALLED if document == README else forks
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    port = str(free_port())
    with contextlib.ExitStack() as servers:
        for written in together(blocks(document, *LANGUAGES)):
            block = replace(written, text=written.text.replace(PORT, port))
            if block.mark == ENDLESS:
                watch(block, tmp_path, commands)
            elif block.mark == BESIDE:
                servers.enter_context(running_block(block, tmp_path, commands))
            elif not block.mark.startswith(SKIPPED):
                run(block, tmp_path, commands)


def test_only_what_must_be_is_left_out() -> None:
    marked = [block for guide in GUIDES for block in blocks(guide, *LANGUAGES) if block.mark]
    left_out = [block for block in marked if block.mark not in (ENDLESS, BESIDE)]
    assert all(block.mark.startswith(SKIPPED) for block in left_out)
    others = [
        block
        for block in left_out
        if not all(line.startswith("make ") for line in block.text.splitlines())
    ]
    assert [block.document.stem for block in others] == list(NEEDED)
    assert all(block.mark.startswith(f"{SKIPPED}it needs ") for block in others)
