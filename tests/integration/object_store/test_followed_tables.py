"""Tables that a query follows: few requests, and never rows of a state that is gone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from tests.integration.object_store.conftest import Clock
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy, Request
from tests.waiting import DEADLINE_S

from streamhouse.demo.s3_server import S3Server
from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage import followed_snapshots
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn

pytestmark = pytest.mark.usefixtures("clock")
USER, OTHER = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


@pytest.fixture
def warehouse(lake: str, s3: S3Server, proxy: FaultyProxy) -> Warehouse:
    """A warehouse behind the proxy, with an empty append table `shop.t`."""
    warehouse = Warehouse({"warehouse": lake, **s3.options(proxy.url)})
    warehouse.create_database("shop")
    warehouse.create_table("shop", "t", [Column("id", "INT")], options={"bucket": "-1"})
    return warehouse


class Writer:
    """Commits rows as a query does that goes on and on."""

    def __init__(self, warehouse: Warehouse, user: str = USER) -> None:
        self._warehouse, self._user = warehouse, user
        self._committer = TableCommitter(warehouse.options, "shop.t", user)
        self._number = 0

    def write(self, *ids: int) -> None:
        assert self.attempt(self._number, *ids)
        self._number += 1

    def attempt(self, number: int, *ids: int) -> bool:
        """Write and commit a batch; False if an earlier attempt has committed it."""
        writer = TableWriter(self._warehouse.options, "shop.t", self._user)
        try:
            writer.write(pa.record_batch({"id": pa.array(ids, pa.int32())}))
            messages = writer.prepare(number)
        finally:
            writer.close()
        return self._committer.commit(number, messages)


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for batch in table.read() for row in batch.to_pylist())


def roll_back(warehouse: Warehouse, snapshot: int) -> None:
    """Do what a program on another machine does that rolls the table back."""
    table = warehouse.table("shop.t")
    for number in range(snapshot + 1, (table.latest_snapshot_id() or 0) + 1):
        table.files.delete(f"{table.root}/snapshot/snapshot-{number}")
    table.files.write_text(f"{table.root}/snapshot/LATEST", str(snapshot))


def requests(proxy: FaultyProxy) -> list[tuple[str, str]]:
    """Record the requests from now on, as method and name, into the list that is returned.

    Waits for requests of earlier commits, which release their locks in the background.
    """
    proxy.await_released()
    seen: list[tuple[str, str]] = []

    def note(request: Request) -> None:
        seen.append((request.method, request.path.partition("?")[0].rpartition("/")[2]))

    proxy.choose = note
    return seen


def test_a_look_at_a_followed_table_is_one_request(
    warehouse: Warehouse, proxy: FaultyProxy
) -> None:
    writer = Writer(warehouse)
    for number in range(3):
        writer.write(number)
    table = warehouse.followed("shop.t")
    assert table.latest_snapshot_id() == 3
    seen = requests(proxy)
    assert warehouse.followed("shop.t").latest_snapshot_id() == 3
    assert [table.snapshot(number).id for number in (2, 3)] == [2, 3]
    assert seen == [("GET", "snapshot-4")]
    seen.clear()
    assert table.latest_snapshot_id(within_s=DEADLINE_S) == 3
    assert table.snapshot(2).id == 2
    assert seen == []


def test_an_empty_table_is_one_request(warehouse: Warehouse, proxy: FaultyProxy) -> None:
    table = warehouse.followed("shop.t")
    assert table.latest_snapshot_id() is None
    seen = requests(proxy)
    assert table.latest_snapshot_id() is None
    assert seen == [("GET", "snapshot-1")]


def test_commits_of_this_machine_are_seen_at_once(warehouse: Warehouse) -> None:
    table, other = warehouse.followed("shop.t"), Writer(warehouse, OTHER)
    for number in range(1, 4):
        other.write(number)
        assert table.latest_snapshot_id(within_s=DEADLINE_S) == number


def test_commits_of_other_machines_are_found_by_a_new_request(warehouse: Warehouse) -> None:
    Writer(warehouse).write(1)
    table = warehouse.followed("shop.t")
    assert table.latest_snapshot_id() == 1
    path = f"{table.root}/snapshot/snapshot"
    text = table.files.read_text(f"{path}-1")
    assert text is not None
    table.files.write_text(f"{path}-2", text.replace('"id":1', '"id":2'))
    assert table.latest_snapshot_id(within_s=DEADLINE_S) == 1
    assert table.latest_snapshot_id() == 2


def test_other_machines_are_heard_too_after_a_commit_of_this_one(
    warehouse: Warehouse, clock: Clock
) -> None:
    writer = Writer(warehouse)
    for number in range(3):
        writer.write(number)
    table = warehouse.followed("shop.t")
    path = f"{table.root}/snapshot/snapshot"
    text = table.files.read_text(f"{path}-3")
    assert text is not None and table.latest_snapshot_id(within_s=0.1) == 3
    table.files.write_text(f"{path}-4", text.replace('"id":3', '"id":4'))
    clock.advance(followed_snapshots.NOTIFIED_S + 0.1)
    assert table.latest_snapshot_id(within_s=0.1) == 4


def test_a_branch_does_not_have_the_commits_of_the_table(warehouse: Warehouse) -> None:
    writer = Writer(warehouse)
    for number in range(3):
        writer.write(number)
    table = warehouse.table("shop.t")
    root = f"{table.root}/branch/branch-b"
    for name in ("schema/schema-0", "snapshot/snapshot-3"):
        table.files.write_text(
            f"{root}/{name}", table.files.read_text(f"{table.root}/{name}") or ""
        )
    branch = warehouse.followed("shop.t$branch_b")
    assert branch.latest_snapshot_id() == 3
    writer.write(3)
    assert branch.latest_snapshot_id(within_s=DEADLINE_S) == 3
    assert table.latest_snapshot_id() == 4


def test_a_rollback_while_a_commit_takes_its_lock_is_noticed(
    warehouse: Warehouse, lake: str, s3: S3Server, proxy: FaultyProxy
) -> None:
    beside = Warehouse({"warehouse": lake, **s3.options()})
    writer = Writer(warehouse)
    for number in range(1, 6):
        writer.write(number)
    left = [None]

    def choose(request: Request) -> None:
        if request.path.endswith(".commit-lock") and left:
            left.pop()
            roll_back(beside, 2)

    # The lock of the last commit is released in the background.
    proxy.await_released()
    proxy.choose = choose
    writer.write(10)
    assert not left
    assert ids(warehouse.table("shop.t")) == [1, 2, 10]


def test_a_batch_that_was_rolled_back_is_written_again(warehouse: Warehouse) -> None:
    writer = Writer(warehouse)
    for number in range(3):
        writer.write(number)
    roll_back(warehouse, 2)
    assert writer.attempt(2, 2)
    assert ids(warehouse.table("shop.t")) == [0, 1, 2]


def test_a_rollback_that_a_reader_has_noticed_is_one_for_writers_too(warehouse: Warehouse) -> None:
    writer = Writer(warehouse)
    for number in range(3):
        writer.write(number)
    roll_back(warehouse, 2)
    assert not warehouse.followed("shop.t").snapshots.verify()
    # The number of the snapshot that is gone is that of another commit now.
    Writer(warehouse, OTHER).write(7)
    assert writer.attempt(2, 2)
    assert ids(warehouse.table("shop.t")) == [0, 1, 2, 7]


def test_a_schema_that_commits_were_made_with_is_not_read_again(
    warehouse: Warehouse, proxy: FaultyProxy, clock: Clock
) -> None:
    writer = Writer(warehouse)
    for number in range(3):
        writer.write(number)
    reader = warehouse.followed("shop.t")
    clock.advance(1.1)
    writer.write(3)
    seen = requests(proxy)
    assert warehouse.followed("shop.t") is reader
    time.sleep(0.2)
    assert seen == []
    warehouse.alter_table("shop.t", AddColumn(Column("n", "INT")))
    writer.write(4)
    assert "n" in warehouse.followed("shop.t").arrow_schema.names


@contextmanager
def another_process() -> Iterator[None]:
    """The block knows only what it has read, or heard from the commits of this machine."""
    known = followed_snapshots._known
    followed_snapshots._known = _elsewhere
    try:
        yield
    finally:
        followed_snapshots._known = known


_elsewhere: dict[tuple[object, ...], followed_snapshots._Known] = {}


def test_one_notice_brings_all_snapshots_since_the_last(
    warehouse: Warehouse, proxy: FaultyProxy
) -> None:
    one, two = Writer(warehouse), Writer(warehouse, OTHER)
    one.write(0)
    two.write(1)
    table = warehouse.followed("shop.t")
    with another_process():
        assert table.latest_snapshot_id() == 2
    for number in range(3):
        one.write(number)
    # Its folder has not held the snapshots of the other writer.
    two.write(3)
    seen = requests(proxy)
    with another_process():
        assert table.latest_snapshot_id(within_s=DEADLINE_S) == 6
        found = table.snapshots
        assert isinstance(found, followed_snapshots.FollowedSnapshots)
        for number in range(3, 7):
            text = found.texts(number, number)
            assert text == [table.files.read_text(f"{table.root}/snapshot/snapshot-{number}")]
    assert {name for method, name in seen if method != "GET"} == set()
    assert len(seen) == 4


def test_a_commit_after_a_rollback_is_on_top_of_what_is_there(warehouse: Warehouse) -> None:
    writer, other = Writer(warehouse), Writer(warehouse, OTHER)
    for number in range(1, 6):
        writer.write(number)
    roll_back(warehouse, 3)
    writer.write(10)
    assert ids(warehouse.table("shop.t")) == [1, 2, 3, 10]
    roll_back(warehouse, 2)
    # Snapshot 3 is another one than the writer's core has read.
    other.write(20)
    writer.write(30)
    assert ids(warehouse.table("shop.t")) == [1, 2, 20, 30]
    assert ids(warehouse.followed("shop.t")) == [1, 2, 20, 30]


def test_a_rollback_is_noticed_by_readers(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(warehouse)
    for number in range(1, 4):
        writer.write(number)
    source = PaimonSource(warehouse.options, "shop.t")
    end = source.latest_offset({})
    assert end["snapshot"] == 3
    table = warehouse.followed("shop.t")
    before = table.snapshot(3)
    roll_back(warehouse, 2)
    Writer(warehouse, OTHER).write(9)
    monkeypatch.setattr(followed_snapshots, "VERIFY_S", 0.0)
    assert table.snapshot(3) != before
    assert table.snapshot(3).commit_user == OTHER
    with pytest.raises(DataLossError, match="rolled back"):
        source.check(end)


def test_a_damaged_snapshot_is_an_error(warehouse: Warehouse) -> None:
    Writer(warehouse).write(1)
    table = warehouse.followed("shop.t")
    table.files.write_text(f"{table.root}/snapshot/snapshot-2", '{"id":2')
    with pytest.raises(DataLossError, match="snapshot 2 is damaged"):
        table.latest_snapshot_id()


def test_a_table_that_is_created_again_is_another_one(warehouse: Warehouse) -> None:
    writer = Writer(warehouse)
    for number in range(1, 4):
        writer.write(number)
    warehouse.drop_table("shop", "t")
    warehouse.create_table(
        "shop", "t", [Column("id", "INT", False)], ["id"], options={"bucket": "2"}
    )
    time.sleep(0.01)
    writer.write(7)
    assert ids(warehouse.table("shop.t")) == [7]
    table = warehouse.followed("shop.t")
    assert (table.bucket, table.latest_snapshot_id()) == (2, 1)


def test_two_followers_lose_no_commit(warehouse: Warehouse) -> None:
    one, two = Writer(warehouse), Writer(warehouse, OTHER)
    for number in range(5):
        one.write(number)
        two.write(10 + number)
    assert ids(warehouse.table("shop.t")) == [*range(5), *range(10, 15)]


def test_faults_lose_and_double_nothing(warehouse: Warehouse, proxy: FaultyProxy) -> None:
    chance, writer, failed = random.Random(3), Writer(warehouse), 0
    faults = [fault for fault in Fault if fault is not Fault.SLOW]
    proxy.choose = lambda _: chance.choice(faults) if chance.random() < 0.05 else None
    for number in range(12):
        for _ in range(30):
            try:
                writer.attempt(number, number)
                break
            except StreamhouseError:
                failed += 1
    proxy.choose = lambda _: None
    assert proxy.injected and failed < 100
    assert ids(warehouse.table("shop.t")) == list(range(12))
