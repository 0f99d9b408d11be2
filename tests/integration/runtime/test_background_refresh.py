"""Dimensions that are replaced as a whole load in the background; a kill changes no result."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.runtime.conftest import Dying, Shop

from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

ROWS = 12_000
"""More than are read within a blink."""
TABLES = """
CREATE TABLE orders (n INT, member INT) WITH ('bucket' = '-1');
CREATE TABLE members (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '3');
CREATE TABLE cards (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE joined (n INT, member STRING, card STRING) WITH ('bucket' = '-1');
"""
QUERY = """
INSERT INTO joined
SELECT /*+ LOOKUP('table'='m', 'strategy'='bucket'), LOOKUP('table'='c', 'strategy'='full') */
  o.n, m.name, c.name
FROM orders AS o
JOIN members /*+ OPTIONS('lookup.refresh.async'='true') */ FOR SYSTEM_TIME AS OF PROCTIME() AS m
  ON o.member = m.id
JOIN cards /*+ OPTIONS('lookup.refresh.async'='true') */ FOR SYSTEM_TIME AS OF PROCTIME() AS c
  ON o.member = c.id;
"""


def test_batches_go_on_with_the_old_until_the_new_is_read(shop: Shop, dying: Dying) -> None:
    shop.do(TABLES)
    rename(shop, 1, "old")
    order(shop, 0)
    with dying(QUERY, "batch-written:2:default.joined") as until:
        for number in (1, 2):
            until(partial(came_out, shop, number))
            if number == 2:
                rename(shop, 2, "new")
            order(shop, number)
    assert joined(shop) == [("old", "old")] * 2
    last = offsets(shop)[-1]
    assert (last["batch"], last["dims"]) == (2, {"dim_0": 1, "dim_1": 1})
    assert last["coming"] == {"dim_0": {"snapshot": 2}, "dim_1": {"snapshot": 2}}

    number = 2
    with shop.running_here(QUERY) as until:
        until(partial(came_out, shop, 3))
        while joined(shop)[-1] != ("new", "new"):
            number += 1
            order(shop, number)
            until(partial(came_out, shop, number + 1))
            assert number < 100
    names = joined(shop)
    # What was cut off joined what it had begun with.
    assert names[:3] == [("old", "old")] * 3
    for column in zip(*names, strict=True):
        assert list(column) == sorted(column, reverse=True)
    assert offsets(shop)[-1]["dims"] == {"dim_0": 2, "dim_1": 2}
    result = audit(shop.warehouse.options, "default.joined")
    assert result.equal and result.joined_rows == len(names)


def came_out(shop: Shop, count: int) -> bool:
    return len(joined(shop)) == count


def joined(shop: Shop) -> list[tuple[str, str]]:
    """What came out, order by order; each comes out once."""
    rows = sorted((row["n"], row["member"], row["card"]) for row in shop.rows("joined"))
    assert [n for n, _, _ in rows] == list(range(len(rows)))
    return [(member, card) for _, member, card in rows]


def offsets(shop: Shop) -> list[dict[str, Any]]:
    """What Spark's log says of each batch."""
    files = sorted(shop.folder.rglob("offsets/[0-9]*"), key=lambda file: int(file.name))
    ends = [json.loads(file.read_text().splitlines()[-1]) for file in files]
    return [end for end in ends if end]


def rename(shop: Shop, commit: int, name: str) -> None:
    """Give all members and cards another name."""
    for table in ("members", "cards"):
        write(shop, table, commit, {"id": range(ROWS), "name": [name] * ROWS})


def order(shop: Shop, number: int) -> None:
    write(shop, "orders", number, {"n": [number], "member": [number * 7]})


def write(shop: Shop, name: str, commit: int, columns: dict[str, Any]) -> None:
    options, identifier = shop.warehouse.options, f"default.{name}"
    schema = shop.warehouse.table(identifier).arrow_schema
    writer = TableWriter(options, identifier, "test")
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    writer.write(pa.record_batch(arrays, schema=schema))
    TableCommitter(options, identifier, "test").commit(commit, writer.prepare(commit))
    writer.close()
