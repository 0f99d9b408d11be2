"""A commit in a local copy of a table: published, or given up."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pypaimon_rust.datafusion import CommitMessage

from streamhouse.errors import LostCommitError, StoreError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage import followed_snapshots
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.metadata_mirror import folder as mirror_folder
from streamhouse.paimon.storage.metadata_mirror.commit import commit_in_copy
from streamhouse.paimon.storage.object_store.object_files import Answer, ObjectFiles
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
ROOT = "s3://bucket/shop.db/t"


class MemoryFiles(ObjectFiles):
    """Objects in memory, with ETags and conditions; no PUT writes paths that end as `failing`."""

    def __init__(self) -> None:
        super().__init__("s3://bucket", {})
        self.objects: dict[str, bytes] = {}
        self.failing: set[str] = set()
        self._lock = threading.Lock()

    def send(self, operation: str, path: str, **given: Any) -> Answer:
        if operation == "put_object" and any(path.endswith(end) for end in self.failing):
            raise StoreError("the store failed")
        with self._lock:
            found = self.objects.get(path)
            if operation == "put_object":
                if "IfNoneMatch" in given and found is not None:
                    return Answer(412, {}, b"")
                found = self.objects[path] = given["Body"]
            elif operation == "delete_object":
                self.objects.pop(path, None)
        if found is None:
            return Answer(404, {}, b"")
        return Answer(200, {"ETag": hashlib.sha256(found).hexdigest()}, found)


class Store:
    """A table with two commits whose files are in memory, and the messages of a third batch."""

    def __init__(self, folder: Path) -> None:
        warehouse = Warehouse({"warehouse": str(folder)})
        warehouse.create_database("shop")
        columns = [Column("id", "INT", False), Column("n", "INT")]
        warehouse.create_table("shop", "t", columns, ["id"], options={"bucket": "1"})
        committer = TableCommitter(warehouse.options, "shop.t", USER)
        for number in range(3):
            writer = TableWriter(warehouse.options, "shop.t", USER)
            rows = {"id": pa.array([number], pa.int32()), "n": pa.array([1], pa.int32())}
            writer.write(pa.record_batch(rows))
            found = writer.prepare(number)
            writer.close()
            if number < 2:
                committer.commit(number, found)
        self.messages = [CommitMessage.deserialize(message) for message in found]
        self.files = MemoryFiles()
        root = folder / "shop.db" / "t"
        for path in root.rglob("*"):
            if path.is_file():
                self.files.objects[f"{ROOT}/{path.relative_to(root)}"] = path.read_bytes()
        self.before = self.names()
        schema = warehouse.table("shop.t").schema
        self.snapshots = FollowedSnapshots(self.files, ROOT, ROOT, "shop.t")
        assert self.snapshots.latest_id() == 2
        self.table: Any = SimpleNamespace(
            root=ROOT, location=ROOT, schema=schema, catalog_options={},
            files=self.files, snapshots=self.snapshots,
        )  # fmt: skip

    def commit(self) -> bool:
        return commit_in_copy(self.table, USER, 2, 2, self.messages)

    def names(self) -> set[str]:
        return {path.removeprefix(f"{ROOT}/") for path in self.files.objects}

    def text(self, number: int) -> str:
        return self.files.objects[f"{ROOT}/snapshot/snapshot-{number}"].decode()

    def etag(self, number: int) -> str:
        return hashlib.sha256(self.text(number).encode()).hexdigest()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(followed_snapshots, "_known", {})
    return Store(tmp_path)


def test_a_commit_adds_its_manifests_and_its_snapshot(store: Store) -> None:
    assert store.commit()
    added = store.names() - store.before - {"snapshot/LATEST"}
    assert store.snapshots.texts(3, 3) == [store.text(3)]
    assert store.snapshots.etag(3) == store.etag(3)
    lists = {
        name for key, name in json.loads(store.text(3)).items() if key.endswith("ManifestList")
    }
    assert {f"manifest/{name}" for name in lists} < added
    assert len(added) == 4 and "snapshot/snapshot-3" in added


def test_a_taken_number_is_a_lost_commit(store: Store) -> None:
    store.files.put(f"{ROOT}/snapshot/snapshot-3", b"theirs")
    with pytest.raises(LostCommitError, match="has just committed"):
        store.commit()
    assert store.text(3) == "theirs"
    assert store.names() == store.before | {"snapshot/snapshot-3"}


def test_an_altered_table_is_left_to_the_core(store: Store) -> None:
    store.files.put(f"{ROOT}/schema/schema-1", b"{}")
    assert not store.commit()
    assert store.names() == store.before | {"schema/schema-1"}


def test_an_upload_that_fails_is_no_commit(store: Store) -> None:
    store.files.failing = {"-0", "-1"}
    with pytest.raises(StoreError):
        store.commit()
    assert "snapshot/snapshot-3" not in store.names()
    store.files.failing = set()
    assert store.commit()
    assert store.snapshots.texts(3, 3) == [store.text(3)]


def test_a_folder_that_was_used_often_is_not_used_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_folder, "_MOST_HELD", 1)
    assert store.commit()
    (published,) = store.snapshots.peer_folders
    assert not Path(published).exists()
    with mirror_folder.borrowed(store.table) as folder:
        assert folder.path != published
        assert not folder.names()
