"""Maintenance compacts small tables of object stores in local copies: few requests, same rows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pytest
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy, Request
from tests.java_reads import java_rows

from streamhouse.demo.s3_server import S3Server
from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java import local_copy
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.storage.data_files import data_files
from streamhouse.paimon.storage.files import files_of
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

pytestmark = pytest.mark.usefixtures("clock")
USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
FULL = {"changelog-producer": "full-compaction"}
LOOKUP = {"changelog-producer": "lookup"}


@pytest.fixture
def warehouse(lake: str, s3: S3Server, proxy: FaultyProxy) -> Warehouse:
    warehouse = Warehouse({"warehouse": lake, **s3.options(proxy.url)})
    warehouse.create_database("shop")
    return warehouse


@pytest.fixture
def java() -> Iterator[Java]:
    java = Java()
    yield java
    java.close()


class Java:
    """The sidecars of a test, which leave their JVMs to those of the next."""

    def __init__(self) -> None:
        self._sidecars: list[Sidecar] = []

    def of(self, warehouse: Warehouse) -> Sidecar:
        self._sidecars.append(Sidecar(warehouse.options))
        return self._sidecars[-1]

    def close(self) -> None:
        for sidecar in self._sidecars:
            sidecar.close()


class Writer:
    """Writes batches to `shop.NAME`, which has a key, as a query does."""

    def __init__(
        self, warehouse: Warehouse, options: Mapping[str, str], name: str = "t", buckets: int = 1
    ) -> None:
        columns = [Column("id", "INT", False), Column("n", "BIGINT")]
        options = {"bucket": str(buckets), **options}
        warehouse.create_table("shop", name, columns, ["id"], options=options)
        self.warehouse, self.name = warehouse, f"shop.{name}"
        self._committer = TableCommitter(warehouse.options, self.name, USER)
        self._number = 0

    def write(self, rows: Mapping[int, int]) -> None:
        writer = TableWriter(self.warehouse.options, self.name, USER, followed=True)
        schema = pa.schema([("id", pa.int32()), ("n", pa.int64())])
        try:
            columns = {"id": list(rows), "n": list(rows.values())}
            writer.write(pa.RecordBatch.from_pydict(columns, schema=schema))
            messages = writer.prepare(self._number)
        finally:
            writer.close()
        assert self._committer.commit(self._number, messages)
        self._number += 1

    def compact(self, java: Sidecar, full: bool = False) -> bool:
        followed = self.warehouse.followed(self.name)
        return java.compact(self.name, full=full, followed=followed)

    def rows(self, followed: bool = False) -> dict[int, int]:
        warehouse = self.warehouse
        table = warehouse.followed(self.name) if followed else warehouse.table(self.name)
        rows = pa.Table.from_batches(table.read(), table.arrow_schema)
        return dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))

    def kinds(self) -> list[str]:
        table = self.warehouse.table(self.name)
        latest = table.latest_snapshot_id() or 0
        return [table.snapshot(number).commit_kind for number in range(1, latest + 1)]

    def compacted_files(self) -> list[str]:
        """The files in the store whose names are those of compactions."""
        table = self.warehouse.table(self.name)
        names = (name for _, name in data_files(table.files, table.location))
        return [name for name in names if name.startswith("compact-")]


def test_a_compaction_takes_few_requests(
    warehouse: Warehouse, proxy: FaultyProxy, java: Java
) -> None:
    sidecar, writer = java.of(warehouse), Writer(warehouse, {**SUMS, **FULL})
    for number in range(3):
        writer.write({number: 1, 9: 1})
    assert writer.compact(sidecar, full=True)
    writer.write({9: 1})
    writer.write({9: 1})
    seen = proxy.record_kinds()
    assert writer.compact(sidecar, full=True)
    proxy.await_released()
    # What it has written itself is here, and the metadata that this machine has committed.
    expected = ["HEAD snapshot-6", "GET snapshot-7", "GET data", "GET data", "PUT .compaction"]
    expected += ["PUT data", "PUT data", "PUT .commit-lock", "GET snapshot-7", "HEAD snapshot-6"]
    expected += ["PUT snapshot-7", "DELETE .commit-lock", "DELETE .compaction"]
    assert sorted(one for one in seen if "manifest" not in one) == sorted(expected)
    assert {one for one in seen if "manifest" in one} == {"PUT manifest"}
    seen.clear()
    writer.write({9: 1})
    assert not [one for one in seen if one.startswith("GET manifest")]
    assert writer.rows() == writer.rows(followed=True) == {0: 1, 1: 1, 2: 1, 9: 6}
    assert writer.kinds() == ["APPEND"] * 3 + ["COMPACT"] + ["APPEND"] * 2 + ["COMPACT", "APPEND"]


@pytest.mark.parametrize(
    ("producer", "merged"),
    [
        ("none", "aggregation"),
        ("input", "deduplicate"),
        ("lookup", "aggregation"),
        ("full-compaction", "deduplicate"),
    ],
)
def test_both_ways_to_compact_give_the_same_rows_and_changes(
    warehouse: Warehouse, java: Java, producer: str, merged: str
) -> None:
    options = {"changelog-producer": producer, **(SUMS if merged == "aggregation" else {})}
    options["num-sorted-run.compaction-trigger"] = "2"
    sidecar, chance = java.of(warehouse), random.Random(f"{producer} {merged}")
    copied = Writer(warehouse, options, "copied", buckets=2)
    direct = Writer(warehouse, options, "direct", buckets=2)
    for number in range(10):
        rows = {chance.randrange(6): chance.randrange(100) for _ in range(3)}
        copied.write(rows)
        direct.write(rows)
        if number % 3 == 2:
            full = chance.random() < 0.5
            assert copied.compact(sidecar, full) == sidecar.compact(direct.name, full=full)
            assert copied.rows() == direct.rows()
    assert copied.kinds() == direct.kinds()
    assert "COMPACT" in copied.kinds()
    assert sorted(changes(copied)) == sorted(changes(direct))
    found = [java_rows(sidecar, one.name).sort_by("id").to_pydict() for one in (copied, direct)]
    assert found[0] == found[1]


def changes(writer: Writer) -> list[tuple[str, int, int]]:
    """All changes of a table as a stream reads them."""
    source = PaimonSource(writer.warehouse.options, writer.name)
    start = {"snapshot": 0}
    return [
        (row["rowkind"], row["id"], row["n"])
        for partition in source.partitions(start, source.latest_offset(start))
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


class OtherMachine:
    """Changes the files of `shop.t` when the proxy gets a request, without the proxy and locks."""

    def __init__(self, warehouse: Warehouse, s3: S3Server) -> None:
        self._table = Warehouse({**warehouse.options, **s3.options()}).table("shop.t")
        self.done = 0
        # Locks use the options with which a table was opened last.
        files_of(self._table.location, warehouse.options)

    def acts_at(self, end: str, act: Callable[[OtherMachine], None]) -> Callable[[Request], None]:
        """What the proxy calls: acts once, at a PUT of a path that ends so."""

        def note(request: Request) -> None:
            if request.method == "PUT" and request.path.endswith(end) and not self.done:
                self.done += 1
                act(self)

        return note

    def alter(self) -> None:
        """Add a version of the schema."""
        self._copy("schema/schema-0", "schema/schema-1", 1)

    def commit(self) -> None:
        """Commit a snapshot with the same rows, without the lock."""
        number = self._table.latest_snapshot_id() or 0
        self._copy(f"snapshot/snapshot-{number}", f"snapshot/snapshot-{number + 1}", number + 1)

    def roll_back(self) -> None:
        """Remove the newest snapshot."""
        number = self._table.latest_snapshot_id() or 0
        self._table.files.delete(f"{self._table.root}/snapshot/snapshot-{number}")
        self._table.files.write_text(f"{self._table.root}/snapshot/LATEST", str(number - 1))

    def _copy(self, old: str, new: str, number: int) -> None:
        """Copy a file of metadata, with another id."""
        files, root = self._table.files, self._table.root
        record = json.loads(files.read_text(f"{root}/{old}") or "")
        files.write_text(f"{root}/{new}", json.dumps({**record, "id": number}))


def test_a_table_is_altered_meanwhile(
    warehouse: Warehouse, s3: S3Server, proxy: FaultyProxy, java: Java
) -> None:
    sidecar, writer = java.of(warehouse), Writer(warehouse, SUMS)
    writer.write({1: 1})
    writer.write({1: 2})
    other = OtherMachine(warehouse, s3)
    proxy.choose = other.acts_at("/.commit-lock", OtherMachine.alter)
    with pytest.raises(CommitConflictError):
        writer.compact(sidecar, full=True)
    assert other.done and not writer.compacted_files()
    assert writer.kinds() == ["APPEND"] * 2
    assert sidecar.compact(writer.name, full=True)
    assert writer.rows() == {1: 3}


def test_a_commit_while_the_java_core_compacts_is_kept(
    warehouse: Warehouse, java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Java core commits on top of what others have committed since it began to compact."""
    sidecar, writer = java.of(warehouse), Writer(warehouse, {**SUMS, **FULL})
    writer.write({1: 1})
    writer.write({1: 2})
    commit, calls = local_copy._commit, list[int]()

    def overtaken(
        folder: MirrorFolder, work: Callable[[], None], files: Sequence[str] = ()
    ) -> None:
        calls.append(0)
        if len(calls) == 1:
            writer.write({1: 4})
            writer.write({2: 5})
        commit(folder, work, files)

    monkeypatch.setattr(local_copy, "_commit", overtaken)
    assert writer.compact(sidecar, full=True)
    assert len(calls) == 1
    assert writer.kinds() == ["APPEND"] * 4 + ["COMPACT"]
    assert writer.rows() == writer.rows(followed=True) == {1: 7, 2: 5}
    table = warehouse.table(writer.name)
    texts = [table.files.read_text(f"{table.root}/snapshot/snapshot-{n}") for n in range(1, 6)]
    lists = {
        name
        for text in texts
        for key, name in json.loads(text or "").items()
        if key.endswith("ManifestList")
    }
    there = {name for name, _ in table.files.names(f"{table.root}/manifest")}
    assert {name for name in there if "list" in name} == lists
    writer.write({1: 8})
    assert writer.compact(sidecar, full=True)
    assert writer.rows() == {1: 15, 2: 5}


def test_a_writer_without_the_lock_wins(
    warehouse: Warehouse, s3: S3Server, proxy: FaultyProxy, java: Java
) -> None:
    sidecar, writer = java.of(warehouse), Writer(warehouse, SUMS)
    for _ in range(3):
        writer.write({1: 1})
    other = OtherMachine(warehouse, s3)
    proxy.choose = other.acts_at("/snapshot-4", OtherMachine.commit)
    with pytest.raises(CommitConflictError):
        writer.compact(sidecar, full=True)
    assert other.done and not writer.compacted_files()
    assert writer.rows() == {1: 3}
    assert writer.compact(sidecar, full=True)
    assert writer.rows() == writer.rows(followed=True) == {1: 3}


def test_rows_of_a_state_that_was_rolled_back_do_not_return(
    warehouse: Warehouse, s3: S3Server, proxy: FaultyProxy, java: Java
) -> None:
    sidecar, writer = java.of(warehouse), Writer(warehouse, {})
    writer.write({1: 1})
    writer.write({1: 2, 2: 2})
    other = OtherMachine(warehouse, s3)
    proxy.choose = other.acts_at("/.commit-lock", OtherMachine.roll_back)
    with pytest.raises(CommitConflictError):
        writer.compact(sidecar, full=True)
    assert other.done and not writer.compacted_files()
    assert writer.rows() == {1: 1}


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.REFUSED_AFTER, Fault.CUT_BEFORE])
def test_a_lost_answer_to_a_snapshot_is_one_compaction(
    warehouse: Warehouse, proxy: FaultyProxy, java: Java, fault: Fault
) -> None:
    sidecar, writer = java.of(warehouse), Writer(warehouse, SUMS)
    writer.write({1: 1})
    writer.write({1: 2})

    def lose(request: Request) -> Fault | None:
        snapshot = request.method == "PUT" and request.path.endswith("/snapshot-3")
        return fault if snapshot and not proxy.injected else None

    proxy.choose = lose
    assert writer.compact(sidecar, full=True)
    assert proxy.injected
    assert writer.kinds() == ["APPEND", "APPEND", "COMPACT"]
    assert writer.rows() == {1: 3}


def test_files_stay_after_an_error_that_follows_the_commit(
    warehouse: Warehouse, java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar, writer = java.of(warehouse), Writer(warehouse, SUMS)
    writer.write({1: 1})
    writer.write({1: 2})

    def fail(*_: object) -> None:
        raise StreamhouseError("the lock was lost")

    with monkeypatch.context() as patched:
        patched.setattr(FollowedSnapshots, "add_commit", fail)
        with pytest.raises(StreamhouseError, match="lock was lost"):
            writer.compact(sidecar, full=True)
    assert writer.kinds() == ["APPEND", "APPEND", "COMPACT"]
    assert writer.rows() == {1: 3}


@pytest.mark.parametrize("limit", ["_MOST_BYTES", "_MOST_FILES"])
def test_large_tables_are_compacted_in_the_store(
    warehouse: Warehouse, java: Java, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(local_copy, limit, 1)
    sidecar, writer = java.of(warehouse), Writer(warehouse, SUMS)
    for _ in range(2):
        writer.write({1: 1})
    assert writer.compact(sidecar, full=True)
    assert writer.kinds() == ["APPEND", "APPEND", "COMPACT"]
    assert writer.rows() == {1: 2}


def test_manifests_are_merged_in_a_copy(
    warehouse: Warehouse, proxy: FaultyProxy, java: Java
) -> None:
    sidecar, writer = java.of(warehouse), Writer(warehouse, SUMS)
    for _ in range(10):
        writer.write({1: 1})
    seen = proxy.record_kinds()
    sidecar.compact_manifests(writer.name, warehouse.followed(writer.name))
    # The folders of the commits have them.
    assert "GET manifest" not in seen
    assert len(seen) < 15, seen
    assert writer.kinds() == ["APPEND"] * 10 + ["COMPACT"]
    writer.write({1: 1})
    assert writer.compact(sidecar, full=True)
    assert writer.rows() == writer.rows(followed=True) == {1: 11}


def test_faults_anywhere(warehouse: Warehouse, proxy: FaultyProxy, java: Java) -> None:
    check_history(warehouse, proxy, java, 1, 9)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_faults_anywhere(
    warehouse: Warehouse, proxy: FaultyProxy, java: Java, seed: int
) -> None:
    check_history(warehouse, proxy, java, seed, 30)


def check_history(
    warehouse: Warehouse, proxy: FaultyProxy, java: Java, seed: int, count: int
) -> None:
    """Compact a table of sums in copies, with faults at any request of the compactions."""
    chance, model = random.Random(seed), dict[int, int]()
    sidecar, writer = java.of(warehouse), Writer(warehouse, {**SUMS, **FULL})
    weights, errors, committed = [4, 4, 4, 4, 4, 1], [], 0
    for number in range(count):
        rows = {chance.randrange(5): chance.randrange(100) for _ in range(3)}
        writer.write(rows)
        for key, value in rows.items():
            model[key] = model.get(key, 0) + value
        proxy.choose = lambda request: (
            chance.choices(list(Fault), weights)[0] if chance.random() < 0.05 else None
        )
        try:
            if chance.random() < 0.2:
                sidecar.compact_manifests(writer.name, warehouse.followed(writer.name))
            else:
                committed += writer.compact(sidecar, full=chance.random() < 0.5)
        except StreamhouseError as error:
            errors.append(str(error))
        proxy.choose = lambda request: None
        assert writer.rows() == writer.rows(followed=True) == model, (number, errors)
    assert committed
    assert dict(zip(*java_rows(sidecar, writer.name).to_pydict().values(), strict=True)) == model
    assert len(proxy.injected) > count / 3
