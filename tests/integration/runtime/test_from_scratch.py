"""`--from-scratch` recomputes views exactly once after any kill; audits pass afterwards."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from functools import partial

import psutil
import pytest
from tests.failpoints import RESET_STEPS
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import Shop

from streamhouse.errors import DataLossError
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.audit.row_differences import Audit
from streamhouse.runtime.state.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("in_threads")

ORDERS = 2_000
SOURCE = "CREATE TABLE IF NOT EXISTS {} (k INT, v INT) WITH ('bucket' = '-1');"
SUMS = """
CREATE TABLE IF NOT EXISTS sums (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum',
  'changelog-producer' = 'lookup');
CREATE TABLE IF NOT EXISTS large (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1');
"""
VIEWS = "INSERT INTO sums SELECT k, v FROM {}; INSERT INTO large SELECT k, v FROM sums WHERE v > 4;"


@pytest.mark.parametrize(
    "steps",
    [
        ["target-emptied:0:default.orders"],
        pytest.param([f"{step}:0" for step in RESET_STEPS], marks=pytest.mark.soak),
    ],
    ids=["one", "each"],
)
def test_a_kill_at_any_step_leaves_nothing_twice_and_nothing_out(
    shop: Shop, steps: Sequence[str]
) -> None:
    script = revenue.whole(rows=ORDERS, rate=100_000)
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    shop.settle_here(script)
    for number, step in enumerate(steps):
        ended = shop.run(script, "--from-scratch", spark=False, STREAMHOUSE_FAILPOINT=step)
        assert ended.code == -signal.SIGKILL, ended.err
        output = shop.settle_here(script, from_scratch=number % 2 == 1)
        cut_off = "starts from scratch, as an interrupted run had begun to; "
        assert f"default.country_sales: {cut_off}" in output
        revenue.check(shop, orders=ORDERS)
        proved = _audit(shop, "country_sales")
        assert proved.equal and proved.from_snapshot == proved.foreign_snapshots == 0


@pytest.mark.soak
def test_a_fresh_process_of_the_same_command_continues(shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    # Orders come for longer than the first batch may take.
    script = revenue.whole(rows=3_000, rate=150)
    run = shop.start(script, "--until-caught-up", "--from-scratch")
    run.until(partial(_has_committed, shop))
    children = psutil.Process(run.process.pid).children()
    next(child for child in children if "PythonGatewayServer" in " ".join(child.cmdline())).kill()
    ended = run.wait()
    assert ended.code == 0 and "Spark's JVM has died" in ended.err, ended.err
    assert ended.err.count("default.country_sales: starts from scratch") == 1
    revenue.check(shop, orders=3_000)


def test_views_over_another_table_are_what_it_has(shop: Shop) -> None:
    shop.do(SOURCE.format("a") + SUMS + "INSERT INTO a VALUES (1, 2), (1, 3), (2, 4)")
    shop.settle_here(VIEWS.format("a"))
    assert _values(shop, "large") == [(1, 5)]
    shop.do("DROP TABLE a;" + SOURCE.format("b") + "INSERT INTO b VALUES (1, 1), (3, 9)")
    with pytest.raises(DataLossError, match="run the script with --from-scratch"):
        shop.settle_here(VIEWS.format("b"))
    output = shop.settle_here(VIEWS.format("b"), from_scratch=True)
    assert "default.sums: starts from scratch; 2 rows removed" in output
    assert _values(shop, "sums") == [(1, 1), (3, 9)] and _values(shop, "large") == [(3, 9)]
    for table in ("sums", "large"):
        proved = _audit(shop, table)
        assert proved.equal and proved.from_snapshot == proved.foreign_snapshots == 0, proved


def test_kept_rows_count_as_written_by_others(shop: Shop) -> None:
    shop.do(SOURCE.format("a") + SUMS + "INSERT INTO a VALUES (1, 2), (1, 3), (2, 4)")
    shop.settle_here(VIEWS.format("a"))
    shop.do("DROP TABLE a;" + SOURCE.format("b") + "INSERT INTO b VALUES (1, 1), (3, 9)")
    output = shop.settle_here(VIEWS.format("b"), from_scratch=True, keep_targets=True)
    assert "default.sums: starts from scratch; its 2 rows are kept" in output
    assert _values(shop, "sums") == [(1, 6), (2, 4), (3, 9)]
    assert _values(shop, "large") == [(1, 6), (3, 9)]
    for table in ("sums", "large"):
        proved = _audit(shop, table)
        assert proved.equal and proved.foreign_snapshots >= 1, proved


def test_statements_of_the_script_run_after_the_tables_were_emptied(shop: Shop) -> None:
    script = SOURCE.format("a") + SUMS + "INSERT INTO sums VALUES (7, 1);" + VIEWS.format("a")
    shop.do(SOURCE.format("a") + "INSERT INTO a VALUES (1, 2)")
    shop.settle_here(script)
    output = shop.settle_here(script, from_scratch=True)
    assert "2 rows removed, including those of INSERT … VALUES and other statements" in output
    assert _values(shop, "sums") == [(1, 2), (7, 1)]


def test_a_branch_starts_from_scratch_alone(shop: Shop) -> None:
    shop.do(
        SOURCE.format("a") + SUMS + "INSERT INTO a VALUES (1, 2); INSERT INTO sums VALUES (9, 9)"
    )
    shop.printed("CALL sys.create_branch('default.sums', 'b')")
    script = "INSERT INTO `sums$branch_b` SELECT k, v FROM a;"
    for _ in range(2):
        shop.settle_here(script, from_scratch=True)
        assert _values(shop, "sums$branch_b") == [(1, 2)]
    assert _values(shop, "sums") == [(9, 9)]


def _values(shop: Shop, table: str) -> list[tuple[int, int]]:
    return sorted((row["k"], row["v"]) for row in shop.rows(table))


def _audit(shop: Shop, table: str) -> Audit:
    return audit(shop.warehouse.options, f"default.{table}")


def _has_committed(shop: Shop) -> bool:
    checkpoint: Checkpoint = revenue.checkpoint(shop, "country_sales")
    return checkpoint.logs.last_committed() >= 0
