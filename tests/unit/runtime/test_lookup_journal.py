"""The journal of rows found on servers: exact values, replays, and removal."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.single_stream import analyze_stream

import streamhouse
from streamhouse.connectors.specs import SinkSpec
from streamhouse.errors import StreamhouseError
from streamhouse.lookup.dimension import ServerRows
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.query_spec import LOOKUP_JOURNAL, QuerySpec
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state import lineage as lineage_module
from streamhouse.runtime.state import lookup_journal
from streamhouse.runtime.state.lookup_journal import LookupJournal, create_table
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable, Insert

TYPES = """id INT, big DECIMAL(38, 18), flag BOOLEAN, f FLOAT, x DOUBLE, word STRING, raw BYTES,
  day_ DATE, at_ TIMESTAMP(3), micro TIMESTAMP(6), instant TIMESTAMP_LTZ(6), clock TIME"""
TABLES = f"CREATE TABLE orders (id INT, p AS PROCTIME()); CREATE TABLE target ({TYPES});"
DIMENSION = f"""CREATE TEMPORARY TABLE d ({TYPES}) WITH ('connector' = 'jdbc',
  'table-name' = 'd', 'url' = 'jdbc:mysql://db.example/shop', 'username' = 'u');"""
QUERY = """INSERT INTO target SELECT d.*
  FROM orders AS o LEFT JOIN d FOR SYSTEM_TIME AS OF o.p ON o.id = d.id"""
TIME = datetime.datetime(2026, 3, 29, 1, 30, 59, 123456)
ROW: dict[str, Any] = {
    "id": -1, "big": Decimal("12345678901234567890.123456789012345678"), "flag": True, "f": 0.5,
    "x": 0.1 + 0.2, "word": "a \\ \"b\" 'c' %s ☃\n", "raw": bytes(range(256)),
    "day_": datetime.date(1582, 10, 4), "at_": TIME.replace(microsecond=123000), "micro": TIME,
    "instant": TIME.replace(tzinfo=datetime.UTC), "clock": datetime.time(23, 59, 59),
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> QuerySpec:
    streamhouse.execute(str(tmp_path), TABLES)
    session = Session({"warehouse": str(tmp_path)})
    table, insert = parse_script(DIMENSION + QUERY)
    assert isinstance(table, CreateTable) and isinstance(insert, Insert)
    session.tables.create(table)
    query = analyze_stream(insert.query, session, session.table(insert.target))
    target = session.address(session.table(insert.target))
    journal = target.auxiliary_table(LOOKUP_JOURNAL)
    create_table(journal)
    return QuerySpec(query, session.source(query), (journal,), target, "q1", 2)


def taken(spec: QuerySpec, *rows: dict[str, Any]) -> dict[str, ServerRows]:
    (lookup,) = spec.query.lookups
    schema = lookup_journal._schema(lookup)
    assert set(schema.names) == set(ROW)
    return {lookup.relation: ServerRows(5, pa.Table.from_pylist(list(rows), schema=schema))}


def commit(spec: QuerySpec, batch: int, rows: list[pa.Table]) -> None:
    assert spec.lookup_journal is not None
    where = spec.lookup_journal
    writer = TableWriter(where.warehouse, where.identifier, spec.query_id)
    for table in rows:
        for one in table.to_batches():
            writer.write(one)
    TableCommitter(where.warehouse, where.identifier, spec.query_id).commit(
        batch, writer.prepare(batch)
    )
    writer.close()


def test_all_values_come_back_as_they_were(spec: QuerySpec) -> None:
    journal = LookupJournal(spec)
    nothing = dict.fromkeys(ROW)
    found = taken(spec, ROW, nothing, ROW | {"x": float("inf"), "f": 0.1, "word": "", "raw": b""})
    assert journal.recorded(0) is None
    commit(spec, 0, journal.rows(0, found))
    again = journal.recorded(0)
    assert again == journal.past(0) == {"dim_0": found["dim_0"].rows}
    assert journal.recorded(1) is None
    assert LookupJournal(replace(spec, query_id="q2")).recorded(0) is None
    journal.close()


def test_a_batch_that_found_nothing_has_looked(spec: QuerySpec) -> None:
    journal = LookupJournal(spec)
    commit(spec, 3, journal.rows(3, taken(spec)))
    again = journal.recorded(3)
    assert again is not None and again["dim_0"].num_rows == 0
    assert journal.first_kept() == 3


def test_many_rows_are_stored_in_pieces(spec: QuerySpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_journal, "PIECE_ROWS", 2)
    journal = LookupJournal(spec)
    found = taken(spec, *(ROW | {"id": number} for number in range(5)))
    commit(spec, 0, journal.rows(0, found))
    assert journal.recorded(0) == {"dim_0": found["dim_0"].rows}


def test_other_columns_than_the_looked_up_ones_are_errors(spec: QuerySpec) -> None:
    journal = LookupJournal(spec)
    commit(spec, 0, journal.rows(0, taken(spec, ROW)))
    (lookup,) = spec.query.lookups
    other = replace(lookup, columns=(*lookup.columns, "more"))
    changed = replace(spec, query=replace(spec.query, lookups=(other,)))
    with pytest.raises(StreamhouseError, match="batch 0 of table default.target was interrupted"):
        LookupJournal(changed).recorded(0)


def test_rows_that_no_audit_needs_are_removed(
    spec: QuerySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = LookupJournal(spec)
    everything = pa.concat_tables(
        table for number in range(250) for table in journal.rows(number, taken(spec, ROW))
    )
    commit(spec, 249, [everything])
    monkeypatch.setattr(lineage_module, "EVERY_S", 0.0)
    monkeypatch.setattr(lineage_module, "dead_before", lambda target, user: None)
    assert len(journal.rows(250, taken(spec))) == 1
    monkeypatch.setattr(lineage_module, "dead_before", lambda target, user: 240)
    commit(spec, 250, journal.rows(250, taken(spec)))
    # Spark may have the last hundred run again.
    assert journal.first_kept() == 150
    assert journal.past(150)["dim_0"].num_rows == 1


def test_rows_of_a_sink_without_audits_are_removed_with_their_batches(
    spec: QuerySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = SinkSpec("blackhole", {}, spec.target.planned().columns)
    # The name of a sink is not that of a table.
    target = replace(spec.target, identifier="default.target$blackhole", schema_id=None)
    spec = replace(spec, sink=sink, target=target, lookups=(target.auxiliary_table("looked_up"),))
    assert spec.lookup_journal is not None
    create_table(spec.lookup_journal)
    journal = LookupJournal(spec)
    everything = pa.concat_tables(
        table for number in range(250) for table in journal.rows(number, taken(spec, ROW))
    )
    commit(spec, 249, [everything])
    monkeypatch.setattr(lineage_module, "EVERY_S", 0.0)
    commit(spec, 250, journal.rows(250, taken(spec)))
    assert journal.first_kept() == 150
