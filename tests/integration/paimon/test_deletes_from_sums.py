"""DELETE and MERGE on tables that merge rows: later rows start anew, in both cores, for good."""

from __future__ import annotations

import multiprocessing
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.java_reads import java_buckets, java_rows
from tests.waiting import DEADLINE_S

import streamhouse
from streamhouse.lookup.storage.changed_keys import keys_changed_between, version_of
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.purge import Purge
from streamhouse.paimon.write import commit_retries
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter

Row = tuple[str, int | None, float | None]


class Sums:
    """Tables of sums in one warehouse, with one Java core beside."""

    def __init__(self, folder: Path, java: Sidecar) -> None:
        self.warehouse = Warehouse(str(folder))
        self.java = java

    def __call__(self, sql: str) -> streamhouse.Changed:
        return streamhouse.execute(self.warehouse, sql, self.java)

    def rows(self, name: str) -> list[Row]:
        """The rows as both cores read them; without those that are there to make a file large."""
        ours = [r for b in self.warehouse.table(f"default.{name}").read() for r in b.to_pylist()]
        java = java_rows(self.java, f"default.{name}").to_pylist()
        assert sorted(ours, key=str) == sorted(java, key=str)
        found: list[Row] = [(r["country"], r["orders"], r["revenue"]) for r in ours]
        return sorted(row for row in found if not row[0].startswith("_"))

    def stream(self, name: str, *rows: Row) -> None:
        """What a continuous query commits, before anybody compacts it."""
        options, table = self.warehouse.options, f"default.{name}"
        writer = TableWriter(options, table, "0f8fad5b-d9cb-469f-a165-70867728950e")
        names = ("country", "orders", "revenue")
        records = [dict(zip(names, row, strict=True)) for row in rows]
        writer.write(pa.RecordBatch.from_pylist(records))
        messages = writer.prepare(0)
        writer.close()
        TableCommitter(options, table, "0f8fad5b-d9cb-469f-a165-70867728950e").commit(0, messages)

    def changelog(self, name: str, after: int) -> list[tuple[object, ...]]:
        """The changes after a snapshot: kind, then columns."""
        table = self.warehouse.table(f"default.{name}")
        latest = table.latest_snapshot_id() or 0
        read = table.read(splits=table.changes(after, latest, "changelog"), row_kind=True)
        return [(r.pop("rowkind"), *r.values()) for b in read for r in b.to_pylist()]


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sums]:
    folder = tmp_path_factory.mktemp("sums")
    with Sidecar({"warehouse": str(folder)}) as java:
        yield Sums(folder, java)


@pytest.mark.parametrize(
    ("producer", "removes"),
    [
        ("none", "true"),
        ("input", "true"),
        ("full-compaction", "true"),
        ("lookup", "true"),
        ("input", "false"),
        ("full-compaction", "false"),
    ],
)
def test_a_deleted_row_starts_again(sums: Sums, producer: str, removes: str) -> None:
    name = f"t_{producer.replace('-', '_')}_{removes}"
    sums(f"""
        CREATE TABLE {name} (country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT,
          revenue DOUBLE) WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
          'changelog-producer' = '{producer}', 'aggregation.remove-record-on-delete' = '{removes}',
          'fields.orders.aggregate-function' = 'sum', 'fields.revenue.aggregate-function' = 'sum');
        INSERT INTO {name} VALUES ('France', 3, 13), ('Peru', 1, 1);""")
    fill(sums, name)
    sums.java.compact(f"default.{name}", full=True)
    before = sums.warehouse.table(f"default.{name}").latest_snapshot_id() or 0
    done = sums(f"""
        MERGE INTO {name} AS v USING (VALUES ('Peru'), ('North Pole')) AS c (country)
        ON v.country = c.country
        WHEN NOT MATCHED THEN INSERT VALUES (c.country, 0, 0)
        WHEN NOT MATCHED BY SOURCE AND v.country = 'France' THEN DELETE;""")
    assert (done.inserted, done.updated, done.deleted) == (1, 0, 1)
    assert sums.rows(name) == [("North Pole", 0, 0.0), ("Peru", 1, 1.0)]
    changes = sums.changelog(name, before)
    if producer != "none":
        retracted = [row for row in changes if row[0] in ("-U", "-D") and row[1] == "France"]
        assert (retracted[0][2], retracted[0][3]) == (3, 13.0)
        assert retracted[-1][0] == "-D"
        assert ("+I", "North Pole", 0, 0.0) in changes
    sums(f"INSERT INTO {name} VALUES ('France', 1, 5)")
    after = [("France", 1, 5.0), ("North Pole", 0, 0.0), ("Peru", 1, 1.0)]
    assert sums.rows(name) == after
    # Enough small files for a compaction that leaves the large one alone, where it may.
    for _ in range(5):
        sums(f"INSERT INTO {name} VALUES ('North Pole', 1, 1)")
    sums.java.compact(f"default.{name}")
    assert (java_buckets(sums.java, f"default.{name}")[0].files == 1) == (removes == "true")
    after[1] = ("North Pole", 5, 5.0)
    assert sums.rows(name) == after
    sums.java.compact(f"default.{name}", full=True)
    assert sums.rows(name) == after


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("split", [False, True])
def test_readers_see_that_a_row_was_deleted(sums: Sums, producer: str, split: bool) -> None:
    """Without the option, the row is zeros briefly: between the two commits of a DELETE."""
    name = f"followed_{producer}_{split}"
    sums(f"""
        CREATE TABLE {name} (country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT,
          revenue DOUBLE) WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
          'changelog-producer' = '{producer}',
          'fields.orders.aggregate-function' = 'sum', 'fields.revenue.aggregate-function' = 'sum');
        INSERT INTO {name} VALUES ('France', 3, 13), ('Peru', 1, 1);""")
    table = sums.warehouse.table(f"default.{name}")
    source = PaimonSource(sums.warehouse.options, table.identifier)
    start = source.latest_offset({})
    before = version_of(table, table.latest_snapshot_id())
    sums(f"DELETE FROM {name} WHERE country = 'France'")
    end = source.latest_offset(start)
    latest = table.latest_snapshot_id() or 0
    ends = [{**end, "snapshot": latest - 1}, end] if split else [end]
    there = {"France", "Peru"}
    for offset in ends:
        for partition in source.partitions(start, offset):
            for row in (row for batch in source.read(partition) for row in batch.to_pylist()):
                (there.discard if row["rowkind"] in ("-U", "-D") else there.add)(row["country"])
        start = offset
    assert there == {"Peru"}
    assert source.latest_offset(end) == end
    source.close()
    keys = keys_changed_between(before, version_of(table, latest), ["country"])
    assert keys is not None and "France" in keys.column(0).to_pylist()
    assert (
        keys_changed_between(version_of(table, latest - 1), version_of(table, latest), ["country"])
        is None
    )


def fill(sums: Sums, name: str) -> None:
    """Rows enough that a file of theirs is no part of a small compaction."""
    digits = "(VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))"
    crossed = " CROSS JOIN ".join(f"{digits} AS d{n} (v)" for n in range(4))
    number = " + ".join(f"d{n}.v * {10**n}" for n in range(4))
    sums(f"""INSERT INTO {name} SELECT '_' || MD5(CAST({number} AS STRING)), 1, 0.5
             FROM {crossed}""")


def test_functions_that_take_nothing_back_need_the_option(sums: Sums) -> None:
    sums("""
        CREATE TABLE peaks (country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT NOT NULL,
          revenue DOUBLE) WITH ('bucket' = '2', 'merge-engine' = 'aggregation',
          'fields.orders.aggregate-function' = 'max', 'changelog-producer' = 'input',
          'fields.revenue.aggregate-function' = 'last_value',
          'aggregation.remove-record-on-delete' = 'true');
        INSERT INTO peaks VALUES ('Chile', 9, 9), ('Peru', 9, 9);
        DELETE FROM peaks WHERE country = 'Chile';
        INSERT INTO peaks VALUES ('Chile', 2, 3);""")
    assert sums.rows("peaks") == [("Chile", 2, 3.0), ("Peru", 9, 9.0)]


def test_partial_update_starts_again_too(sums: Sums) -> None:
    sums("""
        CREATE TABLE parts (country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT, revenue DOUBLE)
          WITH ('bucket' = '1', 'merge-engine' = 'partial-update',
                'partial-update.remove-record-on-delete' = 'true');
        INSERT INTO parts VALUES ('Chile', 9, 9), ('Peru', 9, 9);
        DELETE FROM parts WHERE country = 'Chile';
        INSERT INTO parts (country, orders) VALUES ('Chile', 2);""")
    assert sums.rows("parts") == [("Chile", 2, None), ("Peru", 9, 9.0)]
    sums.java.compact("default.parts", full=True)
    assert sums.rows("parts") == [("Chile", 2, None), ("Peru", 9, 9.0)]


def test_rows_that_wait_for_a_compaction_are_changed_too(sums: Sums) -> None:
    """With deletion vectors new rows are hidden until they are compacted."""
    sums("""
        CREATE TABLE hidden (country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT,
          revenue DOUBLE) WITH ('bucket' = '1', 'deletion-vectors.enabled' = 'true');""")
    sums.stream("hidden", ("Chile", 9, 9.0), ("Peru", 9, 9.0))
    assert sums.rows("hidden") == []
    done = sums("""
        MERGE INTO hidden AS h USING (VALUES ('Peru'), ('Fiji')) AS c (country)
        ON h.country = c.country
        WHEN MATCHED THEN UPDATE SET orders = orders + 1
        WHEN NOT MATCHED THEN INSERT VALUES (c.country, 0, 0)
        WHEN NOT MATCHED BY SOURCE THEN DELETE""")
    assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
    assert sums.rows("hidden") == [("Fiji", 0, 0.0), ("Peru", 10, 9.0)]


def _delete_and_die(folder: str, statement: str) -> None:
    """A process that dies between the two commits of a DELETE."""
    Purge.run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    streamhouse.execute(folder, statement)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("removes", ["false", "true"])
def test_a_delete_that_was_cut_off_is_finished_by_the_next_statement(
    sums: Sums, removes: str, compacted: bool
) -> None:
    name = f"cut_{removes}_{compacted}"
    sums(
        f"CREATE TABLE {name} (country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT, "
        "revenue DOUBLE) WITH ('bucket' = '1', 'merge-engine' = 'aggregation', "
        "'fields.orders.aggregate-function' = 'sum', 'fields.revenue.aggregate-function' = 'sum', "
        f"'aggregation.remove-record-on-delete' = '{removes}');"
        f"INSERT INTO {name} VALUES ('France', 2, 2.0), ('Peru', 1, 1.0), ('Mali', 3, 3.0), "
        "('North Pole', 0, 0)"
    )
    child = multiprocessing.get_context("spawn").Process(
        target=_delete_and_die,
        args=(
            str(sums.warehouse.options["warehouse"]),
            f"DELETE FROM {name} WHERE country IN ('France', 'Mali')",
        ),
    )
    child.start()
    child.join(DEADLINE_S)
    assert child.exitcode == -signal.SIGKILL
    if removes == "false":
        assert ("France", 0, 0.0) in sums.rows(name)
        # An order that came meanwhile began from nothing, and stays.
        sums(f"INSERT INTO {name} VALUES ('Mali', 1, 5.0)")
    if compacted:
        sums.java.compact(f"default.{name}", full=True)
    sums(f"DELETE FROM {name} WHERE country = 'Peru'")
    left: list[Row] = [("Mali", 1, 5.0)] if removes == "false" else []
    assert sums.rows(name) == [*left, ("North Pole", 0, 0.0)]
    sums(f"INSERT INTO {name} VALUES ('France', 1, 7.0), ('Peru', 1, 7.0)")
    sums.java.compact(f"default.{name}", full=True)
    assert sums.rows(name) == [
        ("France", 1, 7.0), *left, ("North Pole", 0, 0.0), ("Peru", 1, 7.0)
    ]  # fmt: skip
    assert commit_retries.dead_attempts(sums.warehouse.table(f"default.{name}")) == []


@pytest.mark.parametrize("engine", ["aggregation", "partial-update"])
@pytest.mark.parametrize("keep", [False, True])
def test_a_compaction_of_new_files_alone_forgets_no_removal(
    sums: Sums, engine: str, keep: bool
) -> None:
    """Without the record itself, `-D` and the row after it are merged into that row."""
    name = f"apart_{engine.replace('-', '_')}_{keep}"
    sums(
        f"CREATE TABLE {name} (country STRING PRIMARY KEY NOT ENFORCED, orders BIGINT, "
        f"revenue DOUBLE) WITH ('bucket' = '1', 'merge-engine' = '{engine}', "
        f"'{engine}.remove-record-on-delete' = 'true', 'num-sorted-run.compaction-trigger' = '2'"
        + (", 'fields.orders.aggregate-function' = 'sum'" * (engine == "aggregation"))
        + ")"
    )
    # The removed row's values must not show again, be it in the next one's nulls.
    many = ", ".join(f"('_{number}', {number}, 1.5)" for number in range(5000))
    sums(f"INSERT INTO {name} VALUES ('Peru', 5, 2.5), {many}")
    table = f"default.{name}"
    sums.java.compact(table, full=True)
    for kind, orders, revenue in (("-D", 5, 2.5), ("+I", 7, None), ("+I", 7, None)):
        _commit(sums, table, kind, ("Peru", orders, revenue))
    assert sums.rows(name) == [("Peru", 14 if engine == "aggregation" else 7, None)]
    assert sums.java.compact(table, keep=keep)
    _commit(sums, table, "+I", ("Chad", 1, 1.0))
    expected = 14 if engine == "aggregation" else 7
    assert sums.rows(name) == [("Chad", 1, 1.0), ("Peru", expected, None)]


def _commit(sums: Sums, table: str, kind: str, row: Row) -> None:
    user = str(uuid.uuid4())
    writer = TableWriter(sums.warehouse.options, table, user)
    names = ("country", "orders", "revenue", "rowkind")
    schema = pa.schema(
        [("country", pa.string()), ("orders", pa.int64()), ("revenue", pa.float64()),
         ("rowkind", pa.string())]
    )  # fmt: skip
    record = dict(zip(names, (*row, kind), strict=True))
    writer.write(pa.RecordBatch.from_pylist([record], schema=schema))
    messages = writer.prepare(0)
    writer.close()
    TableCommitter(sums.warehouse.options, table, user).commit(0, messages)
