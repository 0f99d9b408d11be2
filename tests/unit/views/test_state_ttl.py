"""Views whose kept rows are deleted while nothing changes: the result stays that of the SELECT."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.state.store import StateStore

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, customer INT, price INT);
CREATE TABLE IF NOT EXISTS customers (id INT PRIMARY KEY NOT ENFORCED, country STRING);
"""
SELECT = """SELECT c.country, COUNT(*) AS n, MAX(o.price) AS most, COUNT(DISTINCT o.customer) AS who
FROM orders o LEFT JOIN customers c ON o.customer = c.id GROUP BY c.country"""
VIEW = f"""SET 'view.refresh-strategy' = 'incremental';
CREATE MATERIALIZED VIEW IF NOT EXISTS v AS {SELECT};"""
EXPIRED = "SET 'table.exec.state.ttl' = '1 ms';"


def _change(rng: random.Random) -> str:
    row = rng.randrange(6)
    return rng.choice(
        (
            f"INSERT INTO orders VALUES ({row}, {rng.randrange(4)}, {rng.randrange(9)})",
            f"DELETE FROM orders WHERE id = {row}",
            f"INSERT INTO customers VALUES ({row % 4}, '{rng.choice('ab')}')",
            f"DELETE FROM customers WHERE id = {row % 4}",
        )
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))]
)
def test_a_view_is_right_whatever_has_expired(seed: int, tmp_path: Path) -> None:
    rng, shop, numbers = random.Random(seed), LocalPipeline(tmp_path), itertools.count(10)
    store = StateStore.of(shop.checkpoint("v", "materialized views"))

    def run(before: str = "") -> bool:
        """Run the view after some changes; whether it knows then what it has kept."""
        new = f"INSERT INTO orders VALUES ({next(numbers)}, 1, 1)"
        shop.do(TABLES + "; ".join([new, *(_change(rng) for _ in range(4))]))
        shop.run(f"{TABLES}{before}{VIEW}")
        assert Counter(shop.selected("SELECT * FROM v")) == Counter(shop.selected(SELECT))
        return store.newest is not None

    for _ in range(3):
        assert run()
        assert not run(EXPIRED)


@pytest.mark.parametrize(
    ("hint", "kept"), [("'o' = '1 ms'", False), ("'o' = '1 ms', 'c' = '1 d'", True)]
)
def test_the_longest_time_of_a_hint_counts(hint: str, kept: bool, tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    hinted = VIEW.replace("SELECT c", f"SELECT /*+ STATE_TTL({hint}) */ c")
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1)")
    shop.run(f"{TABLES}{hinted}")
    store = StateStore.of(shop.checkpoint("v", "materialized views"))
    assert (store.newest is not None) == kept
    assert shop.selected("SELECT * FROM v") == shop.selected(SELECT)
