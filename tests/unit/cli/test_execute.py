"""`streamhouse execute` and `streamhouse.execute`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S
from typer.testing import CliRunner

import streamhouse
from streamhouse.cli.main import build
from streamhouse.errors import SqlError


def test_counts_and_refused_statements(shop: Shop) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 1, 2.0), ("Chile", 2, 3.0))
    words = ["execute", "UPDATE shop.sales SET orders = 5 WHERE country = 'Peru'; "
             "DELETE FROM shop.sales WHERE orders = 2", "--warehouse", str(shop.path)]  # fmt: skip
    result = CliRunner().invoke(build(words), words)
    assert (result.exit_code, result.stdout) == (0, "1 updated, 1 deleted\n")
    words = ["execute", "-", "--json", "--warehouse", str(shop.path)]
    result = CliRunner().invoke(build(words), words, "DELETE FROM shop.sales WHERE FALSE")
    assert json.loads(result.stdout) == {
        "inserted": 0, "updated": 0, "deleted": 0, "rewritten": False, "snapshot": None,
        "actions": [],
    }  # fmt: skip
    rows = [row for batch in shop.warehouse.table(table).read() for row in batch.to_pylist()]
    assert rows == [{"country": "Peru", "orders": 5, "revenue": 2.0}]
    with pytest.raises(SqlError, match="line 2, column 1: .* prints a SELECT"):
        streamhouse.execute(str(shop.path), "DELETE FROM shop.sales;\nSELECT 1")
    assert not list(shop.warehouse.table(table).read()), "what stood before had run"


def test_a_script_with_its_own_catalog_needs_no_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STREAMHOUSE_WAREHOUSE", raising=False)
    (tmp_path / "warehouse").mkdir()
    own = f"CREATE CATALOG c WITH ('type' = 'paimon', 'warehouse' = '{tmp_path}/own');"
    words = ["execute", f"{own} USE CATALOG c; CREATE TABLE t (i INT); INSERT INTO t VALUES (1)"]
    result = CliRunner().invoke(build(words), words)
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "catalog c created; table t created; 1 inserted\n",
        "",
    )
    assert (tmp_path / "own" / "default.db" / "t").is_dir()
    assert not list((tmp_path / "warehouse").iterdir())
    for words in (["execute", own.replace(f"{tmp_path}/own", "gs://b/w")],
                  ["execute", "SELECT 1", "--warehouse", "hdfs://b/w"]):  # fmt: skip
        result = CliRunner().invoke(build(words), words)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
        assert "://…, which is not supported; give a directory" in result.stderr


def test_spark_is_not_loaded(shop: Shop) -> None:
    code = (
        "import sys\n"
        "from streamhouse.cli.main import main\n"
        "try: main()\n"
        "finally: assert 'pyspark' not in sys.modules\n"
    )
    sql = "CREATE TABLE shop.t (i INT) WITH ('bucket' = '-1'); INSERT INTO shop.t VALUES (1)"
    done = subprocess.run(
        [sys.executable, "-c", code, "execute", sql, "--warehouse", str(shop.path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "table shop.t created; 1 inserted\n",
        "",
    )
