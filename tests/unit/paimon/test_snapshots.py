"""Reads snapshot files while a writer creates them."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_a_snapshot_that_is_not_named_is_the_newest(folder: Path) -> None:
    (folder / "LATEST").write_text("2")
    assert snapshots(folder).latest_id() == 3


@pytest.mark.parametrize("content", ["", "x"])
def test_a_hint_that_cannot_be_read_is_done_without(folder: Path, content: str) -> None:
    (folder / "LATEST").write_text(content)
    (folder / "EARLIEST").write_text(content)
    found = snapshots(folder)
    assert (found.earliest_id(), found.latest_id()) == (1, 3)
