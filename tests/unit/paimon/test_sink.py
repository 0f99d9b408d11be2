from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructType

from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.spark import sink, staging
from streamhouse.paimon.spark.datasource import PaimonDataSource
from streamhouse.paimon.spark.sink import PaimonStreamWriter, PaimonWriter, TaskMessage
from streamhouse.paimon.write.table_writer import query_tag

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
GONE = {0, 1, *range(2, 500, 50)}
Start = Callable[[Table], PaimonStreamWriter]


def columns(*names: str) -> StructType:
    """Only the names count: values are cast to the table's types."""
    schema = StructType()
    for name in names:
        schema = schema.add(name, StringType())
    return schema


@pytest.fixture
def start(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A writer as a newly started driver has it."""

    def made(table: Table) -> PaimonStreamWriter:
        monkeypatch.setattr(sink, "_cleaned", set())
        properties = {sink._QUERY_ID: USER, sink._BATCH_ID: "0"}
        context = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 0)
        monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: context))
        source = PaimonDataSource({"warehouse": lab.warehouse.path, "path": table.identifier})
        writer = source.streamWriter(columns("id", "v", "rowkind"), False)
        assert isinstance(writer, PaimonStreamWriter)
        return writer

    return made


def task(
    lab: Lab, writer: PaimonStreamWriter, rows: Sequence[tuple[Any, ...]], partition: int = 0
) -> TaskMessage:
    written = writer.write(iter([lab.batch(rows)]))
    assert isinstance(written, TaskMessage) and written.query == USER
    written.partition = partition
    return written


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("buckets", ["1", "3"])
def test_keyed_rows_are_written_in_the_order_of_partitions(
    lab: Lab, start: Start, inline: bool, buckets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "INLINE_BYTES", staging.INLINE_BYTES if inline else 0)
    table = lab.make("t", {"bucket": buckets})
    writer = start(table)
    late = task(lab, writer, [(1, 9, "+U"), (2, 2, "-D")], partition=1)
    early = task(lab, writer, [(1, 1, "+I"), (2, 2, "+I")], partition=0)
    staged = [name for name in os.listdir(table.location) if name.startswith(".staging")]
    assert len(staged) == (0 if inline else 1)
    writer.commit([late, None, early], 0)
    assert lab.content(table) == [(1, 9)]
    replay = [task(lab, writer, [(1, 1, "+I")])]
    writer.commit([*replay], 0)
    assert lab.content(table) == [(1, 9)]
    assert len(lab.data_files(table)) <= int(buckets)
    for name in staged:
        assert os.listdir(f"{table.location}/{name}") == []


def test_keys_are_written_in_order_whether_their_tasks_sent_or_staged_them(
    lab: Lab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lab.make("t", {"bucket": "4"})
    writer = start(table)
    tasks = []
    for part, limit in enumerate((0, staging.INLINE_BYTES, 0)):
        monkeypatch.setattr(staging, "INLINE_BYTES", limit)
        kept = [(key, part, "+U") for key in range(part, 500)]
        gone = [(key, part, "-D") for key in range(part, 500, 50)]
        tasks.append(task(lab, writer, kept + gone, part))
    assert [len(one.staged.paths) for one in tasks if one.staged] == [4, 0, 4]
    writer.commit([*reversed(tasks)], 0)
    expected = [(0, 0), (1, 1)] + [(key, 2) for key in range(2, 500)]
    assert lab.content(table) == [row for row in expected if row[0] not in GONE]
    assert len(lab.data_files(table)) == 4


def test_files_of_a_killed_run_are_deleted_before_the_next_commit(lab: Lab, start: Start) -> None:
    table = lab.make("t", keyed=False)
    writer = start(table)
    writer.commit([task(lab, writer, [(1, 1, "+I")])], 0)
    task(lab, writer, [(2, 2, "+I")])
    lab.prepare(table, 1, [(2, 2)])
    assert len(lab.data_files(table)) == 3
    writer = start(table)
    writer.commit([task(lab, writer, [(2, 2, "+I")])], 1)
    assert len(lab.data_files(table)) == 2
    assert all(name.startswith(query_tag(USER)) for name in lab.data_files(table))
    assert lab.content(table) == [(1, 1), (2, 2)]


def test_an_aborted_batch_leaves_no_file(lab: Lab, start: Start) -> None:
    table = lab.make("t", keyed=False)
    writer = start(table)
    writer.abort([task(lab, writer, [(1, 1, "+I")]), None], 0)
    assert lab.data_files(table) == []


def test_a_batch_whose_commit_succeeded_survives_an_abort(lab: Lab, start: Start) -> None:
    table = lab.make("t", keyed=False)
    writer = start(table)
    messages = [task(lab, writer, [(1, 1, "+I")])]
    writer.commit([*messages], 0)
    writer.abort([*messages], 0)
    assert lab.content(table) == [(1, 1)]


def test_complete_mode_is_refused(lab: Lab) -> None:
    lab.make("t")
    source = PaimonDataSource({"warehouse": lab.warehouse.path, "path": "db.t"})
    with pytest.raises(OptionError, match="outputMode 'complete' is not supported"):
        source.streamWriter(columns("id"), True)
    with pytest.raises(TableError, match="did you mean 'id'"):
        source.streamWriter(columns("idd"), False)


def test_a_stream_holds_what_a_replay_is_recognised_by(
    lab: Lab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_HOLD_S", 0.0)
    table = lab.make("t", keyed=False)
    consumers, name = Consumers(table), query_consumer(USER)
    writer = start(table)
    for number in range(3):
        lab.write(table, number, [(9, 9)], user="somebody")
        before = table.latest_snapshot_id() or 0
        writer.commit([task(lab, writer, [(number, 1)])], number)
        held = consumers.get(name)
        assert held is not None and held.next_snapshot == before
    # A replay commits nothing, and so moves nothing.
    writer = start(table)
    lab.write(table, 3, [(9, 9)], user="somebody")
    writer.commit([task(lab, writer, [(2, 1)])], 2)
    held = consumers.get(name)
    assert held is not None and held.next_snapshot == before
    assert sorted(row[0] for row in lab.content(table) if row[1] == 1) == [0, 1, 2]


def test_concurrent_batch_writes_give_each_key_one_row(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look a new key up in the index of dynamic buckets before either has committed."""
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "2"}
    table = lab.make("t", options)
    source = PaimonDataSource({"warehouse": lab.warehouse.path, "path": table.identifier})
    writer = source.writer(columns("id", "v", "rowkind"), False)
    assert isinstance(writer, PaimonWriter)
    rows = [writer.write(iter([lab.batch([(key, 1) for key in range(10)])]))]
    collected, waiting = PaimonWriter._commit_messages, [0]

    def concurrent_commit(self: PaimonWriter, *given: Any) -> list[bytes]:
        messages = collected(self, *given)
        if waiting:
            lab.write(table, waiting.pop(), [(key, 2) for key in reversed(range(10))])
        return messages

    monkeypatch.setattr(PaimonWriter, "_commit_messages", concurrent_commit)
    writer.commit([*rows])
    assert lab.content(table) == [(key, 1) for key in range(10)]
