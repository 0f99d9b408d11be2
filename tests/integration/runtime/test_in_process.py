"""Scripts and commands inside another program end what they started, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import DEADLINE_S

PROGRAM = """
import json, sys, tempfile, threading
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptRunner, ScriptOptions
from streamhouse.runtime.spark.session import end_session
from streamhouse.sql.statements.script import parse_script
from pyspark import SparkContext

def run(rows):
    text = '''
    CREATE TABLE IF NOT EXISTS t (id BIGINT) WITH ('bucket' = '-1');
    CREATE TEMPORARY TABLE made (id BIGINT) WITH ('connector' = 'datagen',
      'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '%d');
    INSERT INTO t SELECT id FROM made;
    ''' % rows
    options = ScriptOptions('s', {'warehouse': sys.argv[1]}, until_caught_up=True)
    ScriptRunner(options, RunOutput()).run(parse_script(text))

run(10)
first = SparkContext._active_spark_context
run(20)
same = SparkContext._active_spark_context is first is not None
end_session()
end_session()
threads = [t.name for t in threading.enumerate() if t.name.startswith(('streamhouse', 's: '))]
print(json.dumps([same, threads]))
"""


def test_a_session_serves_two_scripts_and_leaves_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == [True, []]
    assert [path.name for path in temporary.iterdir()] == []


GUEST = """
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner
from streamhouse.cli.main import build

host = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
script = Path(sys.argv[1], "script.sql")
script.write_text("CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED); INSERT INTO t VALUES (1);")
command = ["run", str(script), "--warehouse", sys.argv[1] + "/lake"]
ended = CliRunner().invoke(build(command), command)
print(ended.exit_code, host.range(3).count())
"""


@pytest.mark.usefixtures("quick_spark")
def test_a_session_of_somebody_else_stays(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", GUEST, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.stdout.split() == ["0", "3"], ended.stderr
