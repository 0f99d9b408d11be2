"""`streamhouse init` writes a project whose script runs and whose test passes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from streamhouse.cli.main import build


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(list(arguments)), list(arguments))
    return result.exit_code, result.output


def test_the_project_is_tested_and_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = run("init", "shop")
    assert code == 0
    monkeypatch.chdir(tmp_path / "shop")
    commands = [line.split()[1:] for line in text.splitlines() if line.startswith("  streamhouse")]
    tested, started = commands
    code, text = run(*tested)
    assert code == 0 and "1 passed" in text
    assert started[0] == "run"
    code, text = run("graph", started[1])
    assert code == 0 and "revenue" in text
    readme = Path("README.md").read_text()
    assert all(f"streamhouse {' '.join(command)}" in readme for command in commands)
    workflow = yaml.safe_load(Path(".github/workflows/test.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    assert steps[-1]["run"] == f"streamhouse {' '.join(tested)}"


def test_files_that_exist_stay(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text("SELECT 1")
    code, text = run("init", str(tmp_path))
    assert code == 1 and "shop.sql exists; give the name of another folder" in text
    assert [path.name for path in tmp_path.iterdir()] == ["shop.sql"]
