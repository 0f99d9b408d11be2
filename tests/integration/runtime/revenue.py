"""The revenue view over generated orders, and the invariants that must hold after any failure."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.integration.runtime.conftest import Shop

from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.state.checkpoint import Checkpoint

COUNTRIES = ("Norway", "Chile", "Norway", "Kenya", "Peru", "Chile", "Japan", "Japan")
TABLES = """
CREATE TABLE IF NOT EXISTS customers (
  id INT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1', 'changelog-producer' = 'input');
CREATE TABLE IF NOT EXISTS orders (
  order_id BIGINT, customer_id INT, price DOUBLE, order_time TIMESTAMP(3), proc_time AS PROCTIME()
) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS country_sales (
  country STRING, orders BIGINT, revenue DOUBLE, PRIMARY KEY (country) NOT ENFORCED
) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'changelog-producer' = 'full-compaction',
  'fields.orders.aggregate-function' = 'sum', 'fields.revenue.aggregate-function' = 'sum'
);
"""
CUSTOMERS = "INSERT INTO customers VALUES " + ", ".join(
    f"({number}, 'c{number}', '{country}')" for number, country in enumerate(COUNTRIES, 1)
)
VIEW = """
INSERT INTO country_sales
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',
                  'fixed-delay'='300ms', 'max-attempts'='2') */
  c.country, 1, o.price
FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id;
"""


def generator(rows: int, rate: int, customers: int = len(COUNTRIES) + 2) -> str:
    """Orders into `orders`; those of the last two customers find no match."""
    return f"""
    CREATE TEMPORARY TABLE made (
      order_id BIGINT, customer_id INT, price DOUBLE, order_time TIMESTAMP(3)
    ) WITH (
      'connector' = 'datagen', 'rows-per-second' = '{rate}', 'number-of-rows' = '{rows}',
      'fields.order_id.kind' = 'sequence', 'fields.order_id.start' = '1',
      'fields.order_id.end' = '{rows}', 'fields.customer_id.min' = '1',
      'fields.customer_id.max' = '{customers}', 'fields.price.min' = '1',
      'fields.price.max' = '100'
    );
    INSERT INTO orders SELECT order_id, customer_id, price, order_time FROM made;
    """


def whole(rows: int, rate: int) -> str:
    """The script: orders and their view; customers are to be there."""
    return TABLES + generator(rows, rate) + VIEW


def checkpoint(shop: Shop, table: str) -> Checkpoint:
    return Checkpoint(shop.path / ".checkpoints", "shop.sql", f"default.{table}")


def check(shop: Shop, orders: int, expired: bool = False) -> None:
    """All orders are there once; the view is what they come to; nothing is left over.

    With `expired`, files of old snapshots may be gone.
    """
    made = shop.rows("orders")
    assert sorted(row["order_id"] for row in made) == list(range(1, orders + 1))
    expected: dict[str, list[float]] = {}
    missing = Counter[int]()
    for row in made:
        if row["customer_id"] > len(COUNTRIES):
            missing[row["order_id"]] += 1
        else:
            expected.setdefault(COUNTRIES[row["customer_id"] - 1], []).append(row["price"])
    view = {row["country"]: (row["orders"], row["revenue"]) for row in shop.rows("country_sales")}
    assert {country: count for country, (count, _) in view.items()} == {
        country: len(prices) for country, prices in expected.items()
    }
    for country, prices in expected.items():
        assert view[country][1] == pytest.approx(sum(prices), rel=1e-9)
    unmatched = shop.rows("country_sales__unmatched")
    assert Counter(row["order_id"] for row in unmatched) == missing
    assert {row["_attempts"] for row in unmatched} <= {2}
    assert shop.rows("country_sales__pending") == []
    for table in ("orders", "country_sales"):
        check_lineage(shop, table, expired)
        check_files(shop, table, expired)
    check_files(shop, "country_sales__unmatched", expired)
    check_files(shop, "country_sales__pending", expired)


def check_lineage(shop: Shop, table: str, expired: bool = False) -> None:
    """Each batch is there once, and begins where the one before it ended.

    `expired`: batches that no audit needs may be removed, from the first one on.
    """
    rows = sorted(shop.rows(f"{table}__lineage"), key=lambda row: int(row["batch_id"]))
    first = rows[0]["batch_id"]
    assert expired or first == 0
    assert [row["batch_id"] for row in rows] == list(range(first, first + len(rows)))
    assert len({row["query_id"] for row in rows}) == 1
    ends = [json.loads(row["end_offset"]) for row in rows]
    starts = [json.loads(row["start_offset"]) for row in rows]
    assert starts[1:] == ends[:-1] and (first > 0 or starts[0] == {})
    defined = [row for row in rows if row["definition"]]
    assert defined[0]["batch_id"] == first
    assert {row["fingerprint"] for row in defined} == {row["fingerprint"] for row in rows}


def check_files(shop: Shop, table: str, expired: bool = False) -> None:
    """Every file that a query wrote belongs to a snapshot."""
    root = Path(shop.warehouse.table(f"default.{table}").location)
    writers = {query_tag(checkpoint(shop, name).query_id()) for name in ("orders", "country_sales")}
    written = {
        path.name
        for path in root.glob("**/bucket-*/*")
        if any(path.name.startswith(writer) for writer in writers)
    }
    known = _known_files(root)
    assert written or expired
    assert written - known == set()
    assert expired or {name for name in known if name.startswith(tuple(writers))} - written == set()


def _known_files(root: Path) -> set[str]:
    """Names of the data files of all snapshots, from the format's own manifests."""
    manifests: set[str] = set()
    for path in (root / "snapshot").glob("snapshot-*"):
        if not path.name.removeprefix("snapshot-").isdigit():
            # A commit that was cut off before it was renamed into place.
            continue
        snapshot = json.loads(path.read_text())
        for key in ("baseManifestList", "deltaManifestList", "changelogManifestList"):
            if snapshot.get(key):
                entries = _avro(root / "manifest" / snapshot[key])
                manifests |= {str(entry["_FILE_NAME"]) for entry in entries}
    files: set[str] = set()
    for name in manifests:
        files |= {str(entry["_FILE"]["_FILE_NAME"]) for entry in _avro(root / "manifest" / name)}
    return files


def _avro(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        records: list[Any] = list(fastavro.reader(file))
        return records
