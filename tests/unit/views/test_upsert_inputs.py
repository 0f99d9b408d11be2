"""Views over topics of upserts: a table keeps the rows, whatever their columns are."""

from __future__ import annotations

from pathlib import Path

from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.statements.script_plan import plan_script
from streamhouse.sql.statements.script import parse_script

SCRIPT = """
CREATE TEMPORARY TABLE k (id INT, v INT NOT NULL, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:1',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE t (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED);
INSERT INTO t SELECT id, v FROM k WHERE v > 1;
"""


def test_a_delete_has_only_the_key(tmp_path: Path) -> None:
    session = DraftSession({"warehouse": str(tmp_path)})
    feed, view = plan_script(session, parse_script(SCRIPT))
    assert feed.queries and feed.target is not None and view.view is not None
    assert [column.nullable for column in feed.target.columns] == [False, True]
