"""Only one pipeline keeps a table, also if two start at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint
from streamhouse.runtime.statements.insert_plan import plan_insert
from streamhouse.runtime.statements.result_view import KeptResult, kept_spec
from streamhouse.runtime.views.query import ViewQuery
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Insert

_PIPELINES = ("one", "two", "three")


@pytest.fixture
def spec(tmp_path: Path) -> ViewSpec:
    session = ViewSession(tmp_path / "warehouse")
    session.run(
        "CREATE TABLE kept (product STRING, most INT, PRIMARY KEY (product) NOT ENFORCED) "
        "WITH ('changelog-producer' = 'input', 'bucket' = '1')"
    )
    (insert,) = parse_script("INSERT INTO kept SELECT product, MAX(amount) FROM orders GROUP BY 1")
    assert isinstance(insert, Insert)
    target = session.session.table(("kept",))
    planned = plan_insert(session.session, insert, target)
    assert isinstance(planned, KeptResult)
    return kept_spec(session.session, insert, target, planned)


def test_of_pipelines_that_start_at_once_one_keeps_a_table(spec: ViewSpec, tmp_path: Path) -> None:
    barrier = threading.Barrier(len(_PIPELINES))
    started: list[ViewQuery] = []
    refused: list[str] = []

    def start(pipeline: str) -> None:
        checkpoint = Checkpoint(tmp_path / "checkpoints", VIEWS, "shop.kept")
        barrier.wait()
        try:
            query = ViewQuery(spec, checkpoint, pipeline)
            query.check_first_start()
            query.prepare()
            started.append(query)
        except StreamhouseError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start, args=(name,)) for name in _PIPELINES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = started
    assert len(refused) == 2 and all("is already running" in text for text in refused)
    winner.checkpoint.release()
    for name in _PIPELINES:
        checkpoint = Checkpoint(tmp_path / "checkpoints", VIEWS, "shop.kept")
        later = ViewQuery(spec, checkpoint, name)
        if name == winner.description.pipeline:
            later.check_first_start()
            checkpoint.release()
        else:
            with pytest.raises(TableError, match=f"pipeline '{winner.description.pipeline}'"):
                later.check_first_start()
