"""Rows of an append table that wait for a lookup: each on its own, in any order."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.runtime.batch_query import BatchQuery
from tests.unit.sql.conftest import Catalog

from streamhouse.connectors.specs import SourceSpec
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import pending_rows

TABLES = """
CREATE TABLE src (id INT, ref INT);
CREATE TABLE dim (id INT PRIMARY KEY NOT ENFORCED, name STRING);
CREATE TABLE out_ (id INT, name STRING);
"""
SQL = """
INSERT INTO out_ SELECT /*+ LOOKUP('table'='d', 'retry-predicate'='lookup_miss',
  'retry-strategy'='fixed_delay', 'fixed-delay'='1ms', 'max-attempts'='{attempts}') */
  s.id, d.name FROM src AS s {join} JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.ref = d.id
"""
INT = pa.int32()
SRC = pa.schema([("id", INT), ("ref", INT)])
DIM = pa.schema([("id", INT), ("name", pa.string())])
_DEADLINE_S = 60.0


class Query(BatchQuery):
    """One query over an append table, run batch by batch in this process."""

    def __init__(self, folder: Path, join: str, attempts: int) -> None:
        super().__init__(folder)
        catalog = Catalog()
        catalog.add(TABLES)
        for name, table in catalog.tables.items():
            options = {"bucket": "1" if table.primary_key else "-1"}
            self.warehouse.create_table(
                "default", name, table.columns, table.primary_key, (), options
            )
        query = catalog.stream(SQL.format(join=join, attempts=attempts))
        source = SourceSpec("paimon", {}, query.source.columns, self._address("src"))
        target = self._address("out_")
        waiting, lost = target.auxiliary_table("pending"), target.auxiliary_table("unmatched")
        pending_rows.create_tables(waiting, lost, query.source.columns, changelog=False)
        self._start(QuerySpec(query, source, (self._address("dim"),), target, "q", 2))
        assert not self.spec.waits_in_order

    def put(self, *rows: tuple[int, int]) -> None:
        self._write("src", [{"id": id_, "ref": ref} for id_, ref in rows], SRC)

    def name(self, ref: int) -> None:
        self._write("dim", [{"id": ref, "name": f"name {ref}"}], DIM)

    def retry(self, least: int) -> None:
        """Run batches until so few rows wait."""
        deadline = time.monotonic() + _DEADLINE_S
        while len(self.pending()) > least:
            assert time.monotonic() < deadline
            self.batch()

    def pending(self) -> list[tuple[int, int]]:
        rows = self.rows("out___pending")
        return sorted((row["id"], row["_attempts"]) for row in rows)

    def found(self) -> list[tuple[int, str | None]]:
        return sorted((row["id"], row["name"]) for row in self.rows("out_"))


@pytest.mark.parametrize("join", ["", "LEFT"])
def test_rows_wait_for_their_own_match_alone(tmp_path: Path, join: str) -> None:
    query = Query(tmp_path, join, 1_000_000)
    query.name(1)
    query.put((1, 1), (2, 0), (3, 1), (4, 2), (5, 0))
    query.batch()
    assert query.found() == [(1, "name 1"), (3, "name 1")]
    assert query.pending() == [(2, 0), (4, 0), (5, 0)]
    assert query.reports[-1]["missed"] == 3
    query.name(0)
    query.retry(1)
    assert query.found() == [
        (1, "name 1"), (2, "name 0"), (3, "name 1"), (5, "name 0")
    ]  # fmt: skip
    ((last, attempts),) = query.pending()
    assert (last, attempts > 0) == (4, True)


@pytest.mark.parametrize("join", ["", "LEFT"])
def test_rows_without_attempts_left_are_unmatched_or_have_nulls(tmp_path: Path, join: str) -> None:
    query = Query(tmp_path, join, 2)
    query.name(1)
    query.put((1, 1), (2, 0))
    query.batch()
    query.retry(0)
    unmatched = [(row["id"], row["_attempts"]) for row in query.rows("out___unmatched")]
    if join:
        assert (query.found(), unmatched) == ([(1, "name 1"), (2, None)], [])
    else:
        assert (query.found(), unmatched) == ([(1, "name 1")], [(2, 2)])
