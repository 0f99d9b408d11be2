"""The demo with its tables on S3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamhouse.demo.scenario import DemoFolder
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.files import files_of


def test_the_demo_deletes_only_its_own(lake: str, tmp_path: Path) -> None:
    files = files_of(lake, {"warehouse": lake})
    folder = DemoFolder(tmp_path, lake)
    folder.claim()
    folder.release()
    files.write_text(f"{lake}/shop.db/x", "of the demo")
    folder.claim()
    folder.release()
    assert not files.exists(f"{lake}/shop.db/x")
    files.delete(lake)
    files.write_text(f"{lake}/precious", "of somebody else")
    with pytest.raises(StreamhouseError, match="is not empty, and the demo would delete all of it"):
        folder.claim()
    assert files.exists(f"{lake}/precious")


@pytest.mark.soak
def test_the_demo_has_the_expected_sums_after_a_kill(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("streamhouse")), "demo", "--json"]
    rate = ["--seconds", "10", "--orders-per-second", "300", "--kill-every", "4"]
    ended = subprocess.run(
        [*command, *rate, "--warehouse", "s3", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["equal"] is True and result["merge_ok"] is True
    assert result["orders"] == result["matched"] > 0
