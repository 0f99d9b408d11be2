"""UPDATE, DELETE and MERGE while another writer commits are atomic."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.waiting import DEADLINE_S

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write import commit_retries
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.batch import bounded_statements, dml

WRITER = "0f8fad5b-d9cb-469f-a165-70867728950e"
SUMS = """CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('bucket' = '1',
  'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum')"""
ROUNDS = 25


class ConcurrentWriter(threading.Thread):
    """Adds 1 to each key, batch by batch, as a continuous query does."""

    def __init__(self, warehouse: Warehouse, rounds: int) -> None:
        super().__init__()
        self._options = warehouse.options
        self._rounds = rounds
        self.committed = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            committer = TableCommitter(self._options, "default.t", WRITER)
            for batch in range(self._rounds):
                committer.commit(batch, self.prepare(batch))
                self.committed += 1
        except BaseException as error:  # noqa: BLE001
            self.failure = error

    def prepare(self, batch: int) -> list[bytes]:
        writer = TableWriter(self._options, "default.t", WRITER)
        writer.write(pa.record_batch({"k": [1, 2, 3], "n": [1, 1, 1]}))
        messages = writer.prepare(batch)
        writer.close()
        return messages


def rows(warehouse: Warehouse) -> dict[int, int]:
    read = warehouse.table("default.t").read()
    return {row["k"]: row["n"] for batch in read for row in batch.to_pylist()}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path))
    streamhouse.execute(made, SUMS)
    return made


def test_no_effect_is_lost_or_doubled(warehouse: Warehouse) -> None:
    streamhouse.execute(warehouse, "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)")
    writer = ConcurrentWriter(warehouse, ROUNDS)
    writer.start()
    changed = 0
    while writer.is_alive():
        # Key 1 moves what it has to key 3; key 2 is replaced by itself and one more.
        done = streamhouse.execute(
            warehouse,
            "MERGE INTO t USING (SELECT SUM(n) AS n FROM t WHERE k = 1) AS s ON t.k IN (1, 2, 3) "
            "WHEN MATCHED AND t.k = 1 THEN UPDATE SET n = 0 "
            "WHEN MATCHED AND t.k = 2 THEN UPDATE SET n = t.n + 1 "
            "WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
        )
        assert done.updated == 3
        changed += 1
    writer.join(DEADLINE_S)
    assert writer.failure is None and writer.committed == ROUNDS
    found = rows(warehouse)
    assert changed > 0
    assert found[2] == ROUNDS + changed
    assert found[1] + found[3] == 2 * ROUNDS


def test_a_statement_that_is_overtaken_is_computed_again(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamhouse.execute(warehouse, "INSERT INTO t VALUES (1, 5)")
    writer = ConcurrentWriter(warehouse, 0)
    committer = TableCommitter(warehouse.options, "default.t", WRITER)
    prepare: Callable[..., list[bytes]] = dml._Attempt._prepare
    tries: list[int] = []

    def overtaken(attempt: dml._Attempt, own: commit_retries.Attempt) -> list[bytes]:
        messages = prepare(attempt, own)
        if len(tries) < commit_retries.TRIES:
            committer.commit(len(tries), writer.prepare(len(tries)))
        tries.append(len(messages))
        return messages

    monkeypatch.setattr(dml._Attempt, "_prepare", overtaken)
    streamhouse.execute(warehouse, "UPDATE t SET n = n * 10 WHERE k = 1")
    assert len(tries) == commit_retries.TRIES + 1, "the last one held the lock"
    assert rows(warehouse)[1] == (5 + commit_retries.TRIES) * 10
    table = warehouse.table("default.t")
    files = [p for p in Path(table.location).glob("bucket-*/*") if "streamhousechg" in p.name]
    assert len(files) == 1, "what the other tries wrote is gone"


def test_rows_inserted_during_an_update_stay_visible(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamhouse.execute(
        warehouse,
        "CREATE TABLE latest (k INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('bucket' = '1');"
        "INSERT INTO latest VALUES (1, 1), (2, 2), (3, 3)",
    )
    prepare: Callable[..., tuple[int, list[bytes]]] = bounded_statements._Insert._prepare
    tries: list[int] = []

    def beside(insert: bounded_statements._Insert) -> tuple[int, list[bytes]]:
        done = prepare(insert)
        tries.append(done[0])
        if len(tries) <= 2:
            streamhouse.execute(warehouse, "UPDATE latest SET n = n + 1")
        return done

    monkeypatch.setattr(bounded_statements._Insert, "_prepare", beside)
    done = streamhouse.execute(warehouse, "INSERT INTO latest VALUES (3, 99)")
    assert (done.inserted, tries) == (1, [1, 1, 1])
    read = warehouse.table("default.latest").read()
    found = {row["k"]: row["n"] for batch in read for row in batch.to_pylist()}
    assert found == {1: 3, 2: 4, 3: 99}


KILLED = """
import os, signal, sys
import streamhouse
from streamhouse.runtime.batch import bounded_statements
from streamhouse.runtime.batch import dml
prepare = dml._Attempt._prepare
def killed(attempt, own):
    prepare(attempt, own)
    os.kill(os.getpid(), signal.SIGKILL)
dml._Attempt._prepare = killed
streamhouse.execute(sys.argv[1], "UPDATE t SET n = 7")
"""


def test_a_killed_statement_changes_nothing_and_the_next_cleans_up(warehouse: Warehouse) -> None:
    streamhouse.execute(warehouse, "INSERT INTO t VALUES (1, 5)")
    table = warehouse.table("default.t")
    before = table.latest_snapshot_id()
    code = subprocess.run(
        [sys.executable, "-c", KILLED, warehouse.path],
        timeout=DEADLINE_S,
        check=False,
        env=os.environ,
    ).returncode
    assert code == -signal.SIGKILL
    assert (table.latest_snapshot_id(), rows(warehouse)) == (before, {1: 5})
    lost = list(Path(table.location).glob("bucket-*/streamhousechg*"))
    assert len(lost) == 1
    streamhouse.execute(warehouse, "UPDATE t SET n = 6 WHERE k = 1")
    assert rows(warehouse) == {1: 6}
    assert not lost[0].exists()
    assert len(list(Path(table.location).glob("bucket-*/streamhousechg*"))) == 1
    assert not list(Path(table.location).glob(".changes/*"))
