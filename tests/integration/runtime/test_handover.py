"""Spark's JVM outlives a driver that is killed alone; the next driver takes it over."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import uuid
from functools import partial

import psutil
import pytest
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import Run, Shop

from streamhouse.runtime.spark import handover

LONG = {handover.VARIABLE: "300"}
"""Longer than a start takes on a busy machine, and than a test waits for the end of processes."""


def jvm(run: Run) -> int:
    """Spark's JVM of a run, or of the one before it with the same mark."""
    (found,) = (pid for pid in run.tree() if _is_jvm(pid))
    return found


def _is_jvm(pid: int) -> bool:
    # Other processes of the run may end between being listed and being asked.
    with contextlib.suppress(psutil.NoSuchProcess):
        return any("PythonGatewayServer" in word for word in psutil.Process(pid).cmdline()[-1:])
    return False


def batches(shop: Shop) -> int:
    return revenue.checkpoint(shop, "country_sales").logs.last_committed()


def more(shop: Shop, before: int) -> bool:
    return batches(shop) > before


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.soak)])
def test_drivers_that_are_killed_alone(shop: Shop, kills: int) -> None:
    random_times, mark = random.Random(kills), uuid.uuid4().hex
    rows = kills * 1_500
    script = revenue.whole(rows=rows, rate=500)
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    jvms = set()
    for _ in range(kills):
        run = shop.start(script, "--until-caught-up", mark=mark, **LONG)
        run.until(partial(more, shop, batches(shop)))
        jvms.add(jvm(run))
        # The driver has told by then that it has done a batch.
        time.sleep(random_times.uniform(0.5, 1.5))
        run.kill_driver()
    # Each JVM is handed over twenty times at most.
    assert len(jvms) == 1 + (kills - 1) // 21
    shop.settle(script, mark=mark, **LONG)
    revenue.check(shop, orders=rows)


@pytest.mark.soak
def test_without_a_next_driver_all_ends(shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    script, mark = revenue.whole(rows=100_000, rate=100), uuid.uuid4().hex
    run = shop.start(script, mark=mark, **{handover.VARIABLE: "0.5"})
    run.until(partial(more, shop, -1))
    run.kill_driver()
    run.gone()


@pytest.mark.soak
def test_another_environment_has_a_jvm_of_its_own(shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    script, mark = revenue.whole(rows=1_000, rate=300), uuid.uuid4().hex
    run = shop.start(script, "--until-caught-up", mark=mark, **LONG)
    run.until(partial(more, shop, -1))
    old = jvm(run)
    run.kill_driver()
    other = shop.start(script, "--until-caught-up", mark=mark, OTHER="1", **LONG)
    assert other.process.wait(240) == 0, other.err
    # Nobody has claimed it.
    assert jvm(run) == old
    run.kill()
    revenue.check(shop, orders=1_000)


def test_a_jvm_that_does_not_answer_is_not_inherited(shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    script, mark = revenue.whole(rows=1_000, rate=300), uuid.uuid4().hex
    run = shop.start(script, "--until-caught-up", mark=mark, **LONG)
    run.until(partial(more, shop, -1))
    os.kill(jvm(run), signal.SIGSTOP)
    run.kill_driver()
    shop.settle(script, mark=mark, **LONG)
    revenue.check(shop, orders=1_000)


def test_an_end_at_once_leaves_nothing(shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    run = shop.start(revenue.whole(rows=100_000, rate=100), mark=uuid.uuid4().hex, **LONG)
    run.until(partial(more, shop, -1))
    run.signal(signal.SIGINT)
    run.signal(signal.SIGTERM)
    assert run.wait().code == 130
