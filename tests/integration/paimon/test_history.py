"""Generated histories: after each step we, the Java core and a plain model agree."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.integration.paimon.history")

from tests.integration.paimon.history import KINDS, History, Kind  # noqa: E402

from streamhouse.paimon.catalog.warehouse import Warehouse  # noqa: E402
from streamhouse.paimon.java.sidecar import Sidecar  # noqa: E402

# py4j leaves the socket open with which it has tried to reach a JVM that was killed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SEED = int(os.environ.get("STREAMHOUSE_HISTORY_SEED", "1"))
CI_STEPS = 5
SOAK_STEPS = 500


@pytest.fixture(scope="module")
def java(warehouse: Warehouse) -> Iterator[Sidecar]:
    with Sidecar(warehouse.options) as sidecar:
        yield sidecar


def play(history: History, steps: int, progress: bool = False) -> None:
    """Play steps; an error tells the seed and all that went before."""
    started = time.monotonic()
    try:
        for number in range(steps):
            description = history.step()
            if progress:
                took = time.monotonic() - started
                print(
                    f"{history.identifier} {number + 1}/{steps} {took:.0f} s: {description}",
                    flush=True,
                )
    except Exception as error:
        log = "\n".join(history.log)
        raise AssertionError(f"{history.identifier}, seed {SEED}, after:\n{log}") from error


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_short_history(warehouse: Warehouse, java: Sidecar, kind: Kind) -> None:
    play(History(warehouse, java, kind, SEED), CI_STEPS)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_long_history(tmp_path: Path, kind: Kind) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    warehouse.create_database("db")
    with Sidecar(warehouse.options) as java:
        play(History(warehouse, java, kind, SEED), SOAK_STEPS // len(KINDS) + 1, progress=True)
