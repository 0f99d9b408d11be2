"""Recomputes all results of DWS and APP in plain SQL, from ODS and from MySQL itself."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamhouse.demo.mariadb import MariaDB
from streamhouse.duckdb_database import open_database
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse

_MEMBERS = (
    "SELECT SUBSTRING(v_date, 1, 7) AS v_month, "
    "COUNT(DISTINCT CASE WHEN kind = 'new' THEN member_id END) AS new_members, "
    "COUNT(DISTINCT CASE WHEN kind = 'renew' THEN member_id END) AS renewed_members, "
    "SUM(amount) AS amount FROM o GROUP BY SUBSTRING(v_date, 1, 7)"
)
EXPECTED = {
    "dws_agent_score": (
        "SELECT v_date, agent_id, COUNT(*) AS orders, SUM({score}) AS score "
        "FROM o GROUP BY v_date, agent_id",
        "orders <> 0",
    ),
    "dws_member_month": (_MEMBERS, "new_members <> 0 OR renewed_members <> 0"),
    "app_sprint_board": (
        "SELECT agent_id, COUNT(*) AS orders, SUM({score}) AS score FROM o GROUP BY agent_id",
        "orders <> 0",
    ),
    "app_member_board": (_MEMBERS, "new_members <> 0 OR renewed_members <> 0"),
}
"""For each table the query over the orders `o` that computes it, and the condition for non-empty
rows: a group that has lost all its orders stays, with sums of zero."""
_SCORE = "CAST(amount * points AS DECIMAL(20, 4))"
_TRUTH = """
WITH newest AS (
  SELECT e.*, ROW_NUMBER() OVER (PARTITION BY id ORDER BY event_time DESC, seq DESC) AS n
  FROM member_event AS e
), o AS (
  SELECT w.*, p.points FROM newest AS w JOIN product AS p ON p.id = w.product_id
  WHERE n = 1 AND status <> 'cancelled'
)
"""
_FROM_ODS = """
WITH o AS (
  SELECT w.*, p.points FROM ods_member_order AS w JOIN dim_product AS p ON p.id = w.product_id
)
"""


@dataclass(frozen=True)
class TableComparison:
    """The comparison of a table with the same results computed elsewhere."""

    table: str
    against: str
    rows: int
    differing: int

    @property
    def equal(self) -> bool:
        return self.differing == 0


class ResultComparison:
    """Compares the warehouse with itself and with MySQL; exact only while nothing changes."""

    def __init__(self, warehouse: Warehouse, mariadb: MariaDB) -> None:
        self._warehouse = warehouse
        self._mariadb = mariadb

    def compare(self) -> list[TableComparison]:
        """Compare each table of `EXPECTED` with ODS and with MySQL."""
        compared = []
        for name, (query, non_empty) in EXPECTED.items():
            actual = self._rows(name, query, non_empty)
            sql = query.format(score=_SCORE)
            for against, rows in (("ods", self._ods(sql)), ("mysql", self._mysql(sql))):
                differing = len(actual ^ rows)
                compared.append(TableComparison(name, against, len(actual), differing))
        return compared

    def orders(self) -> tuple[int, int]:
        """How many orders ODS has, and how many it should have according to MySQL."""
        ods = self._read("ods_member_order", ["id"]).num_rows
        (row,) = self._mariadb.execute(f"{_TRUTH} SELECT COUNT(*) FROM o", database="membership")
        return ods, int(row[0])

    def _rows(self, name: str, query: str, non_empty: str) -> set[tuple[Any, ...]]:
        columns = [part.split()[-1] for part in _projections(query)]
        table = self._read(name, columns)
        with closing(open_database()) as db:
            db.register("t", table)
            projection = ", ".join(columns)
            return set(db.sql(f"SELECT {projection} FROM t WHERE {non_empty}").fetchall())

    def _ods(self, sql: str) -> set[tuple[Any, ...]]:
        with closing(open_database()) as db:
            for name in ("ods_member_order", "dim_product"):
                db.register(name, self._read(name))
            return set(db.sql(f"{_FROM_ODS} {sql}").fetchall())

    def _mysql(self, sql: str) -> set[tuple[Any, ...]]:
        return set(self._mariadb.execute(f"{_TRUTH} {sql}", database="membership"))

    def _read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        table = self._warehouse.table(f"membership.{name}")
        if table.latest_snapshot_id() is None:
            raise TableError(f"table membership.{name} is empty: the pipeline has not reached it")
        return pa.Table.from_batches(list(table.read(columns)))


def _projections(query: str) -> list[str]:
    """The column names of a query of `EXPECTED`."""
    import sqlglot

    parsed: Any = sqlglot.parse_one(query.format(score="1"), read="duckdb")
    return list(parsed.named_selects)
