"""Segments of kept rows are shared within an object store, by copies that pass no host."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamhouse.demo.s3_server import BUCKET, S3Server
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.runtime.execute import execute
from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint
from streamhouse.runtime.state.checkpoint_registry import shared_folder
from streamhouse.runtime.state.replica import ReplicatedStore
from streamhouse.runtime.views.kept_rows import remove_kept_by_dropped
from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import HASH, SegmentFile, written

_ROWS = 2_000_000
"""So many that a copy has several parts."""


def _store(folder: Path, host: str, view: str) -> ReplicatedStore:
    location = f"s3://{BUCKET}/{folder.name}/.checkpoints/materialized views/{view}/state"
    return ReplicatedStore(folder / host / view / "state", ObjectFiles(location, {}), location)


def _saved(store: ReplicatedStore, rows: int = _ROWS) -> SegmentFile:
    table = pa.table({HASH: np.arange(rows, dtype=np.uint64)})
    file = written(store.folder, table.schema, table.to_batches())
    store.save(_manifest(file))
    return file


def _manifest(file: SegmentFile) -> Manifest:
    return Manifest(1, {"batch": 1}, {}, {"orders by id": (file,)})


def test_another_driver_shares_segments(s3: S3Server, tmp_path: Path) -> None:
    first, second = _store(tmp_path, "a", "shop.first"), _store(tmp_path, "b", "shop.2 ä+%20")
    file = _saved(first)
    assert file.size > 8 << 20
    second.fetch()
    ((folder, manifest),) = second.manifests_beside()
    assert manifest == _manifest(file)
    second.link(folder, manifest.arrangements["orders by id"])
    assert not list(second.folder.glob("*.arrow")), "no content passes the host"
    second.save(_manifest(file))
    assert len(second.manifests_beside()) == 2
    first.clear()
    assert len(second.manifests_beside()) == 1
    third = _store(tmp_path, "c", "shop.2 ä+%20")
    third.fetch()
    assert third.segment(file).num_rows == _ROWS


def test_what_is_gone_is_not_shared(s3: S3Server, tmp_path: Path) -> None:
    first, second = _store(tmp_path, "a", "shop.first"), _store(tmp_path, "b", "shop.second")
    file = _saved(first, 10)
    (folder, _), *_ = second.manifests_beside()
    first.clear()
    with pytest.raises(FileNotFoundError):
        second.link(folder, [file])
    with pytest.raises(FileNotFoundError):
        second.link(folder.replace("first", "second"), [file])


def test_a_file_is_not_copied_onto_itself(s3: S3Server, tmp_path: Path) -> None:
    """A view finds its own former rows, too, which need no copy."""
    file = _saved(_store(tmp_path, "a", "shop.first"), 10)
    again = _store(tmp_path, "b", "shop.first")
    (folder, _), *_ = again.manifests_beside()
    with pytest.raises(StreamhouseError):
        again.link(folder, [file])
    again.fetch()
    again.link(folder, [file])
    assert again.segment(file).num_rows == 10


def test_what_a_dropped_view_kept_is_removed(s3: S3Server, tmp_path: Path) -> None:
    options, objects = {"warehouse": f"s3://{BUCKET}/{tmp_path.name}"}, {}
    execute(options, "CREATE DATABASE shop; CREATE TABLE shop.kept (id INT)")
    for view in ("shop.kept", "shop.dropped"):
        checkpoint = Checkpoint(tmp_path / "checkpoints", VIEWS, view)
        place = f"{shared_folder(options, checkpoint)}/state"
        store = ReplicatedStore(checkpoint.path / "state", ObjectFiles(place, {}), place)
        _saved(store, 10)
        objects[view] = partial(ObjectFiles(place, {}).names, place)
        assert len(objects[view]()) == 2
    remove_kept_by_dropped(options, Checkpoint(tmp_path / "checkpoints", VIEWS, "shop.new"))
    assert len(objects["shop.kept"]()) == 2
    assert not objects["shop.dropped"]() and not (checkpoint.path / "state").exists()
