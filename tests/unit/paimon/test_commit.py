from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.waiting import DEADLINE_S

from streamhouse.errors import CommitConflictError, StreamhouseError, TableError
from streamhouse.paimon.read.time_travel import table_as_of
from streamhouse.paimon.readers import woken_by
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix, query_tag, write_error
from streamhouse.sql.plan import AsOf

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_a_replayed_batch_changes_nothing_and_leaves_no_file(lab: Lab) -> None:
    table = lab.make("t")
    assert lab.write(table, 1, [(1, 10), (2, 20)])
    files = lab.data_files(table)
    assert not lab.write(table, 1, [(1, 10), (2, 99)])
    assert lab.data_files(table) == files
    assert lab.content(table) == [(1, 10), (2, 20)]
    assert table.latest_snapshot_id() == 1


def test_a_commit_wakes_the_readers_of_the_table_until_they_leave(lab: Lab) -> None:
    table, other = lab.make("t"), lab.make("other")
    own, others = threading.Event(), threading.Event()
    with woken_by([table.identifier], own), woken_by([other.identifier], others):
        assert lab.write(table, 1, [(1, 10)])
        assert own.is_set()
        assert not others.is_set()
        own.clear()
        assert not lab.write(table, 1, [(1, 10)])
        assert not own.is_set()
    assert lab.write(table, 2, [(1, 20)])
    assert not own.is_set()


def test_committing_the_very_same_messages_again_keeps_their_files(lab: Lab) -> None:
    table = lab.make("t")
    messages = lab.prepare(table, 1, [(1, 10)])
    assert lab.committer(table).commit(1, messages)
    assert not lab.committer(table).commit(1, messages)
    assert lab.content(table) == [(1, 10)]


def test_an_older_batch_replayed_is_dropped_too(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 10)])
    lab.write(table, 2, [(2, 20)])
    files = lab.data_files(table)
    assert not lab.write(table, 1, [(1, 10)])
    assert lab.data_files(table) == files


def test_no_messages_make_no_snapshot(lab: Lab) -> None:
    table = lab.make("t")
    assert lab.committer(table).commit(1, lab.prepare(table, 1, []))
    assert table.latest_snapshot_id() is None


def test_a_writer_is_closed_when_one_of_its_batches_fails(lab: Lab) -> None:
    table = lab.make("t")
    writer = TableWriter(lab.warehouse.options, table.identifier, USER)
    with pytest.raises(TableError):
        writer.write_all([lab.batch([(1, 10)]), pa.record_batch({"other": [1]})])
    assert writer._writer is None


def test_committed_looks_at_this_user_only(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 7, [(1, 1)], user="other")
    committer = lab.committer(table)
    assert not committer.committed(0)
    lab.write(table, 3, [(1, 1)])
    assert committer.committed(3)
    assert not committer.committed(4)
    last = table.snapshots.last_commit_of(USER)
    assert last is not None and (last.id, last.commit_identifier) == (2, 3)


def test_leftovers_of_uncommitted_batches_go_and_nothing_else_does(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 10)])
    lab.prepare(table, 2, [(2, 20)])
    lab.prepare(table, 2, [(9, 90)], user="another-query")
    before = lab.data_files(table)
    assert lab.committer(table).remove_leftovers(query_tag(USER), 2) == 1
    gone = set(before) - set(lab.data_files(table))
    assert [name.split("-")[:2] for name in gone] == [[query_tag(USER), "b2"]]
    assert lab.content(table) == [(1, 10)]


def test_committed_files_are_no_leftovers_even_of_the_given_batch(lab: Lab) -> None:
    table = lab.make("t", {"changelog-producer": "input"})
    for batch in (1, 2):
        lab.write(table, batch, [(batch, batch)])
    files = lab.data_files(table)
    assert any("changelog" in name for name in files)
    assert lab.committer(table).remove_leftovers(query_tag(USER), 0) == 0
    assert lab.data_files(table) == files


def test_files_that_only_a_branch_or_a_tag_has_are_no_leftovers(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 10)])
    lab.tag("db.t", "first", 1)
    lab.branch("db.t", "b", "first")
    branch = lab.warehouse.table("db.t$branch_b")
    assert lab.write(branch, 2, [(2, 20)])
    lab.overwrite(table, [(3, 30)])
    files = lab.data_files(table)
    for gone in ("snapshot/snapshot-1", "branch/branch-b/snapshot/snapshot-1"):
        table.files.delete(f"{table.location}/{gone}")
    assert lab.committer(table).remove_leftovers(query_tag(USER), 0) == 0
    assert lab.committer(branch).remove_leftovers(query_tag(USER), 0) == 0
    assert lab.data_files(table) == files
    lab.prepare(branch, 3, [(9, 90)])
    assert lab.committer(branch).remove_leftovers(query_tag(USER), 3) == 1
    assert (lab.content(table), lab.content(branch)) == ([(3, 30)], [(1, 10), (2, 20)])
    assert lab.content(table_as_of(table, AsOf(tag="first"))) == [(1, 10)]


def test_files_are_named_for_query_batch_and_attempt(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 12, [(1, 1)])
    (name,) = lab.data_files(table)
    assert re.match(rf"{query_tag(USER)}-b12-[0-9a-f]{{12}}-.*\.parquet$", name)
    assert file_prefix(USER, 3, "x") == f"{query_tag(USER)}-b3-x-"


def test_row_kinds_insert_update_and_delete(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1, "+I"), (2, 2, "+I"), (3, 3, "+I")])
    lab.write(table, 2, [(1, 1, "-U"), (1, 5, "+U"), (2, 2, "-D")])
    assert lab.content(table) == [(1, 5), (3, 3)]


def test_row_kinds_retract_sums(lab: Lab) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = lab.make("t", options)
    lab.write(table, 1, [(1, 10, "+I"), (1, 10, "-U"), (1, 4, "+U"), (1, 3, "+I")])
    assert lab.content(table) == [(1, 7)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "w": 2}, r"no column 'w'"),
        ({"v": 2}, r"'id' is NOT NULL and has no value"),
        ({"id": None, "v": 2}, r"'id' is NOT NULL, got a null"),
        ({"id": 1, "v": "x"}, r"'v' is int32 and cannot take string"),
        ({"id": 1, "v": 2**40}, r"'v' is int32 and cannot take int64"),
        ({"id": 1, "rowkind": "D"}, r"row kind 'D' is not one of \+I, -U, \+U, -D"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_words(
    lab: Lab, row: dict[str, object], message: str
) -> None:
    table = lab.make("t")
    writer = TableWriter(lab.warehouse.options, table.identifier, USER)
    with pytest.raises(TableError, match=message):
        writer.write(pa.RecordBatch.from_pylist([row]))


def test_deletes_are_refused_by_an_append_table(lab: Lab) -> None:
    table = lab.make("t", keyed=False)
    with pytest.raises(TableError, match="has no primary key and accepts only inserts"):
        lab.prepare(table, 1, [(1, 1, "-D")])


def test_an_orc_table_is_written_in_parquet_and_read_back(lab: Lab) -> None:
    table = lab.make("t", {"file.format": "orc"})
    lab.write(table, 1, [(1, 1)])
    assert lab.data_files(table)[0].endswith(".parquet")
    assert lab.content(table) == [(1, 1)]


def test_errors_of_the_core_become_ones_to_act_upon(lab: Lab) -> None:
    table = lab.make("t")
    full = write_error(table, OSError("write: No space left on device (os error 28)"))
    assert type(full) is StreamhouseError and f"{table.location} is full" in str(full)
    lost = write_error(table, RuntimeError("commit failed\nafter 100 retries"))
    assert isinstance(lost, CommitConflictError) and "\n" not in str(lost)


def test_commits_at_one_time_are_all_kept(lab: Lab) -> None:
    table = lab.make("t")
    users = [f"user{number}" for number in range(4)]

    def commit_some(user: str) -> None:
        for batch in range(15):
            assert lab.write(table, batch, [(batch, batch)], user=user)

    with ThreadPoolExecutor(len(users)) as pool:
        for done in [pool.submit(commit_some, user) for user in users]:
            done.result(timeout=DEADLINE_S)
    kept = {(one.commit_user, one.commit_identifier) for one in table.snapshots.newest_first()}
    assert kept == {(user, batch) for user in users for batch in range(15)}


def test_a_lock_that_is_held_too_long_is_reported(lab: Lab) -> None:
    location = lab.make("t").location

    def locked(wait_s: float) -> None:
        with commit_lock(location, wait_s):
            pass

    with commit_lock(location), ThreadPoolExecutor(1) as other:
        locked(0.01)
        with pytest.raises(CommitConflictError, match="another process"):
            other.submit(locked, 0.01).result(timeout=DEADLINE_S)


def test_rows_without_a_kind_are_inserts_beside_those_with_one(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 10), (2, 20)])
    writer = TableWriter(lab.warehouse.options, table.identifier, USER)
    gone, more = lab.batch([(1, 10)]), lab.batch([(3, 30), (4, 40)])
    writer.write(gone.append_column("rowkind", pa.array(["-D"])))
    writer.write(more)
    assert lab.committer(table).commit(2, writer.prepare(2))
    writer.close()
    assert lab.content(table) == [(2, 20), (3, 30), (4, 40)]


def test_row_kinds_after_rows_without_are_errors(lab: Lab) -> None:
    table = lab.make("t")
    writer = TableWriter(lab.warehouse.options, table.identifier, USER)
    writer.write(lab.batch([(1, 10)]))
    with pytest.raises(TableError, match="came after rows without one; set it in all of them"):
        writer.write(lab.batch([(1, 10)]).append_column("rowkind", pa.array(["-D"])))
    writer.close()
