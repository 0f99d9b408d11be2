"""Procedures as SQL and as a command."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.procedures.conftest import Lake
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script


class CollectedOutput(RunOutput):
    def __init__(self) -> None:
        self.tables: list[list[dict[str, Any]]] = []

    def rows(self, reader: pa.RecordBatchReader) -> None:
        self.tables.append(reader.read_all().to_pylist())


def test_a_script_calls_procedures_in_order(lake: Lake) -> None:
    text = """
        USE db;
        CREATE TABLE called (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
        INSERT INTO called VALUES (1);
        CALL sys.create_tag('called', 'one');
        INSERT INTO called VALUES (2);
        CALL sys.compact(`table` => 'db.called');
        CALL sys.rollback(table => 'called', version => 'one');
        SET 'execution.runtime-mode' = 'batch';
        SELECT id FROM called;
    """
    kept = CollectedOutput()
    options = ScriptOptions("s.sql", dict(lake.warehouse.options), until_caught_up=True)
    ScriptRunner(options, kept).run(parse_script(text))
    tag, compacted, back, rows = kept.tables
    assert tag == [{"tag": "one", "snapshot_id": 1}]
    assert (compacted[0]["files_before"], compacted[0]["files_after"]) == (2, 1)
    assert back == [{"previous_snapshot_id": 3, "current_snapshot_id": 1}]
    assert rows == [{"id": 1}]


def command(*words: str) -> tuple[int, str]:
    arguments = ["call", *words]
    done = CliRunner().invoke(build(arguments), arguments)
    return done.exit_code, done.output


def test_the_command(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["streamhouse"])
    name = lake.table({"id": "INT"}, ("id",), bucket="1")
    lake.write(name, {"id": [1]})
    bare = name.partition(".")[2]
    where = ["--warehouse", lake.warehouse.path]
    code, text = command(f"sys.create_tag('{bare}', 'x')", *where, "--format", "json")
    assert (code, json.loads(text)) == (0, [{"tag": "x", "snapshot_id": 1}])
    code, text = command(f"CALL sys.delete_tag(table => '{name}', tag => 'y')", *where)
    assert code == 1
    assert f"table {name} has no tag 'y'; known: x" in text
    code, text = command("--list", "--format", "json")
    assert "order_strategy" in next(
        call["arguments"] for call in json.loads(text) if call["procedure"] == "compact"
    )
