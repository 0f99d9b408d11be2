"""The Java core reads, compacts and merges what the Rust core wrote."""

from __future__ import annotations

import datetime
import decimal
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from tests.java_reads import java_buckets, java_rows
from tests.processes import await_end
from tests.waiting import DEADLINE_S, until

from streamhouse.errors import CommitConflictError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java import bucket_compaction
from streamhouse.paimon.java import sidecar as sidecar_module
from streamhouse.paimon.java.jars import paimon_jar
from streamhouse.paimon.java.sidecar import COMMIT_USER, Sidecar
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn


def by_key(rows: list[dict[str, Any]], key: str = "country") -> dict[Any, dict[str, Any]]:
    assert len({row[key] for row in rows}) == len(rows)
    return {row[key]: row for row in rows}


def with_kinds(batch: pa.RecordBatch, kinds: list[int]) -> pa.RecordBatch:
    return batch.append_column("_VALUE_KIND", pa.array(kinds, pa.int8()))


def test_java_reads_sums_as_rust_does(lake: Any, java: Sidecar, make_sale: Any) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 2.5), ("Chad", 2, 1.0)))
    lake.commit(name, 1, make_sale(("China", 3, 0.5)))
    retract = with_kinds(make_sale(("Chad", 1, 0.25)), [3])
    lake.commit(name, 2, retract)

    rows = java_rows(java, name).to_pylist()

    assert by_key(rows) == by_key(lake.rows(name))
    assert by_key(rows)["China"]["orders"] == 4
    assert by_key(rows)["Chad"] == {"country": "Chad", "orders": 1, "revenue": 0.75}
    assert by_key(java_rows(java, name, snapshot=1).to_pylist())["China"]["orders"] == 1


def test_java_reads_deletes_and_types_as_rust_does(lake: Any, java: Sidecar) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("price", pa.decimal128(12, 2)),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("ms")),
            pa.field("raw", pa.binary()),
        ]
    )
    name = lake.create("c", {"bucket": "1", "changelog-producer": "input"}, schema, ["id"])
    at = datetime.datetime(2024, 2, 29, 23, 59, 59, 999000)
    row = {"name": "é", "price": decimal.Decimal("-1.05"), "day": at.date(), "at": at, "raw": b"\0"}
    full = pa.RecordBatch.from_pylist([{"id": i, **row} for i in (1, 2, 3)], schema)
    lake.commit(name, 0, full)
    nulls = pa.RecordBatch.from_pylist([{"id": 2}, {"id": 3}], schema)
    lake.commit(name, 1, with_kinds(nulls, [3, 2]))

    rows = java_rows(java, name).to_pylist()

    assert by_key(rows, "id") == by_key(lake.rows(name), "id")
    assert by_key(rows, "id")[1] == {"id": 1, **row}
    assert sorted(by_key(rows, "id")) == [1, 3]
    kinds = java_rows(java, f"{name}$audit_log", options={"incremental-between": "1,2"})
    assert sorted(kinds.column("rowkind").to_pylist()) == ["+U", "-D"]


def test_full_compaction_keeps_rows_and_every_snapshot(
    lake: Any, java: Sidecar, make_sale: Any
) -> None:
    name = lake.sales(
        **{
            "snapshot.num-retained.min": "1",
            "snapshot.num-retained.max": "2",
            "snapshot.time-retained": "1 ms",
        }
    )
    for identifier in range(12):
        lake.commit(name, identifier, make_sale(("China", 1, 0.5), ("Chad", 1, 0.5)))
    before = by_key(lake.rows(name))

    assert java.compact(name, full=True)

    assert by_key(lake.rows(name)) == by_key(java_rows(java, name).to_pylist()) == before
    assert all(bucket.level0 == 0 and bucket.files == 1 for bucket in java_buckets(java, name))
    assert [i for i, _ in lake.snapshots(name)] == list(range(1, 14))
    assert lake.snapshots(name)[-1] == (13, "COMPACT")
    assert by_key(lake.rows(name, 5))["China"]["orders"] == 5
    last = json.loads((lake.folder / f"{lake.database}.db/sales/snapshot/snapshot-13").read_text())
    assert last["commitUser"] == COMMIT_USER


def test_a_compaction_without_work_makes_no_snapshot(
    lake: Any, java: Sidecar, make_sale: Any
) -> None:
    name = lake.sales()
    assert not java.compact(name, full=True)
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    assert java.compact(name, full=True)
    assert not java.compact(name, full=True)
    assert not java.compact(name)
    assert lake.latest(name) == 2


def test_a_replay_is_recognised_after_a_compaction(
    lake: Any, java: Sidecar, make_sale: Any
) -> None:
    name = lake.sales()
    for identifier in range(3):
        assert lake.commit(name, identifier, make_sale(("China", 1, 0.5))) == 1
    java.compact(name, full=True)
    java.compact_manifests(name)

    assert lake.commit(name, 2, make_sale(("China", 1, 0.5))) == 0
    assert lake.commit(name, 3, make_sale(("China", 1, 0.5))) == 1
    assert by_key(java_rows(java, name).to_pylist())["China"]["orders"] == 4


def test_full_compaction_produces_the_changelog(lake: Any, java: Sidecar, make_sale: Any) -> None:
    name = lake.sales(**{"changelog-producer": "full-compaction"})
    lake.commit(name, 0, make_sale(("China", 1, 1.0)))
    java.compact(name, full=True)
    lake.commit(name, 1, make_sale(("China", 1, 10.0)))
    java.compact(name, full=True)

    builder = lake.table(name).new_read_builder().with_include_row_kind(True)
    splits = builder.new_incremental_scan(2, 4, "changelog").plan().splits()
    rows = [row for batch in builder.new_read().read(splits) for row in batch.to_pylist()]

    assert [(row["rowkind"], row["revenue"]) for row in rows] == [("-U", 1.0), ("+U", 11.0)]


def test_manifests_are_merged(lake: Any, java: Sidecar, make_sale: Any) -> None:
    name = lake.sales()
    for identifier in range(20):
        lake.commit(name, identifier, make_sale(("China", 1, 0.5)))
    listed = java_rows(java, f"{name}$manifests").num_rows
    assert listed == 20

    java.compact_manifests(name)

    assert java_rows(java, f"{name}$manifests").num_rows == 1
    assert len(lake.snapshots(name)) == 21
    assert by_key(lake.rows(name))["China"]["orders"] == 20


def test_manifests_are_read_once(lake: Any, java: Sidecar, make_sale: Any) -> None:
    name = lake.sales()
    for number in range(3):
        lake.commit(name, number, make_sale(("China", 1, 1.0)))
    assert java.compact(name, full=True)

    def cached(_: Any, table: Any) -> int:
        return int(table.getManifestCache().estimatedSize())

    before = java.call(name, cached)
    assert before >= 3
    rows = java_rows(java, name).to_pylist()
    assert java.call(name, cached) > before
    assert by_key(rows) == by_key(lake.rows(name))
    assert java_rows(java, f"{name}$snapshots").num_rows == 4


def test_an_append_table_is_compacted(lake: Any, java: Sidecar) -> None:
    schema = pa.schema([("order_id", pa.int64()), ("customer_id", pa.int32())])
    name = lake.create("orders", {"bucket": "-1"}, schema, [])
    for i in range(12):
        lake.commit(name, i, pa.record_batch([[i, i + 100], [1, 2]], schema=schema))

    assert java.compact(name)

    assert sum(bucket.files for bucket in java_buckets(java, name)) == 1
    expected = sorted([*range(12), *range(100, 112)])
    assert sorted(row["order_id"] for row in lake.rows(name)) == expected
    assert len(lake.snapshots(name)) == 13


def test_compaction_during_commits_keeps_totals(lake: Any, java: Sidecar, make_sale: Any) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 0.5), ("Chad", 1, 1.0)))
    failures: list[BaseException] = []
    commits, done, enough = 1, threading.Event(), threading.Event()

    def write() -> None:
        nonlocal commits
        try:
            while commits < 60 or not enough.is_set():
                batch = make_sale(("China", 1, 0.5), ("Chad", 1, 1.0))
                assert lake.commit(name, commits, batch) == 1
                commits += 1
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001  # handed to the test's thread
            failures.append(error)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    compactions = 0
    while not done.wait(0.05):
        compactions += java.compact(name, full=compactions % 2 == 0)
        if compactions >= 3:
            enough.set()
    writer.join(DEADLINE_S)

    assert not failures
    assert compactions >= 3
    assert lake.commit(name, commits - 1, make_sale(("China", 1, 0.5))) == 0
    rows = by_key(java_rows(java, name).to_pylist())
    assert rows == by_key(lake.rows(name))
    assert rows["China"] == {"country": "China", "orders": commits, "revenue": commits / 2}
    assert rows["Chad"] == {"country": "Chad", "orders": commits, "revenue": commits}
    assert len(lake.snapshots(name)) == commits + compactions


@pytest.mark.parametrize("job", ["compact", "compact_manifests"])
def test_java_commits_wait_for_the_commit_of_a_query(
    lake: Any, java: Sidecar, make_sale: Any, job: str
) -> None:
    name = lake.sales()
    for identifier in range(8):
        lake.commit(name, identifier, make_sale(("China", 1, 0.5)))
    java_rows(java, name)
    worker = threading.Thread(target=getattr(java, job), args=[name])
    with commit_lock(lake.table(name).location()):
        worker.start()
        worker.join(0.5)
        assert worker.is_alive()
        assert lake.latest(name) == 8
    worker.join(DEADLINE_S)
    assert lake.latest(name) == 9


def test_a_lost_compaction_is_a_conflict_and_leaves_no_file(
    lake: Any, java: Sidecar, make_sale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lake.sales()
    for identifier in range(3):
        lake.commit(name, identifier, make_sale(("China", 1, 0.5)))
    commit = sidecar_module._commit

    def late(table: Any, messages: Any) -> bool:
        monkeypatch.setattr(sidecar_module, "_commit", commit)
        with Sidecar(lake.options) as other:
            assert other.compact(name, full=True)
        return commit(table, messages)

    monkeypatch.setattr(sidecar_module, "_commit", late)
    with pytest.raises(CommitConflictError, match=f"table '{name}' was not compacted"):
        java.compact(name, full=True)

    files = (lake.folder / f"{lake.database}.db/sales").rglob("*.parquet")
    assert len(list(files)) == 4
    assert java_rows(java, name).to_pylist() == lake.rows(name)
    assert lake.rows(name)[0]["orders"] == 3


def test_a_lost_compaction_deletes_no_file_that_only_went_up_a_level(
    lake: Any, java: Sidecar, make_sale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lake.sales(bucket="1")
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    commit = sidecar_module._commit

    def late(table: Any, messages: Any) -> bool:
        (after,) = [file.level() for m in messages for file in m.compactIncrement().compactAfter()]
        assert after > 0
        monkeypatch.setattr(sidecar_module, "_commit", commit)
        with Sidecar(lake.options) as other:
            assert other.compact(name, full=True)
        return commit(table, messages)

    monkeypatch.setattr(sidecar_module, "_commit", late)
    with pytest.raises(CommitConflictError):
        java.compact(name, full=True)

    assert java_rows(java, name).to_pylist() == lake.rows(name)
    assert lake.rows(name)[0]["orders"] == 1


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "aggregation": {"fields.orders.aggregate-function": "sum"},
    "partial-update": {},
    "first-row": {},
}
PRODUCERS = ["none", "input", "lookup", "full-compaction"]
LAYOUTS = [
    *((engine, producer, "false") for engine in ENGINES for producer in PRODUCERS
      if engine != "first-row" or producer in ("none", "lookup")),
    *(("deduplicate", producer, "true") for producer in PRODUCERS[:3]),
]  # fmt: skip


@pytest.mark.parametrize("how", [{"full": True}, {}, {"keep": True}], ids=str)
@pytest.mark.parametrize(("engine", "producer", "vectors"), LAYOUTS)
def test_a_compaction_during_an_alter_table_keeps_the_new_column(
    lake: Any, java: Sidecar, monkeypatch: pytest.MonkeyPatch,
    engine: str, producer: str, vectors: str, how: Any,
) -> None:  # fmt: skip
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("orders", pa.int64())])
    options = {
        "bucket": "1", "merge-engine": engine, "changelog-producer": producer,
        "deletion-vectors.enabled": vectors, "num-sorted-run.compaction-trigger": "1",
    }  # fmt: skip
    name = lake.create("altered", {**options, **ENGINES[engine]}, schema, ["id"])

    def rows(*found: tuple[int, int]) -> pa.RecordBatch:
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(zip(*found, strict=True), schema, strict=True)
        ]
        return pa.record_batch(arrays, schema=schema)

    for number in range(3):
        lake.commit(name, number, rows((number, number)))
    if "keep" in how:
        java.compact(name, **how)
        lake.commit(name, 3, rows((0, 7)))
    beside_an_alter_table(
        lake, java, name, monkeypatch, rows((9, 1)), lambda: java.compact(name, **how)
    )
    found = {row["id"]: row["note"] for row in java_rows(java, name).to_pylist()}
    assert found == {0: None, 1: None, 2: None, 9: "new"}
    assert by_key(lake.rows(name), "id") == by_key(java_rows(java, name).to_pylist(), "id")


def test_an_append_compaction_during_an_alter_table_keeps_the_new_column(
    lake: Any, java: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    name = lake.create("lines", {"bucket": "-1", "compaction.min.file-num": "2"}, schema, [])
    for number in range(3):
        lake.commit(name, number, pa.record_batch([pa.array([number])], schema=schema))
    later = pa.record_batch([pa.array([3])], schema=schema)
    beside_an_alter_table(lake, java, name, monkeypatch, later, lambda: java.compact(name))
    assert sorted((row["id"], row["note"]) for row in lake.rows(name)) == [
        (0, None), (1, None), (2, None), (3, "new"),
    ]  # fmt: skip


def beside_an_alter_table(
    lake: Any,
    java: Sidecar,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    rows: pa.RecordBatch,
    compact: Callable[[], bool],
) -> None:
    """Add a column and write `rows` with it, after the compaction has opened the table."""
    location_of, files = bucket_compaction.location_of, set(data_files(lake, name))

    def altered(table: Any) -> str:
        if "note" not in Warehouse(lake.options).table(name).arrow_schema.names:
            Warehouse(lake.options).alter_table(name, AddColumn(Column("note", "STRING")))
            lake.commit(name, 9, rows.append_column("note", pa.array(["new"])))
            # Not those of the compaction, which has lost against the change of the schema.
            files.update(one for one in data_files(lake, name) if "/compact-" not in one)
        return location_of(table)

    monkeypatch.setattr(sidecar_module, "location_of", altered)
    with pytest.raises(CommitConflictError, match="its schema was changed"):
        compact()
    assert set(data_files(lake, name)) == files
    assert compact()


def data_files(lake: Any, name: str) -> list[str]:
    location = Path(Warehouse(lake.options).table(name).location)
    return [str(path) for path in location.rglob("*.parquet")]


def test_calls_of_two_threads_run_at_once(lake: Any, java: Sidecar, make_sale: Any) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    inside, answered = threading.Event(), threading.Event()

    def long(jvm: Any, table: Any) -> str:
        inside.set()
        assert answered.wait(DEADLINE_S)
        return str(table.name())

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(java.call, name, long)
        assert inside.wait(DEADLINE_S)
        first = java.pid
        assert java_rows(java, name).num_rows == 1
        answered.set()
        assert waiting.result(DEADLINE_S) == "sales"
    assert java.pid == first


def test_a_bucketed_append_table_is_compacted(lake: Any, java: Sidecar) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    name = lake.create("events", {"bucket": "1", "bucket-key": "id"}, schema, [])
    for identifier in range(7):
        lake.commit(name, identifier, pa.record_batch([[identifier]], schema=schema))
    assert java.compact(name, full=True)
    assert [bucket.files for bucket in java_buckets(java, name)] == [1]
    assert sorted(java_rows(java, name).column("id").to_pylist()) == list(range(7))


def test_a_time_between_full_compactions_does_not_make_each_one_full(
    lake: Any, java: Sidecar, make_sale: Any
) -> None:
    name = lake.sales(bucket="1", **{"compaction.optimization-interval": "1 h"})
    for identifier in range(2):
        lake.commit(name, identifier, make_sale(("China", 1, 0.5)))
    assert not java.compact(name)
    assert java.compact(name, full=True)


def test_an_empty_table_has_columns_and_no_rows(lake: Any, java: Sidecar) -> None:
    name = lake.sales()
    assert java_rows(java, name).column_names == ["country", "orders", "revenue"]
    assert java_rows(java, name).num_rows == 0
    assert java_buckets(java, name) == []


def test_python_holds_no_java_objects_between_calls(
    lake: Any, own: Sidecar, make_sale: Any
) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    counts = []
    for _ in range(3):
        java_rows(own, name)
        gc.collect()
        assert own._process is not None
        server = own._process._gateway.java_gateway_server
        counts.append(int(server.getGateway().getBindings().size()))
    assert counts[0] == counts[2]


def test_secrets_are_not_in_messages(tmp_path: Path) -> None:
    (tmp_path / "hushhush").touch()
    options = {
        "warehouse": f"{tmp_path}/hushhush/w",
        "s3.access-key": "reader",
        "s3.secret-key": "hushhush",
    }
    with Sidecar(options) as sidecar, pytest.raises(StreamhouseError) as raised:
        java_rows(sidecar, "shop.sales")
    assert "hushhush" not in str(raised.value)
    assert "***" in str(raised.value)


def test_a_jar_that_is_not_paimon_is_reported(
    lake: Any, own: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMHOUSE_PAIMON_JAR", __file__)
    with pytest.raises(StreamhouseError, match="does not hold Paimon's Java core"):
        java_rows(own, "shop.sales")
    assert own.pid is None


def test_a_jar_that_cannot_be_fetched_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMHOUSE_PAIMON_JAR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    proxy = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=9"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", proxy + " " + proxy.replace("http", "https"))
    with pytest.raises(StreamhouseError, match="set STREAMHOUSE_PAIMON_JAR to its path"):
        paimon_jar()
    assert not list(tmp_path.rglob("*.jar"))


def test_a_missing_table_is_reported(lake: Any, java: Sidecar) -> None:
    with pytest.raises(TableError, match=f"table '{lake.database}.nothing' does not exist"):
        java.compact(f"{lake.database}.nothing")
    with pytest.raises(TableError, match="database.table"):
        java_rows(java, "nothing")


def test_a_dead_jvm_is_replaced(lake: Any, own: Sidecar, make_sale: Any) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    assert own.pid is None
    java_rows(own, name)
    first = own.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)

    until(lambda: own.pid is None)
    assert java_rows(own, name).num_rows == 1
    assert own.pid not in (None, first)


def test_a_jvm_that_dies_during_a_call_is_an_error_and_replaced(
    lake: Any, own: Sidecar, make_sale: Any
) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    java_rows(own, name)
    threading.Timer(0.4, own.kill).start()
    with pytest.raises(StreamhouseError, match="ended; the next call starts another"):
        while True:
            java_rows(own, name)
            if own.pid is None:
                # The kill fell between two calls: as good.
                raise StreamhouseError("ended; the next call starts another")
    assert java_rows(own, name).num_rows == 1


def test_the_jvm_dies_with_its_killed_parent(lake: Any, make_sale: Any) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    code = (
        "import sys, time\n"
        "from streamhouse.paimon.java.sidecar import Sidecar\n"
        f"sidecar = Sidecar({lake.options!r})\n"
        f"sidecar.compact({name!r})\n"
        "print(sidecar.pid, flush=True)\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        jvm = psutil.Process(int(parent.stdout.readline()))
        assert jvm.is_running()
        parent.send_signal(signal.SIGKILL)
        parent.wait(DEADLINE_S)
    await_end(jvm.pid)


def test_a_call_prints_nothing_on_the_terminal(
    lake: Any, own: Sidecar, make_sale: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    name = lake.sales()
    lake.commit(name, 0, make_sale(("China", 1, 0.5)))
    own.compact(name, full=True)
    own.close()
    assert capfd.readouterr() == ("", "")
