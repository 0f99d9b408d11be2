"""Recomputes all results of DWS and APP in plain SQL, from ODS and from MySQL itself."""

from contextlib import closing
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


def compare(warehouse: Warehouse, mariadb: MariaDB) -> dict[str, bool]:
    """Whether each table of `EXPECTED` equals the results from ODS and those from MySQL.

    The keys name the table and what it was compared with. Exact only while nothing changes.
    """
    equal = {}
    with closing(open_database()) as db:
        for name in ("ods_member_order", "dim_product", *EXPECTED):
            db.register(name, _read(warehouse, name))
        for name, (query, non_empty) in EXPECTED.items():
            sql = query.format(score=_SCORE)
            ods, mysql = db.sql(f"{_FROM_ODS} {sql}"), _of_mysql(mariadb, sql)
            columns = ", ".join(ods.columns)
            actual = db.sql(f"SELECT {columns} FROM {name} WHERE {non_empty}").fetchall()
            equal[f"{name} against ods"] = set(actual) == set(ods.fetchall())
            equal[f"{name} against mysql"] = set(actual) == set(mysql)
    return equal


def count_orders(warehouse: Warehouse, mariadb: MariaDB) -> tuple[int, int]:
    """How many orders ODS has, and how many it should have according to MySQL."""
    ((count,),) = _of_mysql(mariadb, "SELECT COUNT(*) FROM o")
    return _read(warehouse, "ods_member_order").num_rows, int(count)


def _of_mysql(mariadb: MariaDB, sql: str) -> list[tuple[Any, ...]]:
    return mariadb.execute(f"{_TRUTH} {sql}", database="membership")


def _read(warehouse: Warehouse, name: str) -> pa.Table:
    table = warehouse.table(f"membership.{name}")
    if table.latest_snapshot_id() is None:
        raise TableError(f"table membership.{name} is empty: the pipeline has not reached it")
    return pa.Table.from_batches(list(table.read()))
