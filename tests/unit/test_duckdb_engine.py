"""Bounded queries over real tables, at the newest snapshot and back in time."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.waiting import DEADLINE_S

from streamhouse.duckdb_engine import Limits, bounded_reader, run_bounded
from streamhouse.errors import DataLossError, LimitError, StreamhouseError, TableError
from streamhouse.sql.plan import AsOf, BoundedQuery, BoundedScan, TableInfo


def scan(
    table: str,
    *columns: str,
    relation: str = "r0",
    options: Mapping[str, str] = MappingProxyType({}),
    **travel: Any,
) -> BoundedScan:
    database, name = table.split(".")
    info = TableInfo((database, name), ())
    return BoundedScan(info, relation, columns, options, as_of=AsOf(**travel))


def run(shop: Any, sql: str, *scans: BoundedScan, output: tuple[str, ...] = ("n",)) -> list[Any]:
    answer = run_bounded(BoundedQuery(scans, sql, output), shop.warehouse)
    assert answer.schema.names == list(output)
    return [tuple(row.values()) for row in answer.to_pylist()]


def test_join_group_and_order(shop: Any) -> None:
    sales, orders = shop.sales(), shop.orders()
    shop.write(sales, ("Chad", 1, 1.5), ("Mali", 2, None))
    shop.write(orders, (1, "Chad", None), (2, "Chad", None), (3, "Mali", None))
    found = run(
        shop,
        "SELECT country, count(*), sum(orders) FROM r0 JOIN r1 ON item = country "
        "GROUP BY country ORDER BY country DESC",
        scan(sales, "country", "orders"),
        scan(orders, "item", relation="r1"),
        output=("c", "n", "s"),
    )
    assert found == [("Mali", 1, 2), ("Chad", 2, 2)]


def test_sums_of_integers_are_bigint(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    query = BoundedQuery((scan(table, "orders"),), 'SELECT sum(orders) AS "a""b" FROM r0', ("s",))
    assert run_bounded(query, shop.warehouse).schema.field("s").type == pa.int64()


def test_one_table_read_twice_is_the_same_both_times(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5), ("Mali", 2, 1.5))
    sql = "WITH c AS (SELECT * FROM r0) SELECT count(*) FROM c l JOIN c r USING (revenue)"
    assert run(shop, sql, scan(table, "country", "revenue")) == [(4,)]


def test_time_travel(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    time.sleep(0.02)
    between = int(time.time() * 1000)
    time.sleep(0.02)
    shop.write(table, ("Chad", 2, 1.5))
    sql = "SELECT orders FROM r0"
    assert run(shop, sql, scan(table, "orders")) == [(2,)]
    assert run(shop, sql, scan(table, "orders", snapshot=1)) == [(1,)]
    assert run(shop, sql, scan(table, "orders", timestamp_ms=between)) == [(1,)]
    assert run(shop, sql, scan(table, "orders", timestamp_ms=between + 60_000)) == [(2,)]
    hinted = {"scan.snapshot-id": "1", "read.batch-size": "100"}
    assert run(shop, sql, scan(table, "orders", options=hinted)) == [(1,)]
    with pytest.raises(TableError, match="no snapshot as old as 1970-01-01 00:00:01.000 UTC"):
        run(shop, sql, scan(table, "orders", timestamp_ms=1_000))
    with pytest.raises(TableError, match="has no snapshot 9; its newest is 2"):
        run(shop, sql, scan(table, "orders", snapshot=9))
    assert run(shop, sql, scan(table, "orders", version="1")) == [(1,)]
    (shop.path / "shop.db" / "sales" / "snapshot" / "snapshot-1").unlink()
    with pytest.raises(DataLossError, match="snapshot 1 is gone, 2 to 2 are left"):
        run(shop, sql, scan(table, "orders", snapshot=1))


def test_tags(shop: Any) -> None:
    from pypaimon import CatalogFactory

    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    CatalogFactory.create({"warehouse": str(shop.path)}).get_table(table).create_tag("old", 1)
    shop.write(table, ("Chad", 2, 1.5))
    sql = "SELECT orders FROM r0"
    assert run(shop, sql, scan(table, "orders", tag="old")) == [(1,)]
    (shop.path / "shop.db" / "sales" / "snapshot" / "snapshot-1").unlink()
    assert run(shop, sql, scan(table, "orders", tag="old")) == [(1,)]
    with pytest.raises(TableError, match="has no tag 'odl'; did you mean 'old'"):
        run(shop, sql, scan(table, "orders", tag="odl"))


def test_empty_tables_and_no_tables(shop: Any) -> None:
    table = shop.sales()
    assert run(shop, "SELECT count(*) FROM r0", scan(table, "orders")) == [(0,)]
    assert run(shop, "SELECT 1 + 1") == [(2,)]


def test_failures_are_readable(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    with pytest.raises(StreamhouseError, match="'Chad' is not a valid INT") as error:
        run(shop, "SELECT CAST(country AS INT) FROM r0", scan(table, "country"))
    assert "LINE 1" not in str(error.value) and "\n" not in str(error.value)
    for path in (shop.path / "shop.db" / "sales" / "bucket-0").iterdir():
        path.unlink()
    with pytest.raises(DataLossError, match="a file of the snapshot being read is gone"):
        run(shop, "SELECT country FROM r0", scan(table, "country"))


def test_queries_see_no_files(shop: Any, tmp_path: Any) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(StreamhouseError, match="disabled by configuration"):
        run(shop, f"SELECT * FROM read_csv('{tmp_path}/x.csv')")


def test_a_program_without_a_file_gets_no_progress_bar() -> None:
    code = """
from streamhouse.duckdb_engine import run_bounded
from streamhouse.sql.plan import BoundedQuery
asked = BoundedQuery((), "SELECT current_setting('enable_progress_bar') AS shown", ("shown",))
print(run_bounded(asked, lambda scan: None).to_pylist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert done.stdout == "[{'shown': False}]\n"


def test_answers_come_in_batches_and_may_be_left(shop: Any) -> None:
    def scanner(asked: BoundedScan) -> Any:
        schema = pa.schema([("n", pa.int64())])

        def read() -> Iterator[pa.RecordBatch]:
            for start in range(0, 400_000, 1_000):
                yield pa.record_batch([pa.array(range(start, start + 1_000))], schema=schema)

        return schema, read

    query = BoundedQuery((scan("a.b", "n"),), "SELECT n FROM r0", ("n",))
    with bounded_reader(query, scanner) as reader:
        first = reader.read_next_batch()
        assert 0 < first.num_rows < 400_000
    assert run_bounded(query, scanner).num_rows == 400_000


def endless(asked: BoundedScan) -> Any:
    schema = pa.schema([("n", pa.int64())])

    def read() -> Iterator[pa.RecordBatch]:
        for start in range(0, 1 << 40, 100_000):
            numbers = np.arange(start, start + 100_000)
            yield pa.record_batch([pa.array(numbers)], schema=schema)

    return schema, read


@pytest.mark.parametrize(
    "sql", ["SELECT SUM(n) AS n FROM r0", "SELECT SUM(a.n) AS n FROM r0 a, range(1000000) b"]
)
def test_a_query_is_ended_when_its_time_is_over(sql: str) -> None:
    with pytest.raises(LimitError, match="took longer than 0.3 s; ask for fewer rows"):
        with bounded_reader(
            BoundedQuery((scan("a.b", "n"),), sql, ("n",)), endless, Limits(0.3)
        ) as reader:
            reader.read_all()


def test_the_time_of_whoever_takes_the_rows_counts() -> None:
    query = BoundedQuery((scan("a.b", "n"),), "SELECT n FROM r0", ("n",))
    with pytest.raises(LimitError, match="took longer"):
        with bounded_reader(query, endless, Limits(0.3)) as reader:
            for _ in reader:
                pass


def test_memory_and_temporary_files_are_limited() -> None:
    def wide(asked: BoundedScan) -> Any:
        schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
        batch = pa.record_batch([np.arange(10_000), ["x" * 1_000] * 10_000], schema=schema)
        return schema, lambda: itertools.repeat(batch, 1_000)

    sql = "SELECT n, text FROM r0 ORDER BY n DESC"
    query = BoundedQuery((scan("a.b", "n", "text"),), sql, ("n", "text"))
    with pytest.raises(LimitError, match="needs more memory than 32MiB"):
        with bounded_reader(query, wide, Limits(60, "32MiB", "16MiB")) as reader:
            reader.read_all()
