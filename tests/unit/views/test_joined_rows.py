"""Lookup joins below what only a view computes, against the batch result over the joined rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.integration.runtime.conftest import failing_at
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.errors import TableError, UnsupportedSqlError
from streamhouse.graph.build import graph_of
from streamhouse.runtime.audit.audit import audit
from streamhouse.sql.statements.script import parse_script

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, who INT, price INT)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS visits (id INT, who INT, price INT);
CREATE TABLE IF NOT EXISTS people (id INT PRIMARY KEY NOT ENFORCED, country STRING, rank_ INT)
  WITH ('bucket' = '1');
"""
JOINED = (
    "FROM {source} AS o {side} JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.who = c.id"
)
AS_NOW = "FROM {source} AS o {side} JOIN people AS c ON o.who = c.id"
SELECTS = {
    "groups": "SELECT COALESCE(c.country, '-'), AVG(o.price), COUNT(DISTINCT who), MAX(c.id) "
    "{joined} WHERE o.price > 1 GROUP BY COALESCE(c.country, '-')",
    "distinct": "SELECT DISTINCT o.*, c.country {joined}",
    "ranks": "SELECT * FROM (SELECT o.id, country, ROW_NUMBER() OVER (PARTITION BY country ORDER "
    "BY price DESC, o.id) AS n {joined}) AS r WHERE n < 3",
    "nested": "WITH big AS (SELECT * FROM {source} WHERE price > 2) SELECT c.id AS cid, o.id, "
    "(SELECT MAX(price) FROM orders) - o.price AS less {big} WHERE o.price < "
    "(SELECT MAX(rank_) * 4 FROM people)",
    "other joins": "SELECT c.country, p.country, SUM(o.price) {joined} JOIN people AS p ON p.rank_ "
    "= o.price GROUP BY c.country, p.country",
    "union": "SELECT x, COUNT(*) FROM (SELECT country AS x {joined} UNION ALL SELECT country FROM "
    "people) AS u GROUP BY x",
}
"""Each is computed from joined rows, and none by one streaming query."""


def select(name: str, source: str, side: str, join: str) -> str:
    joined = join.format(source=source, side=side)
    big = join.format(source="big", side=side)
    return SELECTS[name].format(joined=joined, big=big, source=source)


def change(rng: random.Random) -> str:
    def row() -> str:
        return f"{rng.randint(1, 5)}, {rng.randint(1, 4)}, {rng.randint(0, 6)}"

    return (
        f"INSERT INTO orders VALUES ({row()}); INSERT INTO visits VALUES ({row()}), ({row()}); "
        f"DELETE FROM orders WHERE id = {rng.randint(1, 8)}; "
        f"UPDATE orders SET who = {rng.randint(1, 5)} WHERE price = {rng.randint(0, 6)}"
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))]
)
def test_any_select_of_joined_rows_is_kept(seed: int, tmp_path: Path) -> None:
    """The dimension does not change, so each row joins what it joined before."""
    rng, shop = random.Random(seed), LocalPipeline(tmp_path)
    people = ", ".join(f"({n}, '{rng.choice('xy')}', {rng.randint(1, 3)})" for n in range(1, 4))
    shop.do(f"{TABLES} INSERT INTO people VALUES {people}")
    cases = {
        f"view{number}": (name, rng.choice(("orders", "visits")), rng.choice(("", "LEFT")))
        for number, name in enumerate(SELECTS if seed else rng.sample(list(SELECTS), 3))
    }
    views = "".join(
        f"CREATE MATERIALIZED VIEW {target} AS {select(*case, JOINED)};"
        for target, case in cases.items()
    )
    for number in range(4 if seed else 2):
        shop.do(change(rng))
        if number:
            target = rng.choice(list(cases))
            step = rng.choice(("batch-written", "target-committed"))
            try:
                with failing_at(f"{step}:0:default.{target}__joined_figures_sql"):
                    shop.run(TABLES + views)
            except pytest.fail.Exception:
                pass  # no batch of that query was due
        shop.run(TABLES + views)
        for target, case in cases.items():
            expected = sorted(shop.selected(select(*case, AS_NOW)), key=repr)
            assert sorted(shop.selected(f"SELECT * FROM {target}"), key=repr) == expected, case
    assert audit(shop.options, "default.view0").equal


def test_the_key_of_rows_that_change_must_be_visible(tmp_path: Path) -> None:
    shop, case = LocalPipeline(tmp_path), ("groups", "(SELECT who, price FROM orders)", "")
    view = f"{TABLES} CREATE MATERIALIZED VIEW view0 AS "
    with pytest.raises(UnsupportedSqlError, match=r"let 'o' have its column\(s\) id, too"):
        shop.run(view + select(*case, JOINED))
    shop.run(view + select(*case, JOINED).replace("SELECT who", "SELECT id, who"))


def test_a_refused_statement_leaves_no_table(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    shop.do(f"{TABLES} CREATE TABLE counts (country STRING, n BIGINT)")
    tables, joined = shop.warehouse.tables("default"), JOINED.format(source="orders", side="")
    with pytest.raises(UnsupportedSqlError, match="rows of the result change"):
        shop.run(
            f"INSERT INTO counts SELECT country, COUNT(DISTINCT who) {joined} GROUP BY country"
        )
    assert shop.warehouse.tables("default") == tables


def test_what_reads_the_joined_rows_is_drawn(tmp_path: Path) -> None:
    shop, joined = LocalPipeline(tmp_path), JOINED.format(source="orders", side="")
    query = f"SELECT country, MAX(price) {joined} GROUP BY country"
    counts = "CREATE TABLE counts (country STRING PRIMARY KEY NOT ENFORCED, n INT);"
    for statement in (
        f"CREATE MATERIALIZED VIEW v AS {query}",
        query,
        f"INSERT INTO counts {query}",
    ):
        lines = shop.run(f"{TABLES} {counts if 'INSERT' in statement else ''} EXPLAIN {statement}")
        (number,) = (n for n, line in enumerate(lines) if line.startswith("read by: "))
        assert any(line.startswith("lookup: ") for line in lines[:number])
        assert any("aggregate by country: MAX(price)" in line for line in lines[number:])
        assert not any("__joined" in name for name in shop.warehouse.tables("default"))


def test_a_changed_select_does_not_take_the_rows_of_the_former_one(tmp_path: Path) -> None:
    shop, case = LocalPipeline(tmp_path), ("groups", "orders", "")
    shop.do(f"{TABLES} INSERT INTO people VALUES (1, 'x', 1); INSERT INTO orders VALUES (1, 1, 2)")
    view = f"{TABLES} CREATE OR REPLACE MATERIALIZED VIEW view0 AS "
    shop.run(view + select(*case, JOINED))
    with pytest.raises(TableError, match="has the rows of another SELECT"):
        shop.run(view + select(*case, JOINED).replace("AVG(o.price)", "AVG(rank_)"))


def test_joined_rows_start_from_scratch_with_their_target(tmp_path: Path) -> None:
    """So the dimension's newest rows are joined."""
    shop = LocalPipeline(tmp_path)
    script = (
        f"{TABLES} CREATE TABLE IF NOT EXISTS total (x STRING PRIMARY KEY NOT ENFORCED, n BIGINT) "
        "WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = "
        "'sum'); INSERT INTO total SELECT country, COUNT(DISTINCT who) "
        f"{JOINED.format(source='orders', side='')} GROUP BY country;"
    )
    shop.do(f"{TABLES} INSERT INTO people VALUES (1, 'x', 1); INSERT INTO orders VALUES (1, 1, 2)")
    shop.run(script)
    assert {node.name for node in graph_of(parse_script(script), shop.options).nodes} >= {
        "orders", "people", "total__joined", "total__view", "total",
    }  # fmt: skip
    shop.do("UPDATE people SET country = 'y'; INSERT INTO orders VALUES (2, 1, 2)")
    shop.run(script)
    # Two rows of one person, joined before and after the change.
    assert sorted(shop.selected("SELECT * FROM total")) == [("x", 1), ("y", 1)]
    shop.run(script, from_scratch=True)
    assert shop.selected("SELECT * FROM total WHERE n > 0") == [("y", 1)]
    assert audit(shop.options, "default.total").equal
