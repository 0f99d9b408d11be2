"""Whether Spark is started before a script is read."""

from __future__ import annotations

import pytest

from streamhouse.cli.commands.run import may_stream


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("INSERT INTO b SELECT k FROM a", True),
        ("CREATE TABLE a (k INT);\ninsert  into b\nselect k\nfrom a", True),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO b SELECT k FROM a; END", True),
        ("CREATE TABLE b AS SELECT k FROM a", True),
        ("CREATE MATERIALIZED VIEW b AS SELECT k FROM a", True),
        ("CREATE VIEW b AS SELECT k FROM a", False),
        ("INSERT INTO b VALUES (1)", False),
        ("INSERT INTO b VALUES (1); SELECT k FROM a", False),
        ("SELECT k FROM a", False),
        ("SET 'execution.runtime-mode' = 'batch'; INSERT INTO b SELECT k FROM a", False),
        ("SET 'execution.runtime-mode'='BATCH'; INSERT INTO b SELECT k FROM a", False),
        ("SET 'execution.runtime-mode' = 'streaming'; INSERT INTO b SELECT k FROM a", True),
    ],
)
def test_an_insert_that_reads_a_table_in_streaming_mode(script: str, expected: bool) -> None:
    assert may_stream(script) is expected
