"""Lookups with a bucket shuffle have the results of the other strategies."""

from __future__ import annotations

import random

import pytest
from tests.integration.runtime.conftest import Dying, Shop

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.audit.audit import audit

TABLES = """
CREATE TABLE clicks (n INT, id INT, region INT, v DOUBLE, at AS PROCTIME()) WITH ('bucket' = '-1');
CREATE TABLE orders (n INT, id INT, region INT, v DOUBLE, at AS PROCTIME(),
  PRIMARY KEY (n) NOT ENFORCED) WITH ('bucket' = '2', 'changelog-producer' = 'input');
CREATE TABLE people (region INT, id BIGINT, name STRING, PRIMARY KEY (region, id) NOT ENFORCED)
  WITH ('bucket' = '5', 'bucket-key' = 'id');
CREATE TABLE regions (region INT, title STRING, PRIMARY KEY (region) NOT ENFORCED)
  WITH ('bucket' = '1');
"""
TARGETS = """
CREATE TABLE bucket_plain (n INT, id INT, name STRING, title STRING) WITH ('bucket' = '-1');
CREATE TABLE bucket_sums (name STRING, c BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.c.aggregate-function' = 'sum');
CREATE TABLE bucket_last (region INT, n INT, name STRING, v DOUBLE,
  PRIMARY KEY (region) NOT ENFORCED) WITH ('bucket' = '2');
CREATE TABLE bucket_rows (n INT, name STRING, v DOUBLE, PRIMARY KEY (n) NOT ENFORCED)
  WITH ('bucket' = '2');
CREATE TABLE bucket_rows_spread (n INT, name STRING, v DOUBLE, PRIMARY KEY (n) NOT ENFORCED)
  WITH ('bucket' = '2');
"""
SPREAD = "/*+ OPTIONS('lookup.bucket.shuffle-min-rows'='0') */"
HINT = "'strategy'='bucket'"
RETRY = (
    "'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='200ms', "
    "'max-attempts'='1'"
)
QUERIES = f"""
INSERT INTO bucket_plain
SELECT /*+ LOOKUP('table'='p', {HINT}, 'output-mode'='ordered') */ c.n, c.id, p.name, r.title
FROM clicks AS c
LEFT JOIN people {SPREAD} FOR SYSTEM_TIME AS OF c.at AS p
  ON c.id = p.id AND c.region = p.region AND p.name <> 'p7'
LEFT JOIN regions FOR SYSTEM_TIME AS OF c.at AS r ON c.region = r.region
WHERE c.n <> 11;
INSERT INTO bucket_sums SELECT /*+ LOOKUP('table'='p', {HINT}) */ p.name, COUNT(*)
FROM clicks AS c JOIN people FOR SYSTEM_TIME AS OF c.at AS p
  ON c.id = p.id AND c.region = p.region GROUP BY p.name;
INSERT INTO bucket_last SELECT /*+ LOOKUP('table'='p', {HINT}) */ c.region, c.n, p.name, c.v
FROM clicks AS c LEFT JOIN people FOR SYSTEM_TIME AS OF c.at AS p
  ON c.id = p.id AND c.region = p.region WHERE c.region IS NOT NULL;
INSERT INTO bucket_rows SELECT /*+ LOOKUP('table'='p', {HINT}, {RETRY}) */ o.n, p.name, o.v
FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF o.at AS p
  ON o.id = p.id AND o.region = p.region;
INSERT INTO bucket_rows_spread SELECT /*+ LOOKUP('table'='p', {HINT}, {RETRY}) */ o.n, p.name, o.v
FROM orders AS o JOIN people {SPREAD} FOR SYSTEM_TIME AS OF o.at AS p
  ON o.id = p.id AND o.region = p.region;
"""


def value(number: int | None) -> str:
    return "CAST(NULL AS INT)" if number is None else str(number)


def stream(table: str, seed: int, first: int, count: int) -> str:
    """Rows with known, unknown and missing keys; one region's rows come again and again."""
    rows = [
        f"({n}, {value(number)}, {value(region)}, CAST({n % 7}.5 AS DOUBLE))"
        for n, number, region in keys(seed, first, count)
    ]
    return f"INSERT INTO {table} VALUES {', '.join(rows)};"


def keys(seed: int, first: int, count: int) -> list[tuple[int, int | None, int | None]]:
    dice = random.Random(seed)
    return [
        (n, dice.choice([None, *range(40)]), dice.choice([None, 1, 2, 3]))
        for n in range(first, first + count)
    ]


def people(seed: int, count: int) -> str:
    dice = random.Random(seed)
    rows = {(dice.randint(1, 3), dice.randint(0, 34)): dice.randint(0, 9) for _ in range(count)}
    values = ", ".join(f"({region}, {i}, 'p{name}')" for (region, i), name in rows.items())
    return f"INSERT INTO people VALUES {values};"


@pytest.mark.usefixtures("in_threads")
def test_what_is_shuffled_is_right_after_a_kill(shop: Shop, dying: Dying) -> None:
    start = TABLES + TARGETS + "INSERT INTO regions VALUES (1, 'north'), (3, 'south');"
    start += people(1, 60) + stream("clicks", 2, 0, 300) + stream("orders", 3, 0, 200)
    shop.do(start)
    # What waits is not written yet, and its partners come and go before the batch runs again.
    with dying(QUERIES, "target-committed:0:default.bucket_rows"):
        pass
    moved = people(4, 60) + "DELETE FROM people WHERE region = 2;"
    more = stream("clicks", 5, 1_000, 300) + stream("orders", 6, 100, 200)
    shop.do(moved + more + "DELETE FROM orders WHERE n < 20;")
    shop.settle_here(QUERIES)
    for name in ("plain", "sums", "last", "rows", "rows_spread"):
        result = audit(shop.warehouse.options, f"default.bucket_{name}")
        assert result.equal and result.joined_rows > 100, name
    numbers = [row["n"] for row in shop.rows("bucket_plain")]
    assert sorted(numbers) == [n for n in (*range(300), *range(1_000, 1_300)) if n != 11]
    plain = shop.warehouse.table("default.bucket_plain")
    for snapshot in range(1, (plain.latest_snapshot_id() or 0) + 1):
        batches = plain.read(["n"], splits=plain.changes(snapshot - 1, snapshot))
        written = [n for batch in batches for n in batch["n"].to_pylist()]
        assert written == sorted(written)
    for name in ("bucket_rows", "bucket_rows_spread"):
        assert shop.rows(f"{name}__pending") == [] != shop.rows(f"{name}__unmatched")
    # The last click of each region, although clicks of one region went to several tasks.
    last = {n % 1_000: region for n, _, region in keys(5, 1_000, 300) if region is not None}
    wanted = {region: 1_000 + n for n, region in sorted(last.items())}
    assert {row["region"]: row["n"] for row in shop.rows("bucket_last")} == wanted


def test_spark_gives_each_task_its_own_buckets(shop: Shop) -> None:
    """Also if one more task writes what the tasks have joined, in the order of the source."""
    people = ", ".join(f"({n}, 'p{n}')" for n in range(100))
    clicks = ", ".join(f"({n}, {n * 7 % 100})" for n in range(300))
    tables = """
        CREATE TABLE people (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
          WITH ('bucket' = '8');
        CREATE TABLE clicks (n INT, id INT, at AS PROCTIME()) WITH ('bucket' = '-1');
        CREATE TABLE in_order (n INT, name STRING) WITH ('bucket' = '-1');
        CREATE TABLE newest (id INT, n INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
          WITH ('bucket' = '2');
    """
    shop.do(f"{tables} INSERT INTO people VALUES {people}; INSERT INTO clicks VALUES {clicks};")
    joined = "FROM clicks AS c LEFT JOIN people FOR SYSTEM_TIME AS OF c.at AS p ON c.id = p.id;"
    shop.settle(f"""SET 'parallelism.default' = '4';
        INSERT INTO in_order SELECT
          /*+ LOOKUP('table'='p', {HINT}, 'output-mode'='ordered') */ c.n, p.name {joined}
        INSERT INTO newest SELECT /*+ LOOKUP('table'='p', {HINT}) */ c.id, c.n, p.name {joined}
    """)
    names = [f"p{n * 7 % 100}" for n in range(300)]
    batches = shop.warehouse.table("default.in_order").read(["n", "name"])
    in_order = [(row["n"], row["name"]) for batch in batches for row in batch.to_pylist()]
    assert in_order == list(enumerate(names))
    newest = {row["id"]: (row["n"], row["name"]) for row in shop.rows("newest")}
    assert newest == {n * 7 % 100: (n, names[n]) for n in range(300)}


@pytest.mark.usefixtures("in_threads")
def test_explain_explains_why(shop: Shop) -> None:
    shop.do(TABLES + TARGETS)
    query = QUERIES.replace(HINT, "'shuffle'='true'").split(";\n")[0]
    output = shop.printed("EXPLAIN " + query + ";")
    assert "strategy: bucket shuffle (set by hint)" in output
    one = query.replace("'table'='p'", "'table'='r'")
    output = shop.printed("EXPLAIN " + one + ";")
    assert "not shuffled: table default.regions has no fixed number of buckets above 1" in output
    two = one.replace("'shuffle'='true'", "'strategy'='bucket'")
    with pytest.raises(StreamhouseError, match="no fixed number of buckets above 1; leave it out"):
        shop.printed("EXPLAIN " + two + ";")
