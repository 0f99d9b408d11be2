"""CALL in scripts without a JVM: where it runs, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamhouse.errors import OptionError, TableError
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

TABLE = "CREATE TABLE people (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');\n"


def failed(folder: Path, text: str, kind: type[Exception]) -> Any:
    options = ScriptOptions("s.sql", {"warehouse": str(folder)}, until_caught_up=True)
    with pytest.raises(kind) as caught:
        ScriptRunner(options, RunOutput()).run(parse_script(TABLE + text))
    return str(caught.value)


def test_mistakes_have_a_place_and_name_the_nearest(tmp_path: Path) -> None:
    said = failed(tmp_path, "CALL sys.compacts('people');", OptionError)
    assert said.startswith("line 2, column 1: there is no procedure 'sys.compacts'")
    assert "did you mean 'compact'" in said


def test_tables_are_those_of_the_session(tmp_path: Path) -> None:
    said = failed(tmp_path, "CALL sys.compact('peeple');", TableError)
    assert "database 'default'; did you mean 'people'" in said


def test_a_catalog_that_is_not_there(tmp_path: Path) -> None:
    said = failed(tmp_path, "CALL lake.sys.compact('people');", TableError)
    assert "there is no catalog 'lake'" in said
