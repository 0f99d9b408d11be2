"""Continuous queries from files and into files: each row exactly once, after any interruption."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.runtime.conftest import Shop

from streamhouse.runtime.replay_requests import request_replay

pytestmark = pytest.mark.usefixtures("in_threads")

MADE = """
CREATE TEMPORARY TABLE made (id INT, at TIMESTAMP(3)) WITH ('connector' = 'datagen',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '600000',
  'rows-per-second' = '10000000');
"""


def declared(folder: Path, more: str = "") -> str:
    return f"""
    CREATE TEMPORARY TABLE kept (id INT, part INT) PARTITIONED BY (part)
    WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json'{more});
    """


def ids(folder: Path) -> list[int]:
    """The ids in all visible files, each in the folder of its partition."""
    found = []
    for path in folder.rglob("part=*/*.json"):
        if ".streamhouse" in path.parts:
            continue
        values = [json.loads(line)["id"] for line in path.read_text().splitlines()]
        assert {value % 3 for value in values} == {int(path.parent.name.removeprefix("part="))}
        found += values
    return sorted(found)


def test_each_row_is_in_a_file_once(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    script = MADE + declared(folder) + "INSERT INTO kept SELECT id, id % 3 FROM made;"
    for point in ("batch-written:0", "target-committed:0"):
        with shop.failing_here(script, point):
            pass
    shop.settle_here(script)
    assert ids(folder) == list(range(1, 600_001))
    staged = [path for path in (folder / ".streamhouse").rglob("*") if path.suffix != ".json"]
    assert staged == []


def test_files_that_appear_are_read_once(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    script = (
        declared(folder, ", 'source.monitor-interval' = '100 ms'")
        + "CREATE TABLE IF NOT EXISTS seen (id INT, part INT) WITH ('bucket' = '-1');"
        + "INSERT INTO seen SELECT id, part FROM kept;"
    )

    def put(number: int) -> None:
        place = folder / f"part={number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        hidden = place / f".{number}"
        hidden.write_text(json.dumps({"id": number}))
        hidden.rename(place / f"{number}.json")

    put(1)
    with shop.failing_here(script, "target-committed:0"):
        pass
    put(2)
    with shop.running_here(script) as until:
        until(lambda: len(shop.rows("seen")) == 2)
        put(3)
        until(lambda: len(shop.rows("seen")) == 3)
    shop.settle_here(script)
    assert shop.rows("seen") == [{"id": n, "part": n % 3} for n in (1, 2, 3)]
    batch = "SET 'execution.runtime-mode' = 'batch'; SELECT COUNT(*), SUM(id) FROM kept;"
    assert shop.printed(declared(folder) + batch) == "3  6"


def test_bad_records_are_kept_once_and_replayed(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    (folder / "part=1").mkdir(parents=True)
    (folder / "part=1" / "a.json").write_text('{"id": 1}\n{"id": "two"}\nno json\n')
    keep = ", 'bad-records' = 'table', 'bad-records.table' = 'late.bad'"
    script = (
        declared(folder, keep).replace("part INT)", "part INT, f STRING METADATA FROM 'file.name')")
        + "CREATE TABLE IF NOT EXISTS seen (id STRING, part INT, f STRING) WITH ('bucket' = '-1');"
        + "INSERT INTO seen SELECT CAST(id AS STRING), part, f FROM kept;"
    )
    with shop.failing_here(script, "target-committed:0"):
        pass
    shop.settle_here(script)
    table = shop.warehouse.table("late.bad")
    kept = [row["value"] for batch in table.read() for row in batch.to_pylist()]
    assert Counter(kept) == {b'{"id": "two"}': 1, b"no json": 1}
    assert request_replay(shop.warehouse.options, "late.bad") != {}
    mended = script.replace("kept (id INT", "kept (id STRING")
    shop.settle_here(mended)
    shop.settle_here(mended)
    rows = [{"id": one, "part": 1, "f": "a.json"} for one in ("1", "two")]
    assert sorted(shop.rows("seen"), key=str) == rows
