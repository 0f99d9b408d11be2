"""What lookups keep, as `streamhouse state` lists it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.local_pipeline import LocalPipeline
from tests.unit.runtime.test_reporter import OneQuery

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.monitoring.reporter import Reporter
from streamhouse.runtime.monitoring.status import Statuses
from streamhouse.runtime.views.kept_rows import kept_rows
from streamhouse.state.store import LOOKUPS

_TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT, customer INT);
CREATE TABLE IF NOT EXISTS customers (
  id INT PRIMARY KEY NOT ENFORCED, country STRING
) WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS named (id INT PRIMARY KEY NOT ENFORCED, country STRING);
"""
_INSERT = """
INSERT INTO named SELECT /*+ LOOKUP('table'='c', 'strategy'='{strategy}') */ o.id, c.country
FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.customer = c.id;
"""


@pytest.mark.parametrize("strategy", ["full", "partial"])
def test_rows_bytes_and_files_of_lookups_are_listed(tmp_path: Path, strategy: str) -> None:
    shop = LocalPipeline(tmp_path)
    tables = _TABLES
    values = ", ".join(f"({n}, 'country {n}')" for n in range(30))
    shop.do(f"{tables} INSERT INTO customers VALUES {values};")
    shop.do(f"{tables} INSERT INTO orders VALUES (1, 7), (2, 8), (3, 100)")
    shop.run(f"{tables} {_INSERT.format(strategy=strategy)}")
    (found,) = kept_rows(shop.options["warehouse"], None)
    (kept,) = found["kept"]
    assert found | {"kept": (), "bytes": 0, "files": 0, "batch": 0} == {
        "view": "default.named",
        "batch": 0,
        "snapshots": {"default.customers": 1},
        "strategy": "lookup",
        "bytes": 0,
        "files": 0,
        "kept": (),
    }
    assert kept["operator"] == "lookup of default.customers by id"
    assert kept["rows"] == 30 and kept["bytes"] == found["bytes"] > 30
    assert kept["files"] == found["files"] == 1
    assert kept_rows(shop.options["warehouse"], None, "default.other") == []
    (folder,) = tmp_path.rglob(LOOKUPS)
    query = OneQuery(TableAddress(shop.options, "default.named"), checkpoint=folder.parent)
    Reporter("").begin([query], tuple)
    status = Statuses(shop.options).read("p")
    assert status is not None
    assert status.queries[0].state_bytes == kept["bytes"] and not status.queries[0].is_view
