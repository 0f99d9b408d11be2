"""dbt builds, changes and documents the project of `examples/dbt`, in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from streamhouse.durable_files import locked
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.sql.views.stored_view import HIDDEN_KEY

ROOT = Path(__file__).parents[3]
PACKAGES = ("dbt-core==1.11.*", "dbt-adapters>=1.24,<2")
ORDERS = """
CREATE DATABASE shop; USE shop;
CREATE TABLE orders (
  id BIGINT PRIMARY KEY NOT ENFORCED, customer_id INT, price DECIMAL(10, 2), order_time TIMESTAMP(3)
);
INSERT INTO orders VALUES (1, 1, 5, TIMESTAMP '2026-11-30 10:00:00'),
  (2, 1, 20, TIMESTAMP '2026-11-30 11:00:00'), (3, 2, 30, TIMESTAMP '2026-11-30 12:00:00')
"""


@pytest.fixture(scope="session")
def dbt() -> Path:
    """The program `dbt`, in an environment that also has the packages of this one."""
    made_of = [*PACKAGES, sys.executable, str(ROOT)]
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]
    folder = ROOT / "build" / f"dbt-{name}"
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.parent):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--no-compile"]
            subprocess.run([*pip, *PACKAGES], check=True)
            (packages,) = (folder / "lib").glob("python3*/site-packages")
            # Its own packages come first.
            paths = [ROOT / "dbt-streamhouse", ROOT / "src", *site.getsitepackages()]
            (packages / "zz-streamhouse.pth").write_text("".join(f"{path}\n" for path in paths))
            (folder / "ready").touch()
    return folder / "bin/dbt"


class Project:
    """A copy of the example project, and its warehouse."""

    def __init__(self, dbt: Path, folder: Path) -> None:
        self._dbt, self.folder = dbt, folder / "project"
        shutil.copytree(
            ROOT / "examples/dbt", self.folder, ignore=shutil.ignore_patterns("target", "logs")
        )
        self.warehouse = Warehouse(str(self.folder / "warehouse"))
        Path(self.folder, "warehouse").mkdir()
        execute(self.warehouse, ORDERS)

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run dbt; returns what it prints."""
        command = [str(self._dbt), "--no-use-colors", "--no-send-anonymous-usage-stats", *arguments]
        environment = {**os.environ, "DBT_PROFILES_DIR": str(self.folder)}
        environment.pop("WAREHOUSE", None)
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return str(done.stdout)

    def edit(self, model: str, old: str, new: str) -> None:
        path = self.folder / "models" / model
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = self.warehouse.table(f"shop.{table}").rows().to_pylist()
        return sorted(
            tuple(str(value) for name, value in row.items() if name != HIDDEN_KEY) for row in found
        )


@pytest.fixture
def project(dbt: Path, tmp_path: Path) -> Iterator[Project]:
    yield Project(dbt, tmp_path)


def test_models_are_built_tested_and_follow_their_tables(project: Project) -> None:
    assert "PASS=11 WARN=0 ERROR=0" in project.run("build")
    assert project.rows("revenue") == [("France", "1", "30.00"), ("Portugal", "2", "25.00")]
    assert project.rows("countries") == [("France", "1"), ("Portugal", "2")]
    assert ("3", "Portugal", "Carla O'Neill", "None") in project.rows("customers")
    execute(
        project.warehouse,
        "INSERT INTO shop.orders VALUES (1, 3, 6, TIMESTAMP '2026-11-30 13:00:00')",
    )
    assert "PASS=11 WARN=0 ERROR=0" in project.run("build")
    assert project.rows("revenue") == [("France", "1", "30.00"), ("Portugal", "2", "26.00")]
    time = datetime(2026, 11, 30, 13)
    assert ("1", "6.00", str(time)) in project.rows("order_log")


def test_changed_models_keep_the_history_of_their_tables(project: Project) -> None:
    project.run("build")
    revenue, countries = (project.warehouse.table(f"shop.{n}") for n in ("revenue", "countries"))
    project.edit("revenue.sql", "COUNT(*) AS orders", "COUNT(*) AS orders, MAX(o.price) AS most")
    project.run("run")
    assert project.rows("revenue") == [
        ("France", "1", "30.00", "30.00"),
        ("Portugal", "2", "20.00", "25.00"),
    ]
    for table in (revenue, countries):
        assert table.snapshots.find(1) is not None
        assert (table.latest_snapshot_id() or 0) > 1
    project.edit("countries.sql", "COUNT(*) AS customers", "MIN(id) AS first_id")
    project.run("run", "-s", "countries")
    assert project.rows("countries") == [("France", "2"), ("Portugal", "1")]
    project.edit("countries.sql", "'table'", "'materialized_view'")
    project.run("run", "-s", "countries")
    assert project.rows("countries") == [("France", "2"), ("Portugal", "1")]


def test_a_failing_test_and_an_unknown_column_say_so(project: Project) -> None:
    project.edit("revenue.sql", "SUM(o.price)", "SUM(o.prize)")
    text = project.run("build", code=1)
    assert "'o' has no column 'prize'; did you mean 'price'?" in text
    execute(
        project.warehouse, "INSERT INTO shop.orders (id, customer_id, price) VALUES (9, 99, 50)"
    )
    text = project.run("test", "-s", "large_orders", code=1)
    assert "Got 1 result, configured to fail if != 0" in text


def test_sources_documents_and_a_script_for_the_pipeline(project: Project) -> None:
    project.run("build")
    assert "freshness of shop.orders" in project.run("source", "freshness")
    project.run("docs", "generate")
    catalog = json.loads((project.folder / "target/catalog.json").read_text())
    revenue = catalog["nodes"]["model.shop.revenue"]
    assert revenue["metadata"]["type"] == "materialized_view"
    assert [column["type"] for column in revenue["columns"].values()] == [
        "STRING",
        "BIGINT",
        "DECIMAL(38, 2)",
    ]
    assert "views.sql: 1 materialized views" in project.run("run-operation", "streamhouse_script")
    script = (project.folder / "views.sql").read_text()
    execute(project.warehouse, "DROP MATERIALIZED VIEW shop.revenue")
    execute(project.warehouse, f"{script} ALTER MATERIALIZED VIEW shop.revenue REFRESH")
    assert project.rows("revenue") == [("France", "1", "30.00"), ("Portugal", "2", "25.00")]
