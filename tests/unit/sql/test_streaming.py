"""Whether Spark is started before the tables of a script are known."""

from __future__ import annotations

import pytest

from streamhouse.sql.script import parse_script
from streamhouse.sql.streaming import may_stream

TABLES = "CREATE TABLE a (k INT); CREATE TABLE b (k INT); "


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("INSERT INTO b SELECT k FROM a", True),
        ("insert into b\nselect k\nfrom a", True),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO b SELECT k FROM a; END", True),
        ("INSERT INTO b VALUES (1)", False),
        ("INSERT INTO b SELECT 1", False),
        ("SELECT k FROM a", False),
        ("SET 'execution.runtime-mode' = 'batch'; INSERT INTO b SELECT k FROM a", False),
        ("INSERT INTO b SELECT k FROM a; SET 'execution.runtime-mode' = 'batch'", True),
        (
            "SET 'execution.runtime-mode' = 'batch'; RESET 'execution.runtime-mode'; "
            "INSERT INTO b SELECT k FROM a",
            True,
        ),
        ("SET 'execution.runtime-mode' = 'batch'; RESET; INSERT INTO b SELECT k FROM a", True),
    ],
)
def test_an_insert_that_reads_a_table_in_streaming_mode(script: str, expected: bool) -> None:
    assert may_stream(parse_script(TABLES + script)) is expected
