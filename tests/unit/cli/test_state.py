"""`streamhouse state`: what views keep."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint, checkpoints_of
from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import SegmentFile
from streamhouse.state.store import StateStore


def run(*arguments: str) -> str:
    ended = CliRunner().invoke(build(["state"]), ["state", *arguments])
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_state_lists_what_views_keep(tmp_path: Path) -> None:
    warehouse = str(tmp_path)
    assert "no view keeps rows" in run("--warehouse", warehouse)
    for name, files in (("d.v", (SegmentFile("a.arrow", 9_000, 4096, 0),)), ("d.w", ())):
        store = StateStore.of(Checkpoint(checkpoints_of(warehouse), VIEWS, name).path)
        store.folder.parent.mkdir(parents=True)
        assert store.usable
        offset = {"batch": 3, "vector": {"/lake#d.t": {"snapshot": 7}}}
        kept = {"x": files} if files else {}
        table = {"snapshot": 0, "time": 0, "wrote": 1}
        store.save(Manifest(3, offset, table, kept, {"x": "scan d.t (id)"} if files else {}))
    text = run("--warehouse", warehouse)
    for word in ("d.v", "d.t 7", "scan d.t (id)", "9,000", "4,096", "nothing"):
        assert word in text
    assert json.loads(run("d.v", "--warehouse", warehouse, "--json"))["views"] == [
        {
            "view": "d.v",
            "batch": 3,
            "snapshots": {"d.t": 7},
            "strategy": "incremental",
            "bytes": 4096,
            "files": 1,
            "kept": [{"operator": "scan d.t (id)", "rows": 9000, "bytes": 4096, "files": 1}],
        }
    ]
