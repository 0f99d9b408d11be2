"""Runs scripts with continuous queries in this process, without Spark and without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

from tests.integration.differential.local_run import without_spark
from tests.integration.runtime.conftest import CollectedOutput

from streamhouse import execute
from streamhouse.duckdb_engine import run_bounded
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.runtime.session.session import Session
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select

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
        # Nothing is compacted, which would start a JVM.
        maintenance = MagicMock(pressure=None, waiting=lambda: [])
        with (
            without_spark(),
            patch("streamhouse.runtime.pipeline.Maintenance", lambda *args, **named: maintenance),
        ):
            ScriptRunner(options, output).run(parse_script(script))
        return output.lines

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table."""
        opened = self.warehouse.table(f"default.{table}")
        return [row for batch in opened.read() for row in batch.to_pylist()]

    def selected(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a bounded query."""
        (statement,) = parse_script(query)
        assert isinstance(statement, Select)
        plan = analyze_bounded(statement.query, Session(self.options))
        return [tuple(row.values()) for row in run_bounded(plan, self.warehouse).to_pylist()]

    def checkpoint(self, target: str, name: str = NAME) -> Path:
        """The checkpoint folder of a query."""
        return self.root / name / f"default.{target}"
