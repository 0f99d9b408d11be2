"""Reads snapshot files while a writer creates them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streamhouse.paimon.storage import snapshots as module
from streamhouse.paimon.storage.files import files_of
from streamhouse.paimon.storage.snapshots import Snapshots


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "snapshot"
    made.mkdir()
    for number in (1, 2, 3):
        (made / f"snapshot-{number}").write_text("{}")
    return made


def snapshots(folder: Path) -> Snapshots:
    root = str(folder.parent)
    return Snapshots(files_of(root, {}), root, "d.t")


def test_a_newest_snapshot_that_is_not_named_yet_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NAMED_WITHIN_S", 60.0)
    (folder / "LATEST").write_text("2")
    (folder / "name").write_text("3")
    writer = threading.Timer(0.01, (folder / "name").replace, [folder / "LATEST"])
    writer.start()
    snapshots(folder).await_named()
    named = (folder / "LATEST").read_text()
    writer.join()
    assert named == "3"


def test_a_writer_that_died_before_it_named_its_snapshot_is_not_waited_for(folder: Path) -> None:
    (folder / "LATEST").write_text("2")
    snapshots(folder).await_named()
    assert snapshots(folder).latest_id() == 3


@pytest.mark.parametrize("content", ["", "x"])
def test_a_hint_that_cannot_be_read_is_done_without(folder: Path, content: str) -> None:
    (folder / "LATEST").write_text(content)
    (folder / "EARLIEST").write_text(content)
    found = snapshots(folder)
    found.await_named()
    assert (found.earliest_id(), found.latest_id()) == (1, 3)
