"""`streamhouse run`: resumes, stops, and reports errors in one line."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.runtime.conftest import Ended, Shop
from tests.integration.runtime.spark_ports import check_ports

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.monitoring.status import Statuses

GENERATED = """
SET 'pipeline.name' = 'numbers';
CREATE TABLE IF NOT EXISTS a (id BIGINT, twice BIGINT) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS b (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TEMPORARY TABLE made (id BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '{rate}', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '1', 'fields.id.end' = '{rows}'
);
BEGIN STATEMENT SET;
INSERT INTO a SELECT id, {twice} FROM made;
INSERT INTO b SELECT id FROM a;
END;
SET 'execution.runtime-mode' = 'batch';
SELECT COUNT(*) AS n, MAX(id) AS last FROM b;
"""


def one_line(ended: Ended) -> str:
    """The message of a run that failed: one line, no stack traces."""
    lines = [line for line in ended.err.splitlines() if not line.startswith("notice: ")]
    assert (ended.code, len(lines)) == (1, 1), ended.err
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.soak
def test_a_second_run_resumes(shop: Shop) -> None:
    places = shop.folder / "places"
    first = shop.settle(
        GENERATED.format(rate=5_000, rows=1_000, twice="id * 2"), "--checkpoints", str(places)
    )
    assert "│ 1,000 │ 1,000 │" in first.out
    assert sorted(path.name for path in (places / "numbers").iterdir()) == [
        "default.a",
        "default.b",
    ]
    assert not (shop.path / ".checkpoints").exists()
    more = GENERATED.format(rate=5_000, rows=1_500, twice="id + id")
    second = shop.settle(more, "--checkpoints", str(places))
    assert "│ 1,500 │ 1,500 │" in second.out
    assert second.err.count("has changed") == 1
    assert "SELECT of default.a in pipeline 'numbers' has changed" in second.err
    rows = shop.rows("a")
    assert sorted(row["id"] for row in rows) == list(range(1, 1_501))
    assert all(row["twice"] == 2 * row["id"] for row in rows)


def test_a_run_refuses_strangers_and_stops_between_two_batches(shop: Shop) -> None:
    script = GENERATED.format(rate=2_000, rows=10_000_000, twice="id * 2")
    script = script.partition("SET 'execution.runtime-mode'")[0]
    # As a Spark leaves it that is killed in its first batch.
    unfinished = shop.path / ".checkpoints" / "numbers" / "default.a" / "offsets" / ".0.1b-2c.tmp"
    unfinished.parent.mkdir(parents=True)
    unfinished.touch()
    run = shop.start(script)
    run.until(lambda: _grown(shop, "b"))
    with pytest.raises(StreamhouseError, match=f"already running .process {run.process.pid}"):
        shop.settle_here(script)
    check_ports(run)
    run.signal(signal.SIGTERM)
    ended = run.wait()
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    ids = sorted(row["id"] for row in shop.rows("a"))
    assert ids == list(range(1, len(ids) + 1))
    assert ended.reports[0] == "starting Spark …"
    assert ended.reports[1].startswith("2 queries run after ")
    assert ended.reports[-1].startswith(f"stopped: {len(ids):,} rows into default.a, ")
    assert "WARN" in (shop.path / ".pipelines" / "numbers" / "spark.log").read_text()
    for table in ("a", "b"):
        place = shop.path / ".checkpoints" / "numbers" / f"default.{table}"
        commits, offsets = (
            {int(path.name) for path in (place / kind).iterdir() if path.name.isdigit()}
            for kind in ("commits", "offsets")
        )
        assert max(commits) == max(offsets), "a batch was cut off"
        assert not (place / "run").exists()


def _grown(shop: Shop, table: str) -> bool:
    return shop.warehouse.exists("default", table) and bool(
        shop.warehouse.table(f"default.{table}").latest_snapshot_id()
    )


def test_a_select_over_a_stream_prints_changes(shop: Shop) -> None:
    table = """
    CREATE TABLE IF NOT EXISTS people (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('bucket' = '1');
    """
    shop.do(table + "INSERT INTO people VALUES (1, 'Ann'), (2, 'Ben');")
    run = shop.start(table + "SELECT name, id FROM people WHERE id < 3;", spark=False)
    run.until(lambda: "name=Ben" in run.out)
    shop.do("INSERT INTO people VALUES (3, 'Cid'), (2, 'Bea');")
    run.until(lambda: "name=Bea" in run.out)
    run.signal(signal.SIGINT)
    ended = run.wait()
    assert (ended.code, ended.err) == (130, "")
    assert ended.out.splitlines()[:2] == ["+I  name=Ann  id=1", "+I  name=Ben  id=2"]
    assert "Cid" not in ended.out


def test_a_row_that_cannot_be_computed_ends_the_query_in_one_line(shop: Shop) -> None:
    script = """
    CREATE TABLE texts (id INT, t STRING) WITH ('bucket' = '-1');
    CREATE TABLE numbers (id INT, n INT) WITH ('bucket' = '-1');
    INSERT INTO texts VALUES (1, '12'), (2, 'x3');
    INSERT INTO numbers SELECT id, CAST(t AS INT) FROM texts;
    """
    message = one_line(shop.run(script, "--until-caught-up"))
    assert "cannot compute a row" in message
    assert "x3" in message
    status = Statuses({"warehouse": str(shop.path)}).read("shop.sql")
    assert status is not None and (status.state, status.error) == (
        "failed",
        message[len("error: ") :],
    )
    assert [query.last_error for query in status.queries] == [status.error]
    assert shop.rows("numbers") == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize("spark", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_full_disk_is_an_error_without_lost_rows(small_disk: Path, spark: bool) -> None:
    # What the command says goes elsewhere: here there is no room for it.
    shop = Shop(small_disk.parent, place=small_disk / "warehouse")
    script = GENERATED.format(rate=20_000, rows=60_000, twice="id * 2")
    script = script.partition("SET 'execution.runtime-mode'")[0]
    ballast = small_disk / "ballast"
    shop.do(script.partition("BEGIN")[0])
    disk = os.statvfs(small_disk)
    ballast.write_bytes(b"\1" * (disk.f_bavail * disk.f_frsize - 200_000))
    ended = shop.run(script, "--until-caught-up", spark=spark)
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    # What looks after the tables may find the disk full, too, and tries again.
    rest = [line for line in ended.err.splitlines() if line not in errors]
    assert (ended.code, len(errors)) == (1, 1), ended.err
    assert "is full" in errors[0] or "no space left" in errors[0]
    assert all("No space left" in line for line in rest), ended.err
    ballast.unlink()
    shop.settle_here(script)
    for table in ("a", "b"):
        assert sorted(row["id"] for row in shop.rows(table)) == list(range(1, 60_001))
