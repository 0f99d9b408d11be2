"""One query continues from the consumer of another; Paimon's Java core reads and moves it."""

from __future__ import annotations

import pytest
from tests.integration.runtime.conftest import Shop

import streamhouse
from streamhouse import procedures
from streamhouse.paimon.changelog.offset_origin import bare
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, price BIGINT)
  WITH ('bucket' = '1', 'changelog-producer' = 'input');
CREATE TABLE IF NOT EXISTS total (shop INT PRIMARY KEY NOT ENFORCED, price BIGINT)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.price.aggregate-function' = 'sum');
"""
QUERY = """{tables} SET 'pipeline.name' = '{name}';
INSERT INTO total SELECT 1, price FROM orders
  /*+ OPTIONS('consumer-id' = 'board', 'consumer.mode' = 'exactly-once') */;"""


def test_another_query_continues_where_the_first_stopped(shop: Shop) -> None:
    options = shop.warehouse.options
    streamhouse.execute(options, f"{TABLES} INSERT INTO orders VALUES (1, 10), (2, 20)")
    shop.settle_here(QUERY.format(tables=TABLES, name="one"))
    assert shop.rows("total") == [{"shop": 1, "price": 30}]
    streamhouse.execute(options, "INSERT INTO orders VALUES (3, 300)")
    streamhouse.execute(options, "UPDATE orders SET price = 11 WHERE id = 1")
    shop.settle_here(QUERY.format(tables=TABLES, name="two"))
    assert shop.rows("total") == [{"shop": 1, "price": 331}]
    proved = audit(options, "default.total")
    assert proved.equal and proved.from_snapshot == 0
    with procedures.Context(options) as context:
        reset = procedures.reset_consumer(context, "default.orders", "board", 2).to_pylist()
        assert reset == [{"consumer_id": "board", "next_snapshot_id": 2, "result": "set"}]
        source = PaimonSource(options, "default.orders", options={"consumer-id": "board"})
        assert bare(source.latest_offset({})) == {"snapshot": 1, "resumed": True}
        source.store_progress({"snapshot": 3})
        gone = procedures.clear_consumers(context, "default.orders", "board").to_pylist()
    # As Java reads it: snapshots 1 to 3 have been taken in.
    assert gone == [{"consumer_id": "board", "next_snapshot_id": 4, "result": "removed"}]
