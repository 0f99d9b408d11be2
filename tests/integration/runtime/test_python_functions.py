"""Python functions of a module next to the script: on executors, after kills and changes."""

from __future__ import annotations

import os
import signal
from textwrap import dedent

import pytest
from tests.integration.runtime.conftest import Ended, Run, Shop

import streamhouse

HELPER = "BANDS = ('low', 'high')\n"
MODULE = dedent("""
    from typing import Annotated

    import pyarrow as pa
    import pyarrow.compute as pc

    Whole = Annotated[pa.Array, "BIGINT"]


    def cents(amount: Annotated[pa.Array, pa.float64()]) -> Whole:
        return pc.cast(pc.round(pc.multiply(amount, 100)), pa.int64())


    def band(cents: int) -> str:
        from shop_names import BANDS

        return BANDS[cents >= 1000]


    def person(code: str | None) -> Annotated[int, "INT"] | None:
        return None if code is None else int(code.removeprefix("p"))
    """)
TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, code STRING, amount DOUBLE)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS people (id INT PRIMARY KEY NOT ENFORCED, country STRING)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS sales (country STRING, band STRING, cents BIGINT, codes BIGINT,
  PRIMARY KEY (country, band) NOT ENFORCED) WITH ('bucket' = '1',
  'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'sum');
"""
PIPELINE = f"""{TABLES}
CREATE TEMPORARY FUNCTION cents AS 'shop_functions.cents' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION band AS 'shop_functions.band' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION person AS 'shop_functions.person' LANGUAGE PYTHON;
CREATE TEMPORARY VIEW priced AS
  SELECT code, cents(amount) AS cents, PROCTIME() AS t FROM orders WHERE person(code) <> 9;
INSERT INTO sales
SELECT p.country, band(o.cents), SUM(o.cents), COUNT(person(o.code))
FROM priced AS o JOIN people FOR SYSTEM_TIME AS OF o.t AS p ON person(o.code) = p.id
GROUP BY p.country, band(o.cents);
"""


@pytest.fixture
def functions(shop: Shop) -> Shop:
    (shop.folder / "shop_functions.py").write_text(MODULE)
    (shop.folder / "shop_names.py").write_text(HELPER)
    return shop


def audited(shop: Shop) -> Ended:
    path = os.pathsep.join([str(shop.folder), os.environ.get("PYTHONPATH", "")])
    command = ["audit", "default.sales", "--warehouse", str(shop.path)]
    run = Run(shop.folder, command, {"PYTHONPATH": path}, spark=False)
    shop.runs.append(run)
    return run.wait()


def sales(shop: Shop) -> dict[tuple[str, str], tuple[int, int]]:
    rows = shop.rows("sales")
    found = {(row["country"], row["band"]): (row["cents"], row["codes"]) for row in rows}
    return {key: counts for key, counts in found.items() if any(counts)}


def test_a_query_continues_after_kills_and_with_a_changed_module(functions: Shop) -> None:
    shop, change = functions, streamhouse.execute
    options = shop.warehouse.options
    change(options, TABLES)
    change(options, "INSERT INTO people VALUES (1, 'CH'), (2, 'DE')")
    change(options, "INSERT INTO orders VALUES (1, 'p1', 2.5), (2, 'p2', 20), (3, 'p9', 1)")
    killed = shop.run(
        PIPELINE, "--until-caught-up", spark=False, STREAMHOUSE_FAILPOINT="target-committed:0"
    )
    assert killed.code == -signal.SIGKILL, killed.err
    assert sales(shop) == {("CH", "low"): (250, 1), ("DE", "high"): (2000, 1)}
    # One moves to another group, one is taken back, and a null goes nowhere.
    change(options, "UPDATE orders SET amount = 12 WHERE id = 1")
    change(options, "DELETE FROM orders WHERE id = 2")
    change(options, "INSERT INTO orders VALUES (4, 'p1', 13), (5, CAST(NULL AS STRING), 1)")
    shop.settle(PIPELINE, spark=False)
    assert sales(shop) == {("CH", "high"): (2500, 2)}
    assert audited(shop).code == 0
    (shop.folder / "shop_names.py").write_text(HELPER.replace("high", "large"))
    change(options, "INSERT INTO orders VALUES (6, 'p2', 30)")
    # A later delete would retract what the former function has not given.
    refused = shop.run(PIPELINE, "--until-caught-up", spark=False)
    assert refused.code == 1 and "its SELECT has changed; and the rows" in refused.err
    assert "differs from the one that the query was planned with" in refused.err
    ended = audited(shop)
    assert ended.code == 1 and "differs from the one that the query was planned with" in ended.err
    shop.settle(PIPELINE, "--from-scratch")
    assert sales(shop) == {("CH", "large"): (2500, 2), ("DE", "large"): (3000, 1)}
    assert audited(shop).code == 0


def test_what_a_function_raises_ends_the_query(functions: Shop) -> None:
    shop = functions
    shop.do(TABLES + "INSERT INTO orders VALUES (1, 'nobody', 2.5);")
    ended = shop.run(PIPELINE, "--until-caught-up")
    assert ended.code == 1
    assert "function person ('shop_functions.person') raised ValueError" in ended.err
    assert "shop_functions.py, line 2" in ended.err and "for ('nobody')" in ended.err
    assert "Traceback" not in ended.err and "duckdb" not in ended.err.lower()
