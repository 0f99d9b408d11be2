"""Queries whose views cannot be recomputed as one batch, and what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sql.conftest import TABLES, Catalog

from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.audit.recorded_batches import Batch, RecordedBatches
from streamhouse.runtime.audit.repair import check_query
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.recorded_query import definition_json

ADDRESS = TableAddress({"warehouse": "nowhere"}, "shop.view")
WAY_ROUND = r"INSERT OVERWRITE … SELECT after SET 'execution.runtime-mode' = 'batch'"


def check(text: str, connector: str = "paimon", **end: Any) -> None:
    catalog = Catalog()
    catalog.add(TABLES)
    query = catalog.stream(text)
    address = TableAddress(ADDRESS.warehouse, "shop.orders") if connector == "paimon" else None
    spec = QuerySpec(
        query=query,
        source=SourceSpec(connector, {}, query.source.columns, address),
        lookups=(),
        target=ADDRESS,
        query_id="q",
        parallelism=1,
    )
    last = Batch("q", 3, "f", {}, {"source": {}, "dims": {}, "now": 1, **end})
    check_query(RecordedBatches(ADDRESS, (last,), {"f": definition_json(spec)}), last)


def test_a_query_of_the_batchs_time_is_refused() -> None:
    for instant in ("CURRENT_TIMESTAMP", "PROCTIME()", "NOW()", "CURRENT_DATE", "o.proc_time"):
        with pytest.raises(TableError, match=f"shop.view.*time of the batch.*{WAY_ROUND}"):
            check(f"SELECT o.order_id, {instant} AS at_ FROM orders AS o")
    check("SELECT order_id, order_time FROM orders")


def test_past_states_of_mysql_are_refused() -> None:
    with pytest.raises(TableError, match=f"follows a MySQL table.*{WAY_ROUND}"):
        check("SELECT id, country FROM customers_cdc", "mysql-cdc")
    with pytest.raises(TableError, match=f"looks up a table in MySQL.*{WAY_ROUND}"):
        check("SELECT order_id FROM orders", looked_up=True)
