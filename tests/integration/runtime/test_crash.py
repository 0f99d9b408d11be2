"""A driver or a worker is killed at any time: the view still has the sums of its orders."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from functools import partial

import psutil
import pytest
from tests.failpoints import STEPS, TASK_STEP
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import Shop

pytestmark = pytest.mark.usefixtures("in_threads")

KILLED = -signal.SIGKILL
SOME = ("pending-committed",)


@pytest.mark.parametrize(
    "killed", [SOME, pytest.param(STEPS, marks=pytest.mark.soak)], ids=["some", "each"]
)
def test_a_crash_after_each_step_changes_nothing(shop: Shop, killed: Sequence[str]) -> None:
    """The driver is killed; at the other steps the query fails."""
    slow, fast = (revenue.whole(rows=16_000, rate=rate) for rate in (300, 100_000))
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    for step in STEPS:
        # A batch after the one that is replayed, so that each step is met in a fresh one too.
        batch = revenue.checkpoint(shop, "country_sales").logs.last_committed() + 2
        point = f"{step}:{batch}:default.country_sales"
        if step in killed:
            ended = shop.run(slow, "--until-caught-up", spark=False, STREAMHOUSE_FAILPOINT=point)
            assert (step, ended.code) == (step, KILLED), ended.err
        else:
            with shop.failing_here(slow, point):
                pass
    shop.settle_here(fast)
    revenue.check(shop, orders=16_000)


@pytest.mark.soak
def test_a_query_survives_a_lost_python_worker(shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    script = revenue.whole(rows=4_000, rate=2_000)
    shop.settle(script, STREAMHOUSE_FAILPOINT=f"{TASK_STEP}:1:default.country_sales")
    revenue.check(shop, orders=4_000)


@pytest.mark.soak
def test_a_driver_continues_when_its_jvm_is_killed(shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    # With --from-scratch it is in test_from_scratch. Orders come for longer than the first batch
    # Orders come for far longer than the first batch may take.
    run = shop.start(revenue.whole(rows=3_000, rate=75), "--until-caught-up")
    run.until(partial(_moved, shop, -1))
    children = psutil.Process(run.process.pid).children()
    spark = next(child for child in children if "PythonGatewayServer" in " ".join(child.cmdline()))
    spark.kill()
    ended = run.wait()
    assert ended.code == 0 and "Spark's JVM has died" in ended.err, ended.err
    revenue.check(shop, orders=3_000)


@pytest.mark.soak
@pytest.mark.parametrize("kills", [2, 20])
def test_kills_at_random_times_under_load(shop: Shop, kills: int) -> None:
    random_times = random.Random(kills)
    rows = kills * 8_000
    slow, fast = (revenue.whole(rows=rows, rate=rate) for rate in (1_000, 100_000))
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    for _ in range(kills):
        run = shop.start(slow, "--until-caught-up")
        before = revenue.checkpoint(shop, "country_sales").logs.last_committed()
        run.until(partial(_moved, shop, before))
        time.sleep(random_times.uniform(0.0, 1.5))
        run.kill()
    shop.settle(fast)
    revenue.check(shop, orders=rows)


def _moved(shop: Shop, before: int) -> bool:
    return revenue.checkpoint(shop, "country_sales").logs.last_committed() > before
