"""Continuous queries into tables of all bucket layouts, alone and with concurrent writers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.integration.runtime.conftest import Shop
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.usefixtures("in_threads")

KEY = "PRIMARY KEY (k) NOT ENFORCED"
FEW = "'dynamic-bucket.target-row-num' = '3'"
LAYOUTS = {
    "fixed": (KEY, "", "'bucket' = '4'"),
    "modulo": (KEY, "", "'bucket' = '3', 'bucket-function.type' = 'mod'"),
    "dynamic": (KEY, "", FEW),
    "dynamic_parts": ("PRIMARY KEY (k, p) NOT ENFORCED", "PARTITIONED BY (p)", FEW),
    "moving": (KEY, "PARTITIONED BY (p)", FEW),
}
SOURCES = "".join(
    f"CREATE TABLE IF NOT EXISTS {name} (k INT, p INT, v INT) WITH ('bucket' = '-1');"
    for name in ("a", "b")
)
TABLES = "".join(
    f"CREATE TABLE IF NOT EXISTS {name} (k INT, p INT, v INT, {key}) {parts} WITH ({options});"
    for name, (key, parts, options) in LAYOUTS.items()
)
QUERIES = "".join(f"INSERT INTO {name} SELECT k, p, v FROM a;" for name in LAYOUTS)


@pytest.mark.soak
def test_each_key_has_one_row_in_every_layout(shop: Shop) -> None:
    shop.do(SOURCES + TABLES)
    for value in (1, 2):
        shop.do(f"INSERT INTO a VALUES {_values(range(40), value, lambda k: k % 3)}")
        shop.settle_here(QUERIES)
        for name in LAYOUTS:
            assert _rows(shop, name) == [(k, k % 3, value) for k in range(40)], name
    shop.do(f"INSERT INTO a VALUES {_values(range(40), 3, lambda k: (k + 1) % 3)}")
    shop.settle_here(QUERIES)
    for name in LAYOUTS:
        moved = [(k, (k + 1) % 3, 3) for k in range(40)]
        old = [(k, k % 3, 2) for k in range(40)] if name == "dynamic_parts" else []
        assert _rows(shop, name) == sorted(moved + old), name


def test_queries_and_statements_share_a_table_with_dynamic_buckets(shop: Shop) -> None:
    """By itself each writer would choose a bucket of its own for a key that is new to all."""
    shop.do(SOURCES + TABLES)
    both = "INSERT INTO {0} SELECT k, p, v FROM a UNION ALL SELECT k, p, v FROM b;"
    script = both.format("dynamic") + both.format("moving")
    failed: list[BaseException] = []

    def insert(table: str, value: int) -> None:
        try:
            for first in range(0, 120, 12):
                keys = range(first, first + 12)
                shop.do(f"INSERT INTO {table} VALUES {_values(keys, value, lambda k: value % 2)}")
        except BaseException as error:  # noqa: BLE001  # raised where the test can see it
            failed.append(error)

    writers = (("a", 1), ("b", 2), ("dynamic", 3), ("moving", 4))
    threads = [threading.Thread(target=insert, args=writer) for writer in writers]
    shop.do("INSERT INTO a VALUES (0, 0, 0); INSERT INTO b VALUES (1, 1, 0)")
    with shop.running_here(script) as until:
        until(lambda: len(_rows(shop, "dynamic")) == len(_rows(shop, "moving")) == 2)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not failed
        until(lambda: all(len(_rows(shop, name)) >= 120 for name in ("dynamic", "moving")))
    shop.settle_here(script)
    for name in ("dynamic", "moving"):
        assert [row[0] for row in _rows(shop, name)] == list(range(120)), name


def _values(keys: range, value: int, place: Callable[[int], int]) -> str:
    return ", ".join(f"({k}, {place(k)}, {value})" for k in keys)


def _rows(shop: Shop, table: str) -> list[tuple[int, ...]]:
    return sorted((row["k"], row["p"], row["v"]) for row in shop.rows(table))
