"""Runs scripts with continuous queries in this process, without Spark and without a JVM."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.differential.local_run import without_spark
from tests.integration.runtime.conftest import CollectedOutput

from streamhouse import execute
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

NAME = "figures.sql"


class LocalPipeline:
    """A warehouse, and scripts that run over it until they have caught up."""

    def __init__(self, folder: Path) -> None:
        self.options = {"warehouse": str(folder / "lake")}
        self.warehouse = Warehouse(self.options)
        self.warehouse.create_database("default")
        self.root = folder / "lake" / ".checkpoints"

    def do(self, sql: str) -> None:
        """Run bounded statements."""
        execute(self.warehouse, sql)

    def run(self, script: str, name: str = NAME, **more: Any) -> list[str]:
        """Run a script until it has caught up; returns what it printed."""
        output = CollectedOutput()
        options = ScriptOptions(name, self.options, until_caught_up=True, **more)
        with without_spark():
            ScriptRunner(options, output).run(parse_script(script))
        return output.lines

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table."""
        opened = self.warehouse.table(f"default.{table}")
        return [row for batch in opened.read() for row in batch.to_pylist()]

    def checkpoint(self, target: str, name: str = NAME) -> Path:
        """The checkpoint folder of a query."""
        return self.root / name / f"default.{target}"

    def copies(self, target: str) -> Iterator[None]:
        """Take a copy of a checkpoint; the next step restores it."""
        path = self.checkpoint(target)
        copy = path.with_name(f"{path.name}.copy")
        shutil.copytree(path, copy)
        yield
        shutil.rmtree(path)
        copy.rename(path)
        yield
