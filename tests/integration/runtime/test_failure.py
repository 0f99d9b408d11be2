"""A query restarts a few times after a failure that is not the user's fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT
from tests.waiting import DEADLINE_S

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.monitoring.status import Statuses

SCRIPT = """
CREATE TEMPORARY TABLE numbers_source (n BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000', 'number-of-rows' = '2000',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '2000');
CREATE TABLE IF NOT EXISTS numbers (n BIGINT) WITH ('bucket' = '-1');
INSERT INTO numbers SELECT n FROM numbers_source;
"""
FAILING = """
import os
from tests.integration.differential.local_run import without_spark
from streamhouse.cli.main import main
from streamhouse.runtime.streaming.continuous_query import ContinuousQuery

commit, calls = ContinuousQuery.commit, []

def failing(self, frame):
    calls.append(frame)
    if len(calls) == 2 and "STREAMHOUSE_RESTARTS" not in os.environ:
        raise RuntimeError("no fault of the user's")
    return commit(self, frame)

prepare = ContinuousQuery.prepare

class PanicException(BaseException):
    __module__ = "pyo3_runtime"

def panicking(self):
    if len(os.environ.get("STREAMHOUSE_RESTARTS", "").split()) == 1:
        raise PanicException("index out of bounds")
    prepare(self)

ContinuousQuery.commit, ContinuousQuery.prepare = failing, panicking
with without_spark():
    main()
"""


def test_a_failed_query_continues_and_explains_why(tmp_path: Path) -> None:
    script, warehouse = tmp_path / "numbers.sql", tmp_path / "warehouse"
    script.write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, "-c", FAILING, "run", str(script), "--warehouse", str(warehouse)]
        + ["--until-caught-up", "--from-scratch"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    # It applies to this run only, and the processes that continue it are not other runs.
    assert ended.stderr.count("default.numbers: starts from scratch") == 1
    assert ended.stderr.count("a query has failed") == 1
    assert "RuntimeError: no fault of the user's" in ended.stderr
    assert ended.stderr.count("Paimon's Rust core has panicked") == 1
    assert "PanicException: index out of bounds" in ended.stderr
    table = Warehouse(str(warehouse)).table("default.numbers")
    rows = [row["n"] for batch in table.read() for row in batch.to_pylist()]
    assert sorted(rows) == list(range(1, 2001))
    status = Statuses({"warehouse": str(warehouse)}).read("numbers.sql")
    assert status is not None
    assert (status.state, status.restarts) == ("stopped", 2)
    assert "PanicException: index out of bounds" in str(status.error)
