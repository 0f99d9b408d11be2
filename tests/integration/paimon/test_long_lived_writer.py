"""A Java writer that stays open between compactions writes what new writers would."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from tests.integration.paimon.conftest import Lake
from tests.java_reads import java_rows
from tests.waiting import DEADLINE_S

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.java.unfinished_compactions import remove_leftovers

SCHEMA = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.int64()),
        pa.field("at", pa.int64()),
    ]
)
OPTIONS = {
    "bucket": "2",
    "sequence.field": "at",
    "changelog-producer": "lookup",
    "deletion-vectors.enabled": "true",
}
KINDS = pa.int8()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Sidecar]]:
    lake = Lake(tmp_path_factory.mktemp("kept") / "lake")
    with Sidecar(lake.options) as sidecar:
        yield lake, sidecar


def created(lake: Lake, name: str) -> str:
    return lake.create(name, OPTIONS, SCHEMA, ["day", "id"], ["day"])


def changes(rng: random.Random, number: int) -> pa.RecordBatch:
    """Some changes of 40 keys in two days: updates, a fifth late, a few deletions."""
    keys = sorted(rng.sample(range(40), 12))
    rows = [
        {
            "day": "mon" if key < 20 else "tue",
            "id": key,
            "amount": rng.randrange(100),
            "at": number - (5 if rng.random() < 0.2 else 0),
        }
        for key in keys
    ]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    kinds = [3 if rng.random() < 0.1 else 2 for _ in keys]
    return batch.append_column("_VALUE_KIND", pa.array(kinds, KINDS))


def rows_of(java: Sidecar, name: str) -> list[dict[str, Any]]:
    return sorted(java_rows(java, name).to_pylist(), key=lambda row: (row["day"], row["id"]))


def changelog(java: Sidecar, lake: Lake, name: str) -> list[tuple[Any, ...]]:
    audit_log = java_rows(
        java, f"{name}$audit_log", options={"incremental-between": f"0,{lake.latest(name)}"}
    )
    return sorted(tuple(row.values()) for row in audit_log.to_pylist())


def notes(table: str, lake: Lake) -> list[Path]:
    return list(Path(Warehouse(lake.options).table(table).location).glob(".compaction-*"))


def test_long_lived_writers_write_the_same_changes_as_new_ones(
    shared: tuple[Lake, Sidecar],
) -> None:
    lake, java = shared
    kept, new = created(lake, "kept"), created(lake, "new")
    for name, keep in ((kept, True), (new, False)):
        rng = random.Random(5)
        for number in range(6):
            lake.commit(name, 2 * number, changes(rng, number))
            if number % 3 == 1:
                lake.commit(name, 2 * number + 1, changes(rng, number))
            assert java.compact(name, keep=keep)
            if number == 2:
                # Somebody else's compaction makes the writer stale.
                java.compact(name, full=True)
    assert rows_of(java, kept) == rows_of(java, new)
    assert changelog(java, lake, kept) == changelog(java, lake, new)
    assert not java.compact(kept, keep=True)
    by_rust = sorted(lake.rows(kept), key=lambda row: (row["day"], row["id"]))
    assert by_rust == rows_of(java, kept)
    assert len(notes(kept, lake)) == 1


def test_a_writer_is_used_again_until_it_is_stale(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    name, rng = created(lake, "again"), random.Random(1)

    def words() -> set[str]:
        return {note.name for note in notes(name, lake)}

    def compacted(number: int) -> set[str]:
        lake.commit(name, number, changes(rng, number))
        assert java.compact(name, keep=True)
        (word,) = words()
        return {word}

    first = compacted(0)
    assert compacted(1) == first
    lake.commit(name, 10, changes(rng, 10))
    assert java.compact(name, full=True)
    second = compacted(12)
    assert second != first
    lake.catalog.alter_table(name, _option("num-sorted-run.compaction-trigger", "4"), False)
    third = compacted(13)
    assert third != second
    pid = java.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=DEADLINE_S)
    assert compacted(14) != third


def test_a_rollback_and_an_overwrite_are_seen(shared: tuple[Lake, Sidecar]) -> None:
    lake, java = shared
    name, rng = created(lake, "back"), random.Random(2)
    for number in range(3):
        lake.commit(name, number, changes(rng, number))
        assert java.compact(name, keep=True)
    at = lake.latest(name) - 2
    before = java_rows(java, name, snapshot=at).num_rows
    java.call(name, lambda jvm, table: table.rollbackTo(at))
    assert java_rows(java, name).num_rows == before
    lake.commit(name, 7, changes(rng, 9))
    lake.commit(name, 8, changes(rng, 10))
    assert java.compact(name, keep=True)

    builder = lake.table(name).new_batch_write_builder().with_overwrite({})
    write = builder.new_write()
    write.write_arrow(changes(rng, 11).select(SCHEMA.names))
    builder.new_commit().commit(write.prepare_commit())
    lake.commit(name, 9, changes(rng, 12))
    assert java.compact(name, keep=True)
    by_rust = sorted(lake.rows(name), key=lambda row: (row["day"], row["id"]))
    assert by_rust == rows_of(java, name)


_KILLED = """
import os, signal, sys
from streamhouse.paimon.java import sidecar as sidecar_module
from streamhouse.paimon.java.sidecar import Sidecar
from tests.integration.paimon.conftest import Lake
from tests.integration.paimon.test_long_lived_writer import changes
import pathlib, random
lake = Lake(pathlib.Path(sys.argv[1]))
sidecar = Sidecar(lake.options)
rng = random.Random(3)
for number in range(3):
    lake.commit("shop.died", number, changes(rng, number))
    if number == 2:
        def die(*arguments):
            os.kill(sidecar.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        sidecar_module._commit = die
    sidecar.compact("shop.died", keep=True)
"""


def test_only_the_last_compaction_of_a_killed_writer_is_removed(
    shared: tuple[Lake, Sidecar],
) -> None:
    lake, java = shared
    name = created(lake, "died")
    table = Warehouse(lake.options).table(name)
    command = [sys.executable, "-c", _KILLED, str(lake.folder)]
    assert subprocess.run(command, timeout=DEADLINE_S, check=False).returncode == -9
    assert len(notes(name, lake)) == 1
    there = {path for path in Path(table.location).rglob("compact-*") if path.is_file()}
    before = rows_of(java, name)

    gone = remove_leftovers(java, table, 3600)

    left = {path for path in Path(table.location).rglob("compact-*") if path.is_file()}
    assert 0 < gone < len(there) and len(there - left) == gone
    assert rows_of(java, name) == before
    assert changelog(java, lake, name)
    assert not notes(name, lake)
    assert java.compact(name, keep=True)
    by_rust = sorted(lake.rows(name), key=lambda row: (row["day"], row["id"]))
    assert by_rust == rows_of(java, name)


def test_closing_leaves_nothing_behind(lake: Lake) -> None:
    name = created(lake, "closed")
    with Sidecar(lake.options) as java:
        lake.commit(name, 0, changes(random.Random(4), 0))
        assert java.compact(name, keep=True)
        (kept,) = java._open_writers.values()
        spill = Path(kept._spill)
        assert notes(name, lake) and spill.is_dir()
    assert not notes(name, lake) and not spill.exists()


def _option(key: str, value: str) -> list[Any]:
    from pypaimon.schema.schema_change import SchemaChange

    return [SchemaChange.set_option(key, value)]
