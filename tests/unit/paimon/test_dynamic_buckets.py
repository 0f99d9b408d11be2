"""Writers of a table with dynamic buckets that add the same keys at the same time."""

from __future__ import annotations

from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from tests.processes import FORKS
from tests.waiting import DEADLINE_S

from streamhouse.errors import CommitConflictError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.commit_retries import rows_changed
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.batch import bounded_statements
from streamhouse.runtime.execute import execute

PROCESSES, ROUNDS, KEYS = 2, 8, 30
TABLE = (
    "CREATE TABLE d.t (k INT, p INT, v INT, PRIMARY KEY ({}) NOT ENFORCED) {} "
    "WITH ('bucket' = '-1', 'dynamic-bucket.target-row-num' = '3')"
)


def _insert(lake: str, barrier: Barrier, failures: Any, number: int) -> None:
    try:
        for turn in range(ROUNDS):
            # In another order, since the writer puts the first keys into the first bucket.
            keys = list(range(turn * KEYS, (turn + 1) * KEYS))[:: 1 - 2 * number]
            values = ", ".join(f"({key}, {(key + number) % 2}, {number})" for key in keys)
            barrier.wait(DEADLINE_S)
            execute(lake, f"INSERT INTO d.t VALUES {values}")
        failures.put(None)
    except BaseException as error:  # noqa: BLE001  # raised by the test
        barrier.abort()
        failures.put(repr(error))


@pytest.mark.parametrize("partitions", ["", "PARTITIONED BY (p)"], ids=["plain", "moving"])
def test_processes_that_add_the_same_keys_give_each_one_row(
    tmp_path: Path, partitions: str
) -> None:
    lake = str(tmp_path)
    execute(lake, f"CREATE DATABASE d; {TABLE.format('k', partitions)}")
    barrier, failures = FORKS.Barrier(PROCESSES), FORKS.Queue()
    processes = [
        FORKS.Process(target=_insert, args=(lake, barrier, failures, number))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        reported = [failures.get(timeout=DEADLINE_S) for _ in processes]
    finally:
        for process in processes:
            process.join(DEADLINE_S)
            process.kill()
    assert reported == [None] * PROCESSES
    batches = Warehouse(lake).table("d.t").read(["k"])
    found = Counter(key for batch in batches for key in batch.column("k").to_pylist())
    assert found == Counter(range(ROUNDS * KEYS))


def test_files_are_outdated_by_inserts_of_others_where_buckets_are_dynamic(tmp_path: Path) -> None:
    lake = str(tmp_path)
    execute(lake, f"CREATE DATABASE d; {TABLE.format('k', '')}")
    execute(lake, "CREATE TABLE d.f (k INT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '2')")
    dynamic, fixed = Warehouse(lake).table("d.t"), Warehouse(lake).table("d.f")
    for table, row in ((dynamic, "(1, 1, 1)"), (fixed, "(1)")):
        execute(lake, f"INSERT INTO {table.identifier} VALUES {row}")
        assert rows_changed(table, None) == (table is dynamic)
        assert not rows_changed(table, 1)


def test_an_insert_that_loses_every_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers of other engines take no lock; the rows must not be dropped in silence."""
    lake = str(tmp_path)
    execute(lake, f"CREATE DATABASE d; {TABLE.format('k', '')}")
    prepare = bounded_statements._Insert._prepare

    def overtaken(self: bounded_statements._Insert) -> tuple[int, list[bytes]]:
        prepared = prepare(self)
        table = Warehouse(lake).table("d.t")
        writer = TableWriter(table.catalog_options, "d.t", "other")
        number = (table.latest_snapshot_id() or 0) + 1
        writer.write(_row(table, number))
        messages = writer.prepare(number)
        writer.close()
        TableCommitter(table.catalog_options, "d.t", "other").commit(number, messages)
        return prepared

    monkeypatch.setattr(bounded_statements._Insert, "_prepare", overtaken)
    with pytest.raises(
        CommitConflictError, match="committed to it or altered it during every attempt"
    ):
        execute(lake, "INSERT INTO d.t VALUES (100, 0, 0)")


def _row(table: Any, key: int) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([{"k": key, "p": 0, "v": 0}], schema=table.arrow_schema)
