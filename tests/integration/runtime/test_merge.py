"""The merge job of the revenue view while orders stream in: no row lost, none twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import Shop
from tests.java_reads import java_rows

import streamhouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write import commit_retries
from streamhouse.paimon.write.commit_retries import CHANGE_USER
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.streaming import batch_commit

pytestmark = pytest.mark.usefixtures("in_threads")

VIEW = "default.country_sales"
MERGE = """
MERGE INTO country_sales AS v USING (SELECT DISTINCT country FROM customers) AS c
ON v.country = c.country
WHEN MATCHED AND v.country = 'Chile' THEN UPDATE SET revenue = 0
WHEN NOT MATCHED THEN INSERT VALUES (c.country, 0, 0)
WHEN NOT MATCHED BY SOURCE THEN DELETE
"""
SANTA = "INSERT INTO customers VALUES (11, 'Santa', 'North Pole'), (4, 'c4', 'Norway')"


def test_rows_that_a_merge_inserts_show_at_once(shop: Shop) -> None:
    shop.do("""CREATE TABLE firsts (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED)
          WITH ('bucket' = '1', 'merge-engine' = 'first-row');
        INSERT INTO firsts VALUES (1, 1);
        MERGE INTO firsts AS t USING (SELECT 2 AS id, 5 AS v UNION ALL SELECT 1, 7) AS s
          ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v);""")

    assert shop.rows("firsts") == [{"id": 1, "v": 1}, {"id": 2, "v": 5}]


def test_merge_during_a_stream(shop: Shop) -> None:
    options = shop.warehouse.options
    shop.do(revenue.TABLES + revenue.CUSTOMERS)

    def orders(country: str) -> int:
        rows = shop.rows("country_sales")
        return sum(row["orders"] for row in rows if row["country"] == country)

    with shop.running_here(revenue.whole(rows=1_000_000, rate=2_000)) as until:
        until(lambda: orders("Kenya") > 100 and orders("Peru") > 100)
        streamhouse.execute(options, SANTA)
        # Kenya's last customer has moved; orders that are on their way may still be Kenya's.
        done = streamhouse.execute(options, MERGE)
        assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
        before = orders("Peru")
        gone = streamhouse.execute(options, "DELETE FROM country_sales WHERE country = 'Peru'")
        assert gone.deleted
        until(lambda: 0 < orders("Peru"))
        until(lambda: revenue.checkpoint(shop, "country_sales").logs.last_committed() > 7)

    result = audit(options, VIEW)
    assert result.differences == ()
    assert result.foreign_snapshots == 2 and result.batches > 5
    view = {row["country"]: row["orders"] for row in shop.rows("country_sales")}
    assert view["North Pole"] == 0
    assert before > 100 and 0 < view["Peru"]
    with Sidecar(options) as java:
        there = sorted(java_rows(java, VIEW).to_pylist(), key=str)
        # The cores may add up what is not compacted yet in another order.
        assert there == [
            {**row, "revenue": pytest.approx(row["revenue"], rel=1e-12)}
            for row in sorted(shop.rows("country_sales"), key=str)
        ]
        java.compact(VIEW, full=True)
        rows = {row["country"]: row["orders"] for row in java_rows(java, VIEW).to_pylist()}
    assert rows == view
    assert audit(options, VIEW).equal


LATEST = """
CREATE TABLE latest (k INT PRIMARY KEY NOT ENFORCED, id BIGINT, seen INT) WITH ('bucket' = '1');
INSERT INTO latest VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0);
CREATE TEMPORARY TABLE made (id BIGINT) WITH ('connector' = 'datagen',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '300');
INSERT INTO latest SELECT CAST(MOD(id, 3) AS INT), id, 0 FROM made;
"""


def test_a_batch_that_was_written_before_an_update_is_not_hidden_by_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    results_of, counts = batch_commit.TaskResults.of, Counter[int]()

    def changed_between(frame: Any) -> Any:
        results = results_of(frame)
        if results is not None and results.messages:
            counts[results.number] += 1
            if counts[results.number] <= commit_retries.TRIES:
                streamhouse.execute(shop.warehouse.options, "UPDATE latest SET seen = seen + 1")
        return results

    monkeypatch.setattr(batch_commit.TaskResults, "of", changed_between)
    shop.settle_here(LATEST)
    assert set(counts.values()) == {4}, "each batch was written four times"
    table = shop.warehouse.table("default.latest")
    found = {row["k"]: row["id"] for batch in table.read() for row in batch.to_pylist()}
    assert found == {0: 300, 1: 298, 2: 299}
    commits = list(table.snapshots.newest_first())
    # The first is the INSERT of the script; what is left is the query.
    others = [s for s in commits if s.commit_kind == "APPEND" and s.id > 1]
    own = [s for s in others if not s.commit_user.startswith(CHANGE_USER)]
    tag = query_tag(own[0].commit_user)
    files = [path for path in Path(table.location).glob("bucket-*/*") if path.name.startswith(tag)]
    assert len(files) == len(own), "what the other tries wrote is gone"
