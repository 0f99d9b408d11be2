"""What `--from-scratch` removes, keeps and refuses, over real tables; no query is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.failpoints import RESET_STEPS

from streamhouse.errors import OptionError, SqlError, StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.execute import execute
from streamhouse.runtime.reset import reset as module
from streamhouse.runtime.reset.continuous_targets import ScriptTargets, continuous_targets
from streamhouse.runtime.reset.reset import MARKER, any_left, finish, reset
from streamhouse.runtime.script import ScriptOptions
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_for, former_ids
from streamhouse.sql.statements.script import parse_script

TABLES = """
CREATE TABLE IF NOT EXISTS src (id INT, v INT) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS out (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum');
CREATE TABLE IF NOT EXISTS last (id INT, v INT) WITH ('bucket' = '-1');
"""
SCRIPT = TABLES + "INSERT INTO out SELECT id, v FROM src; INSERT INTO last SELECT id, v FROM out;"
SIDE = """
CREATE TABLE out__pending (
  _query STRING, _row_id STRING, v INT, PRIMARY KEY (_query, _row_id) NOT ENFORCED
) WITH ('bucket' = '1');
CREATE TABLE out__looked_up (
  _query STRING, _batch BIGINT, PRIMARY KEY (_query, _batch) NOT ENFORCED
) WITH ('bucket' = '1');
CREATE TABLE out__lineage (
  query_id STRING, batch_id BIGINT, definition STRING, PRIMARY KEY (query_id, batch_id) NOT ENFORCED
) WITH ('bucket' = '1');
CREATE TABLE out__unmatched (id INT, _attempts INT, _missed_at TIMESTAMP(3)) WITH ('bucket' = '-1');
"""
BY_QUERY = ("pending", "looked_up", "lineage")


class World:
    """A warehouse, and what the queries of a script that has run have left in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        execute(str(folder), TABLES)

    def address(self, name: str) -> TableAddress:
        return TableAddress({"warehouse": str(self.folder)}, f"default.{name}")

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        table = self.address(name).open()
        read = table.read() if table.latest_snapshot_id() else []
        return sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())

    def checkpoint(self, name: str, pipeline: str = "p") -> Checkpoint:
        return Checkpoint(self.folder / ".checkpoints", pipeline, f"default.{name}")

    def ran(self, name: str, *batches: int, pipeline: str = "p") -> str:
        """Have a query commit a row with each batch's number; its id."""
        checkpoint, address = self.checkpoint(name, pipeline), self.address(name)
        user = checkpoint.query_id()
        for number in batches:
            writer = TableWriter(address.warehouse, address.identifier, user)
            row = {"id": number, "v": 1}
            writer.write(pa.RecordBatch.from_pylist([row], address.open().arrow_schema))
            messages = writer.prepare(number)
            writer.close()
            TableCommitter(address.warehouse, address.identifier, user).commit(number, messages)
        for table in ("src", name):
            Consumers(self.address(table).open()).hold(query_consumer(user), 1, checkpoint.path)
        return user

    def consumers(self, name: str) -> set[str]:
        return {one.id for one in Consumers(self.address(name).open()).all()}

    def targets(self, text: str = SCRIPT) -> ScriptTargets:
        options = {"warehouse": str(self.folder)}
        return continuous_targets(parse_script(text), (), options, "p", None)

    def reset(self, text: str = SCRIPT, keep: bool = False) -> list[str]:
        """The notices of a reset."""
        reported: list[str] = []
        reset(self.targets(text), keep, reported.append, lambda: None)
        return reported

    def finish(self, text: str = SCRIPT) -> list[str]:
        reported: list[str] = []
        finish(self.targets(text), reported.append)
        return reported


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path)


def test_targets_are_emptied_and_their_queries_are_new_ones(world: World) -> None:
    before = world.ran("out", 0, 1, 2), world.ran("last", 0)
    reported = world.reset()
    assert reported == [
        "default.out: starts from scratch; 3 rows removed",
        "default.last: starts from scratch; 1 row removed",
    ]
    assert world.rows("out") == world.rows("last") == []
    after = {world.checkpoint(name).query_id() for name in ("out", "last")}
    assert not after & set(before) and len(after) == 2
    assert [path.name for path in world.checkpoint("out").path.iterdir() if path.is_dir()] == []
    assert world.consumers("src") == world.consumers("out") == world.consumers("last") == set()
    assert not any_left([world.folder / ".checkpoints"])


def test_a_checkpoint_with_a_damaged_log_is_reset_too(world: World) -> None:
    world.ran("out", 0, 1)
    checkpoint = world.checkpoint("out")
    for log, text in (("offsets", "v1"), ("commits", "v1\n{}")):
        (checkpoint.path / log).mkdir()
        (checkpoint.path / log / "1").write_text(text)
    assert world.reset()[0] == "default.out: starts from scratch; 2 rows removed"
    assert world.rows("out") == [] and checkpoint.known_id() is None


def test_targets_that_are_kept_are_those_of_the_script_at_the_next_reset(world: World) -> None:
    world.ran("out", 0, 1)
    assert world.reset(keep=True) == [
        "default.out: starts from scratch; its 2 rows are kept",
        "default.last: starts from scratch; its 0 rows are kept",
    ]
    assert world.rows("out") == [(0, 1), (1, 1)] and world.consumers("src") == set()
    world.ran("out", 0, 1)
    assert world.reset(keep=True)[0] == "default.out: starts from scratch; its 2 rows are kept"
    world.ran("out", 0, 1)
    assert world.rows("out") == [(0, 3), (1, 3)]
    # Two queries wrote these rows that nobody runs any more; both were this script's.
    assert world.reset()[0] == "default.out: starts from scratch; 2 rows removed"
    assert world.rows("out") == []


def test_rows_of_statements_are_removed_with_a_notice(world: World) -> None:
    execute(str(world.folder), "INSERT INTO out VALUES (1, 1), (2, 2)")
    assert world.reset()[0] == (
        "default.out: starts from scratch; 2 rows removed, including those of INSERT … VALUES "
        "and other statements"
    )
    # What was before counts no more.
    world.ran("out", 0)
    assert world.reset()[0] == "default.out: starts from scratch; 1 row removed"


def test_rows_of_other_pipelines_are_not_removed(world: World) -> None:
    world.ran("out", 0, 1)
    world.ran("out", 0, 1, 2, pipeline="q")
    with pytest.raises(StreamhouseError, match=r"empty default\.out.*of pipeline 'q' .checkpoint"):
        world.reset()
    assert world.rows("out") == [(0, 2), (1, 2), (2, 1)]
    assert world.checkpoint("out").known_id() is not None
    assert world.reset(keep=True)[0] == "default.out: starts from scratch; its 3 rows are kept"
    assert len(world.consumers("src")) == 1
    execute(str(world.folder), "TRUNCATE TABLE out")
    assert world.reset()[0] == "default.out: starts from scratch; it had no rows"


def test_other_queries_are_known_by_their_lineage_and_by_their_commits(world: World) -> None:
    execute(str(world.folder), SIDE)
    user = world.ran("last", 1)
    Consumers(world.address("last").open()).drop(query_consumer(user))
    (world.checkpoint("last").path / "metadata").unlink()
    with pytest.raises(StreamhouseError, match=f"streaming job with the commit user '{user}'"):
        world.reset()
    execute(
        str(world.folder),
        "ALTER TABLE out__lineage RENAME TO last__lineage; INSERT INTO last__lineage VALUES "
        f"""('{user}', 1, '{{"source": {{"table": "shop.orders"}}}}')""",
    )
    with pytest.raises(StreamhouseError, match=f"the query {user} over shop.orders"):
        world.reset()


def test_a_query_whose_checkpoint_is_damaged_is_still_the_scripts(world: World) -> None:
    world.ran("out", 0, 1)
    (world.checkpoint("out").path / "metadata").write_text("{")
    assert world.reset()[0] == "default.out: starts from scratch; 2 rows removed"


def test_auxiliary_tables_lose_the_rows_of_the_query_and_keep_others(world: World) -> None:
    user = world.ran("out", 0)
    rows = [f"('{{}}', {value})" for value in ("'r', 1", "2", "4, 'd'")]
    execute(str(world.folder), SIDE + "INSERT INTO out__unmatched (id) VALUES (7);")
    for suffix, values in zip(BY_QUERY, rows, strict=True):
        both = ", ".join(values.format(one) for one in (user, "other"))
        execute(str(world.folder), f"INSERT INTO out__{suffix} VALUES {both}")
    world.reset(keep=True)
    for suffix in BY_QUERY:
        assert [row[0] for row in world.rows(f"out__{suffix}")] == ["other"], suffix
    assert len(world.rows("out__unmatched")) == 1
    # The other one has no commit in the target, so none of its rows can be there.
    world.reset()
    assert world.rows("out__unmatched") == []
    assert world.rows("out__looked_up") == [("other", 2)]


def test_a_table_that_is_only_named_like_a_auxiliary_table_stays(world: World) -> None:
    world.ran("out", 0)
    execute(
        str(world.folder),
        "CREATE TABLE out__unmatched (id INT); INSERT INTO out__unmatched VALUES (1);"
        "CREATE TABLE out__pending (id INT); INSERT INTO out__pending VALUES (1)",
    )
    world.reset()
    assert world.rows("out__unmatched") == world.rows("out__pending") == [(1,)]


def test_checkpoints_of_parts_that_the_script_had_go_too(world: World) -> None:
    world.ran("out", 0)
    part = Checkpoint(world.folder / ".checkpoints", "p", "default.out+default.src")
    part.query_id()
    world.reset()
    assert part.known_id() is None
    assert len(checkpoints_for(world.folder / ".checkpoints", "p", "default.out")) == 2


def test_a_named_reader_starts_again_as_well(world: World) -> None:
    text = TABLES + "INSERT INTO out SELECT id, v FROM src /*+ OPTIONS('consumer-id' = 'me') */;"
    consumers = Consumers(world.address("src").open())
    consumers.hold("me", 5)
    consumers.hold("streamhouse-before-me", 4)
    consumers.hold("you", 5)
    world.reset(text)
    assert world.consumers("src") == {"you"}


def test_a_query_that_runs_is_not_reset(world: World) -> None:
    world.ran("out", 0)
    checkpoint = world.checkpoint("out")
    checkpoint.acquire()
    try:
        with pytest.raises(StreamhouseError, match="already running"):
            world.reset()
    finally:
        checkpoint.release()
    assert world.rows("out") == [(0, 1)] and not any_left([world.folder / ".checkpoints"])


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        ("INSERT INTO out SELECT idd, v FROM src;", SqlError),
        ("INSERT INTO nowhere SELECT id, v FROM src;", TableError),
    ],
)
def test_a_mistake_anywhere_in_the_script_removes_nothing(
    world: World, mistake: str, error: type[StreamhouseError]
) -> None:
    world.ran("out", 0)
    with pytest.raises(error, match="line"):
        world.reset(SCRIPT + mistake)
    assert world.rows("out") == [(0, 1)]


def test_a_catalog_is_needed_as_in_a_run(world: World) -> None:
    with pytest.raises(TableError, match="there is no catalog yet"):
        continuous_targets(parse_script(SCRIPT), (), None, "p", None)


def test_only_continuous_targets_count(world: World) -> None:
    text = SCRIPT + (
        "SET 'pipeline.name' = 'q'; INSERT INTO last SELECT id, v FROM src;"
        "INSERT INTO src VALUES (1, 1); SET 'execution.runtime-mode' = 'batch';"
        "INSERT INTO src SELECT id, v FROM out;"
    )
    found = {
        target.address.identifier: [checkpoint.pipeline for checkpoint in target.checkpoints]
        for target in world.targets(text).targets
    }
    assert found == {"default.out": ["p"], "default.last": ["p", "q"]}


def test_a_statement_that_is_explained_resets_nothing(world: World) -> None:
    world.ran("out", 0)
    text = TABLES + "EXPLAIN INSERT INTO out SELECT id, v FROM src;"
    assert not world.targets(text).targets
    assert world.reset(text) == [] and world.rows("out") == [(0, 1)]


def test_rows_are_kept_only_of_what_starts_from_scratch() -> None:
    with pytest.raises(OptionError, match="needs --from-scratch"):
        ScriptOptions("s.sql", keep_targets=True)


class Killed(BaseException):
    """Ends a reset as nothing that is raised on purpose does; real kills take a process each."""


@pytest.mark.parametrize("keep", [False, True], ids=["emptied", "kept"])
@pytest.mark.parametrize("step", RESET_STEPS)
def test_a_reset_that_is_killed_is_finished_by_the_next_run(
    world: World, step: str, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if keep and step == "target-emptied":
        pytest.skip("no target is emptied")
    before = world.ran("out", 0, 1), world.ran("last", 0)

    def reached(at: str, batch: int, table: str) -> None:
        if at == step:
            raise Killed

    monkeypatch.setattr(module, "reached", reached)
    with pytest.raises(Killed):
        world.reset(keep=keep)
    monkeypatch.undo()
    assert any_left([world.folder / ".checkpoints"])
    reported = world.finish()
    begun = "starts from scratch, as an interrupted run had begun to; "
    assert reported and all(begun in line for line in reported)
    assert world.rows("out") == ([(0, 1), (1, 1)] if keep else [])
    assert world.rows("last") == ([(0, 1)] if keep else [])
    for name, old in zip(("out", "last"), before, strict=True):
        checkpoint = world.checkpoint(name)
        assert checkpoint.known_id() is None
        assert former_ids(checkpoint.path) == ([old] if keep else [])
    assert world.finish() == [] and not any_left([world.folder / ".checkpoints"])


def test_what_was_cut_off_waits_for_a_script_with_that_target(world: World) -> None:
    world.ran("out", 0), world.ran("last", 0)
    world.reset()
    marker = world.checkpoint("out").path.parent / MARKER
    marker.write_text('{"default.out": {"keep": false, "queries": []}}')
    world.ran("out", 0)
    only_last = TABLES + "INSERT INTO last SELECT id, v FROM src;"
    assert world.finish(only_last) == [] and marker.exists()
    assert world.rows("out") == [(0, 1)]
    assert len(world.finish()) == 1 and not marker.exists()
    assert world.rows("out") == []
