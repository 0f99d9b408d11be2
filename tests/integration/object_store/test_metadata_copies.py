"""Queries plan, write and commit by local copies of metadata: few requests, and the same rows."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest
from pypaimon_rust.datafusion import CommitMessage
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy, Request
from tests.java_reads import java_rows
from tests.waiting import DEADLINE_S

from streamhouse.demo.s3_server import S3Server
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.storage.metadata_mirror import write as mirrored_write
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

pytestmark = pytest.mark.usefixtures("clock")
USER, OTHER = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


@pytest.fixture
def warehouse(lake: str, s3: S3Server, proxy: FaultyProxy) -> Warehouse:
    """A warehouse behind the proxy, with an empty table `shop.t` that has a key."""
    warehouse = Warehouse({"warehouse": lake, **s3.options(proxy.url)})
    warehouse.create_database("shop")
    columns = [Column("id", "INT", False), Column("n", "INT")]
    warehouse.create_table("shop", "t", columns, ["id"], options={"bucket": "2"})
    return warehouse


def prepared(
    warehouse: Warehouse, user: str, number: int, rows: dict[int, int], followed: bool = True
) -> list[bytes]:
    """Write rows as a task does."""
    writer = TableWriter(warehouse.options, "shop.t", user, followed=followed)
    try:
        for key, value in rows.items():
            columns = {"id": pa.array([key], pa.int32()), "n": pa.array([value], pa.int32())}
            writer.write(pa.record_batch(columns))
        return writer.prepare(number)
    finally:
        writer.close()


def commit_without_lock(warehouse: Warehouse, messages: list[bytes]) -> None:
    """Commit as a writer of another machine does that ignores the lock."""
    builder = warehouse.table("shop.t").rust.new_stream_write_builder()
    commit = builder.with_commit_user(OTHER).new_commit()
    commit.commit(0, [CommitMessage.deserialize(message) for message in messages])


def rows_of(warehouse: Warehouse, followed: bool = False) -> dict[int, int]:
    table = warehouse.followed("shop.t") if followed else warehouse.table("shop.t")
    rows = [row for batch in table.read() for row in batch.to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


def test_the_next_commit_waits_for_the_release_of_the_lock(
    warehouse: Warehouse, proxy: FaultyProxy
) -> None:
    committer = TableCommitter(warehouse.options, "shop.t", USER)
    for number in range(2):
        committer.commit(number, prepared(warehouse, USER, number, {number: number}))
    messages = [prepared(warehouse, USER, number, {number: number}) for number in (2, 3)]
    seen: list[str] = []
    release, next_commit = threading.Event(), threading.Event()

    def delay(request: Request) -> Fault | None:
        seen.append(f"{request.method} {request.path.rpartition('/')[2]}")
        return Fault.SLOW if seen[-1] == "DELETE .commit-lock" else None

    def commit() -> None:
        assert committer.commit(3, messages[1])
        next_commit.set()

    proxy.choose, proxy.pause = delay, lambda: release.wait(DEADLINE_S)
    assert committer.commit(2, messages[0])
    assert not release.is_set()
    waiting = threading.Thread(target=commit)
    waiting.start()
    assert not next_commit.wait(0.5)
    release.set()
    assert next_commit.wait(DEADLINE_S)
    waiting.join(DEADLINE_S)
    # It has not tried to take the lock before.
    assert seen.count("PUT .commit-lock") == 2
    assert rows_of(warehouse) == {number: number for number in range(4)}


def test_a_batch_takes_few_requests(warehouse: Warehouse, proxy: FaultyProxy) -> None:
    committer = TableCommitter(warehouse.options, "shop.t", USER)
    for number in range(3):
        committer.commit(number, prepared(warehouse, USER, number, {number: number}))
    seen = proxy.record_kinds()
    messages = prepared(warehouse, USER, 3, {0: 3})
    # The process has committed all snapshots itself, and has their metadata.
    assert sorted(seen) == ["GET snapshot-4", "HEAD snapshot-3", "PUT data"]
    seen.clear()
    assert committer.commit(3, messages)
    proxy.await_released()
    waited = ["PUT .commit-lock", "HEAD snapshot-3", *["PUT manifest"] * 3]
    waited += ["PUT snapshot-4", "DELETE .commit-lock"]
    assert sorted(seen) == sorted(waited)
    assert rows_of(warehouse) == {0: 3, 1: 1, 2: 2}


def test_rows_whose_order_does_not_matter_are_written_with_one_request(
    warehouse: Warehouse, proxy: FaultyProxy
) -> None:
    columns = [Column("id", "INT", False), Column("n", "INT")]
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    warehouse.create_table("shop", "sums", columns, ["id"], options=options)
    one, two = (TableCommitter(warehouse.options, "shop.sums", user) for user in (USER, OTHER))

    def sums(user: str, number: int, value: int) -> list[bytes]:
        writer = TableWriter(warehouse.options, "shop.sums", user, followed=True, commutes=True)
        row = {"id": pa.array([1], pa.int32()), "n": pa.array([value], pa.int32())}
        writer.write(pa.record_batch(row))
        messages = writer.prepare(number)
        writer.close()
        return messages

    for number in range(3):
        one.commit(number, sums(USER, number, 1))
    seen = proxy.record_kinds()
    messages = sums(USER, 3, 10)
    assert seen == ["PUT data"]
    # Both files have the same sequence numbers.
    two.commit(0, sums(OTHER, 0, 100))
    one.commit(3, messages)
    rows = [row for batch in warehouse.table("shop.sums").read() for row in batch.to_pylist()]
    assert rows == [{"id": 1, "n": 113}]
    with Sidecar(warehouse.options) as java:
        assert java.compact("shop.sums", full=True)
        assert java_rows(java, "shop.sums").to_pylist() == rows


def test_later_rows_of_a_key_win_whoever_wrote_them(warehouse: Warehouse) -> None:
    one, two = (TableCommitter(warehouse.options, "shop.t", user) for user in (USER, OTHER))
    for number in range(6):
        keys = range(4)
        one.commit(number, prepared(warehouse, USER, number, {key: 2 * number for key in keys}))
        later = {key: 2 * number + 1 for key in keys if key % 2}
        two.commit(number, prepared(warehouse, OTHER, number, later, followed=number % 2 == 0))
        expected = {key: 2 * number + key % 2 for key in keys}
        assert rows_of(warehouse) == rows_of(warehouse, followed=True) == expected


def test_many_rows_go_to_the_store_themselves(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = TableCommitter(warehouse.options, "shop.t", USER)
    committer.commit(0, prepared(warehouse, USER, 0, {key: 0 for key in range(9)}))
    monkeypatch.setattr(mirrored_write, "_MOST_BYTES", 20)
    committer.commit(1, prepared(warehouse, USER, 1, {key: 1 for key in range(9)}))
    assert rows_of(warehouse) == {key: 1 for key in range(9)}


def test_a_source_reads_what_was_committed(warehouse: Warehouse) -> None:
    columns = [Column("id", "INT")]
    warehouse.create_table("shop", "log", columns, options={"bucket": "-1"})
    committer = TableCommitter(warehouse.options, "shop.log", USER)
    source = PaimonSource(warehouse.options, "shop.log")
    offset, found = {"snapshot": 0}, []
    for number in range(8):
        writer = TableWriter(warehouse.options, "shop.log", USER, followed=True)
        writer.write(pa.record_batch({"id": pa.array([number, -number], pa.int32())}))
        committer.commit(number, writer.prepare(number))
        writer.close()
        if number % 3 == 1:
            end = source.latest_offset(offset)
            for partition in source.partitions(offset, end):
                found += [
                    row for batch in source.read(partition) for row in batch["id"].to_pylist()
                ]
            offset = end
    end = source.latest_offset(offset)
    for partition in source.partitions(offset, end):
        found += [row for batch in source.read(partition) for row in batch["id"].to_pylist()]
    assert sorted(found) == sorted(sign * number for number in range(8) for sign in (1, -1))


def test_a_snapshot_of_a_writer_without_the_lock_stays(
    warehouse: Warehouse, s3: S3Server, proxy: FaultyProxy
) -> None:
    direct = Warehouse({**warehouse.options, **s3.options()})
    committer = TableCommitter(warehouse.options, "shop.t", USER)
    for number in range(2):
        committer.commit(number, prepared(warehouse, USER, number, {number: number}))
    theirs = prepared(warehouse, OTHER, 0, {8: 8}, followed=False)
    taken: list[str] = []

    def take(request: Request) -> None:
        if request.method == "PUT" and request.path.endswith("/snapshot-3") and not taken:
            taken.append(request.path)
            commit_without_lock(direct, theirs)

    messages = prepared(warehouse, USER, 2, {2: 2})
    proxy.choose = take
    assert committer.commit(2, messages)
    assert taken
    assert rows_of(warehouse) == {0: 0, 1: 1, 2: 2, 8: 8}
    assert warehouse.table("shop.t").latest_snapshot_id() == 4


@pytest.mark.parametrize("moment", ["HEAD snapshot-2", "PUT manifest", "PUT .commit-lock"])
def test_a_commit_that_another_has_overtaken_leaves_nothing(
    warehouse: Warehouse, s3: S3Server, proxy: FaultyProxy, moment: str
) -> None:
    """A writer without the lock commits while this one commits."""
    direct = Warehouse({**warehouse.options, **s3.options()})
    committer = TableCommitter(warehouse.options, "shop.t", USER)
    for number in range(2):
        committer.commit(number, prepared(warehouse, USER, number, {number: number}))
    theirs = prepared(warehouse, OTHER, 0, {8: 8}, followed=False)
    messages = prepared(warehouse, USER, 2, {2: 2})
    lock, taken = threading.Lock(), list[str]()

    def take(request: Request) -> Fault | None:
        name = f"{request.method} {request.path.rpartition('/')[2]}"
        with lock:
            if name.startswith(moment) and not taken:
                taken.append(name)
                commit_without_lock(direct, theirs)
        return Fault.SLOW if name == "PUT .commit-lock" else None

    proxy.await_released()
    proxy.choose = take
    assert committer.commit(2, messages)
    assert taken
    assert rows_of(warehouse) == rows_of(warehouse, followed=True) == {0: 0, 1: 1, 2: 2, 8: 8}
    table = warehouse.table("shop.t")
    assert [table.snapshot(number).commit_user for number in (3, 4)] == [OTHER, USER]
    named = set()
    for number in range(1, 5):
        text = table.files.read_text(f"{table.root}/snapshot/snapshot-{number}")
        snapshot = json.loads(text or "")
        named |= {name for key, name in snapshot.items() if key.endswith("ManifestList")}
    there = {name for name, _ in table.files.names(f"{table.root}/manifest")}
    assert {name for name in there if "list" in name} == named
    committer.commit(3, prepared(warehouse, USER, 3, {8: 9}))
    assert rows_of(warehouse) == {0: 0, 1: 1, 2: 2, 8: 9}


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.REFUSED_AFTER, Fault.CUT_BEFORE])
def test_a_lost_answer_to_a_snapshot_is_no_second_commit(
    warehouse: Warehouse, proxy: FaultyProxy, fault: Fault
) -> None:
    committer = TableCommitter(warehouse.options, "shop.t", USER)
    for number in range(2):
        committer.commit(number, prepared(warehouse, USER, number, {number: number}))
    messages = prepared(warehouse, USER, 2, {2: 2})

    def lose(request: Request) -> Fault | None:
        snapshot = request.method == "PUT" and request.path.endswith("/snapshot-3")
        return fault if snapshot and not proxy.injected else None

    proxy.choose = lose
    committer.commit(2, messages)
    assert proxy.injected
    assert rows_of(warehouse) == {0: 0, 1: 1, 2: 2}
    assert warehouse.table("shop.t").latest_snapshot_id() == 3
