"""Errors if a disk is full; leftovers of killed servers are deleted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.integration.serve.server import Server
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S, until

from streamhouse.sql.plan import Column

WIDE = (Column("id", "BIGINT"), Column("name", "STRING"), Column("v", "DOUBLE"))
BYTES = 2 << 20
JOIN = "SELECT a.name, b.v FROM shop.big a JOIN shop.big b ON a.id = b.id"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shop = Shop(tmp_path_factory.mktemp("full") / "warehouse")
    shop.write(shop.sales(), ("Chad", 1, 1.5), ("Peru", 2, 2.5))
    shop.write(shop.create("big", WIDE), *((n, f"name {n}", n / 2) for n in range(100_000)))
    return shop.path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk is mounted by the administrator only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def check(server: Server) -> None:
    """Large answers have no room, by whatever path; small ones have."""
    with httpx.Client(base_url=server.url, timeout=DEADLINE_S, trust_env=False) as client:
        asked = {"Content-Type": "application/sql"}
        for answer in (
            client.get("/views/shop.big"),
            client.get("/views/shop.big?format=csv&filter=v%20%3E%3D%200"),
            client.get("/views/shop.big?format=parquet&order=-name"),
            client.post("/sql", content=JOIN, headers=asked),
        ):
            error = answer.json()["error"] if answer.status_code != 200 else {}
            if answer.headers["content-type"] == "application/vnd.apache.parquet":
                continue  # small enough
            assert (answer.status_code, error["code"]) == (503, "busy"), answer.text
            assert "is full" in error["message"]
        assert client.get("/views/shop.sales").status_code == 200
        one = client.post("/sql", content="SELECT COUNT(*) AS n FROM shop.big", headers=asked)
        assert one.json()["rows"] == [{"n": 100_000}]


def test_full_disk_error(warehouse: Path, tmp_path: Path, small_disk: Path) -> None:
    with Server(warehouse, tmp_path, environment={"TMPDIR": str(small_disk)}) as server:
        check(server)


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="there is no prlimit")
def test_quota_error(warehouse: Path, tmp_path: Path) -> None:
    with Server(warehouse, tmp_path, file_bytes=BYTES) as server:
        check(server)


def test_leftovers_of_a_killed_server_are_deleted(warehouse: Path, tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    given = {"TMPDIR": str(place)}
    for name in ("first", "second", "killed"):
        (tmp_path / name).mkdir()
    with Server(warehouse, tmp_path / "first", environment=given):
        (lives,) = place.glob("streamhouse-serve-*")
        killed = Server(warehouse, tmp_path / "killed", environment=given).start()
        httpx.get(f"{killed.url}/views/shop.big", timeout=DEADLINE_S, trust_env=False)
        (dead,) = (one for one in place.glob("streamhouse-serve-*") if one != lives)
        killed.kill()
        assert dead.exists()
        with Server(warehouse, tmp_path / "second", environment=given):
            until(lambda: not dead.exists())
            # That of one that runs beside stays.
            assert lives.exists() and len(list(place.glob("streamhouse-serve-*"))) == 2
    assert list(place.glob("streamhouse-serve-*")) == []
